"""Errors over HTTP: RFC 9457 problem documents with a stable ``type``."""

from typing import Any, Final

import msgspec

from privateer_core.errors import PrivateerError

MEDIA_TYPE: Final = "application/problem+json"
_PREFIX: Final = "urn:privateer:problem:"
_RETRY_SECONDS_MAX: Final = 3600.0


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


def parse_retry_after(retry_after: str) -> float:
    """Parse a ``Retry-After``, an hour at most; a date counts as 0 seconds, since clocks differ."""
    digits = retry_after.strip()
    if not (digits.isascii() and digits.isdecimal()):
        return 0.0
    return min(_RETRY_SECONDS_MAX, float(digits))
