"""Upload tokens for simulated people: each is a device of its own, and gets one just before its report."""

import asyncio
import math
import secrets
import time
from dataclasses import dataclass, field
from typing import Final

import aiohttp

from privateer_core.errors import Malformed, TermsRefused, Unavailable, printable
from privateer_core.wire.attestation import HEADER, attest
from privateer_core.wire.problem import slug_of
from privateer_core.wire.token import REQUEST_TYPE, Challenge, PendingToken, server_name
from privateer_core.wire.token_keys import Directory, TokenKey
from privateer_lab.load.endpoints import PATIENCE, TRIES, Backoff

_FIELD: Final = "--issuer"
_FRESH: Final = 60.0
"""Seconds for which keys count without being asked for again."""
_LIFE: Final = 600
_BREATH: Final = 0.2
_OK: Final = 200


@dataclass
class TokenSource:
    """Gets tokens from an issuer."""

    issuer: str  # the address
    # what the application's backend shares with the issuer, for people who need an attestation; None: they need none
    secret: bytes | None
    http: aiohttp.ClientSession
    patience: Backoff = field(default_factory=Backoff)  # waits while the issuer is busy
    _keys: dict[str, tuple[float, TokenKey | None]] = field(default_factory=dict)

    async def token(self, name: str, base: str) -> bytes:
        """Return a token for an experiment at the endpoint of a service."""
        key = await self._key(name, base)
        pending = PendingToken.draw(Challenge(server_name(self.issuer), server_name(base), name), key)
        headers = {"Content-Type": REQUEST_TYPE}
        if self.secret is not None:
            headers[HEADER] = attest(self.secret, name, secrets.token_hex(16), int(time.time()) + _LIFE)
        status, body = await self._issued(f"{self.issuer}/experiments/{name}/tokens", pending.request, headers)
        if status != _OK:
            raise TermsRefused(f"the issuer signs no token ({printable(slug_of(body))})", field=_FIELD, remedy=_REMEDY)
        try:
            return pending.finish(key, body)
        except Malformed as error:
            raise TermsRefused(error.detail, field=_FIELD, remedy=error.remedy) from None

    async def _issued(self, url: str, request: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        """Return the status and the body of the issuer's answer, once it is not busy any more."""
        for attempt in range(TRIES):
            try:
                async with self.http.post(url, data=request, headers=headers) as response:
                    status, body, asked = response.status, await response.read(), response.headers.get("Retry-After")
            except (aiohttp.ClientError, TimeoutError):
                raise Unavailable("no answer", field=_FIELD, remedy="is the issuer running?") from None
            if status != Unavailable.status:
                break
            await self.patience.pause(attempt, asked)
        return status, body

    async def _key(self, name: str, base: str) -> TokenKey:
        """Return the newest key that an endpoint takes; the endpoint has some seconds to start."""
        looked, key = self._keys.get(base, (-math.inf, None))
        if time.monotonic() - looked > _FRESH:
            latest = time.monotonic() + PATIENCE
            while (found := await self._asked(name, base)) is None and key is None:
                if time.monotonic() >= latest:
                    remedy = "set its PRIVATEER_TOKEN_KEYS"
                    raise Unavailable("the endpoint shows no token keys", field=_FIELD, remedy=remedy)
                await asyncio.sleep(_BREATH)
            key = found or key
            self._keys[base] = time.monotonic(), key
        assert key is not None, "it was found, or known before"
        return key

    async def _asked(self, name: str, base: str) -> TokenKey | None:
        try:
            async with self.http.get(f"{base}/experiments/{name}/token-keys") as response:
                body = await response.read()
            keys = [key for key in Directory.decode(body).keys(name) if key.is_valid(time.time())]
        except (aiohttp.ClientError, TimeoutError, Malformed):
            return None
        return keys[0] if keys else None


_REMEDY: Final = "see the experiments and the attestation that the issuer was started with"
