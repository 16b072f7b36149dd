"""Parts that the OpenAPI documents of all services share: refusals, sealed reports, and pages for operators."""

import re
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final

import msgspec

from privateer_core.errors import (
    AdminTokenExpired,
    AttestationRefused,
    BadRequest,
    BatchRefused,
    Conflict,
    Deleted,
    DuplicateReport,
    HeadersTooLarge,
    KeyChanged,
    Malformed,
    NotFound,
    OutOfRange,
    ParameterInvalid,
    PrivateerError,
    RoundClosed,
    RoundUnknown,
    ScopeMissing,
    SenderRefused,
    SignatureInvalid,
    SpecError,
    TokenElsewhere,
    TokenExpired,
    TokenInvalid,
    TokenMissing,
    TokenRequestRefused,
    TokensExhausted,
    TokenSpent,
    TooLarge,
    Unauthorized,
    Unavailable,
    Unopenable,
    WrongDigest,
    WrongEndpoint,
    WrongKey,
    WrongSize,
)
from privateer_core.serving.http.problems import HostRefused, Internal
from privateer_core.wire import problem
from privateer_core.wire.batch import FORM, UPLOAD
from privateer_core.wire.envelope import MEDIA_TYPE
from privateer_core.wire.publication import DIGEST_SIZE, KEY_ID_SIZE

REF: Final = "#/components/schemas/{name}"
_EVERYWHERE: Final[tuple[type[PrivateerError], ...]] = (BadRequest, HeadersTooLarge, HostRefused, Internal)
"""Any page may answer these: what is no HTTP, too long, or a defect; at the private listener, a wrong name."""
UPLOAD_REFUSALS: Final[tuple[type[PrivateerError], ...]] = (
    *(Malformed, WrongSize, Unopenable, OutOfRange, WrongEndpoint, SenderRefused, NotFound, Deleted, TooLarge),
    *(WrongKey, WrongDigest, RoundClosed, RoundUnknown, DuplicateReport, Unavailable),
)
"""What an endpoint for reports may answer."""
TOKEN_REFUSALS: Final[tuple[type[PrivateerError], ...]] = (
    *(TokenMissing, TokenInvalid, TokenElsewhere, TokenExpired, TokenSpent),
)
"""What it may answer besides, if it takes reports with upload tokens alone."""
_PROBLEMS: Final[tuple[type[PrivateerError], ...]] = (
    *_EVERYWHERE,
    *UPLOAD_REFUSALS,
    *TOKEN_REFUSALS,
    AdminTokenExpired,
    AttestationRefused,
    BatchRefused,
    Conflict,
    ParameterInvalid,
    ScopeMissing,
    SpecError,
    TokenRequestRefused,
    TokensExhausted,
    Unauthorized,
    SignatureInvalid,
    KeyChanged,
)
ADMIN_REFUSALS: Final[tuple[type[PrivateerError], ...]] = (Unauthorized, AdminTokenExpired, ScopeMissing)
"""What a page answers whose bearer needs an admin token."""
_COUNTS: Final = {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0}}
_SEALED: Final = {"type": "string", "format": "binary", "description": "Sealed messages, one after another."}


def _bytes(size: int, what: str) -> dict[str, Any]:
    return {"type": "string", "format": "binary", "minLength": size, "maxLength": size, "description": what}


def _array(what: str, *items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "description": what, "prefixItems": list(items), "items": False, "minItems": len(items)}


_HEADER: Final = _array(
    "The round that the reports are made for.",
    {"type": "string", "description": "Name of the experiment."},
    {"type": "integer", "minimum": 1, "description": "Version of the policy."},
    _bytes(KEY_ID_SIZE, "First 8 bytes of the SHA-256 of the round's public key."),
    _bytes(DIGEST_SIZE, "SHA-256 of the publication."),
)
_PROBLEM: Final = {
    "type": "object",
    "description": "Why a request was refused (RFC 9457). docs/problems.md lists all types.",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "format": "uri"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "field": {"type": "string", "description": "The dotted name of what is wrong."},
        "remedy": {"type": "string", "description": "What to do about it."},
        "accepted": {"type": "integer", "const": 0, "description": "Of an upload: no report counts."},
        "refused": _COUNTS | {"description": "Of an upload: how many reports were refused, by reason."},
    },
}


def _kind(error: type[PrivateerError]) -> dict[str, Any]:
    own = {"type": {"const": problem.problem_type(error.slug)}, "status": {"const": error.status}}
    meaning = str(error.__doc__).splitlines()[0]
    return {"allOf": [{"$ref": REF.format(name="Problem")}], "description": meaning, "properties": own}


SCHEMAS: Final[dict[str, Any]] = {
    "Envelope": _array("msgpack, as docs/wire-format.md describes it byte by byte.", _HEADER, _SEALED),
    "Problem": _PROBLEM,
    **{f"problem-{error.slug}": _kind(error) for error in _PROBLEMS},
}
"""Schemas that the documents of all services have."""
ENVELOPE: Final = {
    "required": True,
    "content": {MEDIA_TYPE: {"schema": {"$ref": REF.format(name="Envelope")}}},
}
"""The body of an upload or a batch."""


def signature(header: str, what: str, *, required: bool) -> dict[str, Any]:
    """Describe a header that carries a signature."""
    schema = {"type": "string", "pattern": f"^{FORM}$"}
    return {"name": header, "in": "header", "required": required, "description": what, "schema": schema}


TOKEN: Final = {
    "name": "Authorization",
    "in": "header",
    "required": False,
    "description": "An upload token (RFC 9577), where the service takes reports with tokens alone.",
    "schema": {"type": "string"},
}
SENDER: Final = signature(
    UPLOAD.header, "A trusted sender's signature: needed for more than one person's reports.", required=False
)


def refusals(*errors: type[PrivateerError]) -> dict[int | str, dict[str, Any]]:
    """Describe the problems that a page may answer, by status; to those given it adds what any page may answer."""
    by_status: defaultdict[int, list[str]] = defaultdict(list)
    for error in [*errors, *_EVERYWHERE]:
        by_status[error.status].append(error.slug)
    return {status: _refusal(status, slugs) for status, slugs in sorted(by_status.items())}


_HEADERS: Final = {
    Unauthorized.status: "WWW-Authenticate",
    ScopeMissing.status: "WWW-Authenticate",
    Unavailable.status: "Retry-After",
}


def _refusal(status: int, slugs: list[str]) -> dict[str, Any]:
    kinds = [{"$ref": REF.format(name=f"problem-{slug}")} for slug in slugs]
    schema = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    described = {"description": ", ".join(slugs), "content": {problem.MEDIA_TYPE: {"schema": schema}}}
    header = _HEADERS.get(status) if status != ScopeMissing.status or ScopeMissing.slug in slugs else None
    return described | ({"headers": {header: {"schema": {"type": "string"}}}} if header else {})


def answers(name: str, what: str, status: int = 200) -> dict[int | str, dict[str, Any]]:
    """Describe the answer of a page that is JSON of a schema, which the document has under this name."""
    return {status: {"description": what, "content": {"application/json": {"schema": {"$ref": REF.format(name=name)}}}}}


_REFERRED: Final = re.compile(r'"#/components/schemas/([^"]+)"')
"""Finds the schemas that a part of a document names."""


def public_part(document: dict[str, Any], is_public: Callable[[str, str], bool]) -> dict[str, Any]:
    """Return what a document says to strangers: the routes that they reach, and the schemas that these name.

    is_public: whether strangers may use a method on a path.
    """
    routes = {
        path: {method: one for method, one in methods.items() if is_public(method.upper(), path)}
        for path, methods in document["paths"].items()
    }
    paths = {path: methods for path, methods in routes.items() if methods}
    schemas, named = document["components"]["schemas"], _named(paths)
    while more := set().union(*(_named(schemas[name]) for name in named)) - named:
        named |= more
    kept = {name: schema for name, schema in schemas.items() if name in named}
    return document | {"paths": paths, "components": {"schemas": kept}}


def _named(part: Any) -> set[str]:
    return set(_REFERRED.findall(msgspec.json.encode(part).decode()))
