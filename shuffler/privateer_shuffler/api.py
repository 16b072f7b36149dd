"""The OpenAPI document of the shuffler."""

from typing import Any, Final

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST

from privateer_core.errors import Deleted, KeyChanged, NotFound, SignatureInvalid, SpecError, Unavailable
from privateer_core.serving.admission import ShufflerLimits
from privateer_core.serving.http.openapi import (
    ENVELOPE,
    REF,
    SCHEMAS,
    SENDER,
    TOKEN,
    TOKEN_REFUSALS,
    UPLOAD_REFUSALS,
    answers,
    refusals,
)
from privateer_core.serving.logs import BUILD, Build
from privateer_core.wire.batch import UploadAnswer
from privateer_core.wire.token_keys import MEDIA_TYPE, Directory


class ExperimentStatus(msgspec.Struct, frozen=True):
    """The round of an experiment that the shuffler follows, and whether it takes reports now."""

    experiment: str
    version: int
    model: str
    batch: int
    open: bool


class HeldRound(msgspec.Struct, frozen=True):
    """People whose reports are held for a round, in whole tenths of its batch, and whether it waits for the server."""

    experiment: str
    version: int
    batch: int
    held: int
    full: bool


class HeldRounds(msgspec.Struct, frozen=True):
    """What a shuffler, named by the id of its key, holds; and the fewest people of a batch that its operator takes."""

    shuffler: str
    min_batch: int
    rounds: list[HeldRound]


class SigningKey(msgspec.Struct, frozen=True):
    """The Ed25519 public key that batches are signed with, 64 hexadecimal digits."""

    public_key: str


class ShufflerStatus(msgspec.Struct, frozen=True):
    """How the service is."""

    status: str


_ABOUT: Final = (
    "It holds sealed reports until a batch is full. /held, /version and /metrics are on the private listener alone."
)
_NAME: Final = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
_UPSTREAM: Final = (SignatureInvalid, KeyChanged)
"""What the shuffler finds wrong with the server."""
_Answers = dict[int | str, dict[str, Any]]
_METRICS: Final[_Answers] = {
    200: {"description": "Counts.", "content": {CONTENT_TYPE_LATEST: {"schema": {"type": "string"}}}}
}
_KEYS: Final[_Answers] = {
    200: {"description": "Its keys.", "content": {MEDIA_TYPE: {"schema": {"$ref": REF.format(name="Directory")}}}}
}


def _page(summary: str, operation: str, good: _Answers, bad: _Answers, **more: Any) -> dict[str, Any]:
    responses = {str(status): answer for status, answer in (good | bad).items()}
    return {"summary": summary, "operationId": operation, **more, "responses": responses}


def document() -> dict[str, Any]:
    """Return the OpenAPI document."""
    _, schemas = msgspec.json.schema_components(
        (UploadAnswer, ExperimentStatus, SigningKey, ShufflerLimits, ShufflerStatus, Directory, HeldRounds, Build),
        ref_template=REF,
    )
    named, alive = {"parameters": [_NAME]}, answers("ShufflerStatus", "It is so.")
    reports = {"parameters": [_NAME, SENDER, TOKEN], "requestBody": ENVELOPE}
    held, refused = (
        answers("UploadAnswer", "Some reports are held.", 202),
        refusals(*UPLOAD_REFUSALS, *TOKEN_REFUSALS, *_UPSTREAM, SpecError),
    )
    shown, unknown = answers("ExperimentStatus", "The round."), refusals(NotFound, Deleted, *_UPSTREAM, Unavailable)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Privateer shuffler",
            "description": _ABOUT,
            "version": BUILD.version,
        },
        "paths": {
            "/experiments/{name}/reports": {
                "post": _page("Hold sealed reports for a batch.", "reports", held, refused, **reports)
            },
            "/experiments/{name}": {
                "get": _page("Show the open round of an experiment.", "experiment", shown, unknown, **named)
            },
            "/experiments/{name}/token-keys": {
                "get": _page("Show the token keys of an experiment.", "token_keys", _KEYS, refusals(NotFound), **named)
            },
            "/keys": {
                "get": _page("Show the key that signs batches.", "keys", answers("SigningKey", "The key."), refusals())
            },
            "/limits": {
                "get": _page("Show the shuffler's limits.", "limits", answers("ShufflerLimits", "They."), refusals())
            },
            "/healthz": {"get": _page("Say that the process answers.", "healthz", alive, refusals())},
            "/readyz": {
                "get": _page("Say whether reports can be held and sent on.", "readyz", alive, refusals(Unavailable))
            },
            "/held": {
                "get": _page("Show what is held.", "held", answers("HeldRounds", "In tenths of a batch."), refusals())
            },
            "/version": {"get": _page("Say which build this is.", "version", answers("Build", "It."), refusals())},
            "/metrics": {"get": _page("Show counts for Prometheus.", "metrics", _METRICS, refusals())},
        },
        "components": {"schemas": schemas | SCHEMAS},
    }
