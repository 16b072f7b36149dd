"""A trusted sender: what tests upload several people's reports as."""

from collections.abc import Generator
from pathlib import Path

import httpx
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_core.wire.batch import UPLOAD

KEY = Ed25519PrivateKey.from_private_bytes(b"s" * 32)
TRUSTED = (Path(__file__).with_name("sender.pub"),)
"""For ``sender_keys`` of settings."""


class Signing(httpx.Auth):
    """Signs every upload."""

    requires_request_body = True

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Add the header."""
        if request.method == "POST" and request.url.path.endswith("/reports"):
            request.headers[UPLOAD.header] = UPLOAD.sign(request.content, KEY)
        yield request
