"""What load drivers send and fetch: until somebody answers."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Self

import aiohttp

from privateer.errors import NotFound, TermsRefused, Unavailable
from privateer.wire.envelope import MEDIA_TYPE, Envelope, Header, encode_envelope
from privateer.wire.problem import slug_of

_WAIT: Final = 10
"""Seconds of a long poll for the next policy."""
TRIES: Final = 60


@dataclass
class Wire:
    """One experiment's services.

    Attributes
    ----------
    name, server, shuffler
        The experiment, and where it is; a shuffler only under shuffle privacy.
    sent
        Bytes of the bodies that were answered.
    """

    name: str
    server: str
    shuffler: str | None
    http: aiohttp.ClientSession
    sent: int = 0

    @classmethod
    @asynccontextmanager
    async def open(cls, name: str, server: str, shuffler: str | None, concurrency: int) -> AsyncIterator[Self]:
        """Connections to the services, until the context is left."""
        timeout = aiohttp.ClientTimeout(total=_WAIT + 60)
        connector = aiohttp.TCPConnector(limit=concurrency + 1)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as http:
            yield cls(name, server.rstrip("/"), shuffler, http)

    async def send(self, header: Header, sealed: bytes, people: int, model: str) -> tuple[int, dict[str, int]]:
        """Upload until somebody answers; the same bytes each time, so that nothing counts twice.

        Returns
        -------
        How many were accepted, and the others by reason.
        """
        body, door = encode_envelope(Envelope(header, sealed)), self._door(model)
        for attempt in range(TRIES):
            try:
                async with self.http.post(door, data=body, headers={"Content-Type": MEDIA_TYPE}) as response:
                    answer = await response.read()
                    if response.status < 500:
                        self.sent += len(body)
                        accepted, refused = _counts(answer, people, attempt > 0)
                        if Unavailable.slug not in refused:
                            return accepted, refused
            except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError):
                raise Unavailable("not a URL", field="--shuffler", remedy="write http://host:port") from None
            except (aiohttp.ClientError, TimeoutError):
                pass
            await asyncio.sleep(min(2.0, 0.05 * 2**attempt))
        return 0, {"unsent": people}

    def _door(self, model: str) -> str:
        if model != "shuffle":
            return f"{self.server}/reports"
        if self.shuffler is None:
            raise TermsRefused("the experiment needs a shuffler", field="--shuffler", remedy="give its URL")
        return f"{self.shuffler.rstrip('/')}/experiments/{self.name}/reports"

    async def fetch(self, old: bytes | None) -> bytes | None:
        """The publication; None if it still is the one of digest ``old`` some seconds later, or nobody answers.

        Raises
        ------
        NotFound, Unavailable
            If there is no such experiment, or no answer to the first question.
        """
        headers, query = {"Accept": MEDIA_TYPE}, ""
        if old is not None:
            headers["If-None-Match"], query = f'"{old.hex()}"', f"?wait={_WAIT}"
        try:
            url = f"{self.server}/experiments/{self.name}/policy{query}"
            async with self.http.get(url, headers=headers) as response:
                if response.status == 404:
                    raise NotFound("the server has no such experiment", field="NAME", remedy="privateer list")
                return await response.read() if response.status == 200 else None
        except (aiohttp.ClientError, TimeoutError):
            if old is None:
                raise Unavailable("no answer", field="--url", remedy="is the server running?") from None
            return None


def _counts(answer: bytes, people: int, retried: bool) -> tuple[int, dict[str, int]]:
    """Counts in an answer or a problem document; duplicates after a retry were accepted before."""
    try:
        told = dict(json.loads(answer))
    except ValueError:
        told = {}
    accepted, refused = int(told.get("accepted") or 0), dict(told.get("refused") or {})
    if not accepted and not refused:
        refused = {slug_of(answer): people}
    accepted += refused.pop("duplicate-report", 0) if retried else 0
    return accepted, refused
