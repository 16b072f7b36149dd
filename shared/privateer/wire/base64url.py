"""Bytes in headers and JSON."""

import base64
import binascii

from privateer.errors import Malformed


def base64url(some: bytes) -> str:
    """Encode bytes with base64url and padding."""
    return base64.urlsafe_b64encode(some).decode()


def unbase64url(text: str | bytes) -> bytes:
    """Decode base64url.

    Raises
    ------
    Malformed
        If it is something else.
    """
    try:
        return base64.b64decode(text, b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise Malformed("not base64url with padding", remedy="see RFC 4648, section 5") from None
