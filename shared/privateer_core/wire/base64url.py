"""Bytes in headers and JSON."""

import base64
import binascii

from privateer_core.errors import Malformed


def base64url(some: bytes) -> str:
    """Encode bytes with base64url and padding."""
    return base64.urlsafe_b64encode(some).decode()


def unbase64url(text: str | bytes) -> bytes:
    """Decode base64url; nothing else has the same bytes.

    Raises
    ------
    Malformed
        If it is something else.
    """
    try:
        decoded = base64.urlsafe_b64decode(text)
    except (binascii.Error, ValueError):
        decoded = b""
    if base64url(decoded).encode() != (text.encode() if isinstance(text, str) else text):
        raise Malformed("not base64url with padding", remedy="see RFC 4648, section 5")
    return decoded
