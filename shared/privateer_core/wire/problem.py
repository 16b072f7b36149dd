"""Errors over HTTP: RFC 9457 problem documents with a stable ``type``."""

from typing import Any, Final

import msgspec

from privateer_core.errors import PrivateerError

MEDIA_TYPE: Final = "application/problem+json"
_PREFIX: Final = "urn:privateer:problem:"


def problem_type(slug: str) -> str:
    """Return the ``type`` URI of an error's slug."""
    return _PREFIX + slug


def problem_body(error: PrivateerError, **extension: Any) -> bytes:
    """Return the JSON problem document of an error, with extension members such as ``accepted``."""
    members: dict[str, Any] = {
        "type": problem_type(error.slug),
        "title": error.title,
        "status": error.status,
        "detail": error.detail,
    }
    if error.field:
        members["field"] = error.field
    if error.remedy:
        members["remedy"] = error.remedy
    return msgspec.json.encode(members | extension)


def slug_of(body: bytes) -> str:
    """Return the slug in a problem document, or ``unknown`` if it has no slug."""
    try:
        kind = msgspec.json.decode(body).get("type", "")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, AttributeError):
        return "unknown"
    return kind.removeprefix(_PREFIX) if isinstance(kind, str) and kind.startswith(_PREFIX) else "unknown"
