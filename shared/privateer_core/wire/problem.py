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
    members = {"type": problem_type(error.slug), "title": error.title, "status": error.status, "detail": error.detail}
    optional = {"field": error.field, "remedy": error.remedy}
    return msgspec.json.encode(members | {name: text for name, text in optional.items() if text} | extension)


def read_slug(body: bytes) -> str:
    """Parse the slug of a problem document; ``unknown`` if the body has no slug."""
    try:
        type_uri = msgspec.json.decode(body).get("type", "")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, AttributeError):
        return "unknown"
    return type_uri.removeprefix(_PREFIX) if isinstance(type_uri, str) and type_uri.startswith(_PREFIX) else "unknown"
