"""The OpenAPI document of the issuer."""

from typing import Any, Final

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST

from privateer_core.errors import (
    AttestationRefused,
    NotFound,
    TokenRequestRefused,
    TokensExhausted,
    TooLarge,
    Unavailable,
)
from privateer_core.serving.http.openapi import REF, SCHEMAS, VERSION, answers, refusals
from privateer_core.wire.tokens.attestation import HEADER
from privateer_core.wire.tokens.token import REQUEST_SIZE, REQUEST_TYPE, RESPONSE_TYPE, SIGNATURE_SIZE
from privateer_core.wire.tokens.token_keys import MEDIA_TYPE, Directory


class IssuerStatus(msgspec.Struct, frozen=True):
    """How the service is."""

    status: str


_Answers = dict[int | str, dict[str, Any]]


def _binary(media: str, size: int, what: str) -> dict[str, Any]:
    schema = {"type": "string", "format": "binary", "minLength": size, "maxLength": size, "description": what}
    return {media: {"schema": schema}}


_NAME: Final = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
_ATTESTATION: Final = {
    "name": HEADER,
    "in": "header",
    "required": False,
    "description": "Says which device asks, for the plug that the operator chose (docs/tokens.md).",
    "schema": {"type": "string"},
}
_REQUEST: Final = {"required": True, "content": _binary(REQUEST_TYPE, REQUEST_SIZE, "A TokenRequest of RFC 9578, 6.1.")}
_SIGNED: Final[_Answers] = {
    200: {
        "description": "The blinded token is signed.",
        "content": _binary(RESPONSE_TYPE, SIGNATURE_SIZE, "A TokenResponse of RFC 9578, 6.2."),
    }
}
_KEYS: Final[_Answers] = {
    200: {"description": "All keys.", "content": {MEDIA_TYPE: {"schema": {"$ref": REF.format(name="Directory")}}}}
}
_METRICS: Final[_Answers] = {
    200: {"description": "Counts.", "content": {CONTENT_TYPE_LATEST: {"schema": {"type": "string"}}}}
}
_TOKEN_REFUSALS: Final = (NotFound, TokenRequestRefused, AttestationRefused, TokensExhausted, TooLarge, Unavailable)


def _page(summary: str, operation: str, good: _Answers, bad: _Answers, **more: Any) -> dict[str, Any]:
    responses = {str(status): answer for status, answer in (good | bad).items()}
    return {"summary": summary, "operationId": operation, **more, "responses": responses}


def document() -> dict[str, Any]:
    """Return the OpenAPI document."""
    _, schemas = msgspec.json.schema_components((IssuerStatus, Directory), ref_template=REF)
    alive, signs = answers("IssuerStatus", "It is so."), refusals(*_TOKEN_REFUSALS)
    asks = {"parameters": [_NAME, _ATTESTATION], "requestBody": _REQUEST}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Privateer issuer",
            "description": "It signs upload tokens blindly. Metrics are on the private listener alone.",
            "version": VERSION,
        },
        "paths": {
            "/experiments/{name}/tokens": {"post": _page("Sign a blinded token.", "tokens", _SIGNED, signs, **asks)},
            "/token-keys": {"get": _page("Show the public keys of all experiments.", "keys", _KEYS, refusals())},
            "/healthz": {"get": _page("Say that the process answers.", "healthz", alive, refusals())},
            "/readyz": {"get": _page("Say whether tokens can be issued.", "readyz", alive, refusals(Unavailable))},
            "/metrics": {"get": _page("Show counts for Prometheus.", "metrics", _METRICS, refusals())},
        },
        "components": {"schemas": schemas | SCHEMAS},
    }
