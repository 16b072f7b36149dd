"""Sends a load run's requests to services over HTTP, and says what became of the people of each upload."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, Self

import aiohttp
import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_client.delivery import ACCEPTED, EndpointAnswer, judge, outcome_of
from privateer_client.states import Outcome
from privateer_core.errors import Deleted, NotFound, SenderRefused, TermsRefused, Unavailable
from privateer_core.wire.batch import SET_CLOCKS, UPLOAD, blames_clock
from privateer_core.wire.envelope import MEDIA_TYPE, Envelope, Header, encode_envelope
from privateer_core.wire.problem import slug_of
from privateer_core.wire.publication import ASKS_HEADER, ASKS_NOBODY
from privateer_core.wire.token import authorization
from privateer_lab.load.endpoints import TRIES, Backoff, ServerCounts, UploadWait, counts_of, meet, no_url
from privateer_lab.load.token_source import TokenSource

_PENDING: Final = "pending"
_WAIT: Final = 10
"""Seconds of a long poll for the next policy."""


def _sender_refusal(problem: bytes) -> SenderRefused:
    """Return why services do not take several people's reports at once."""
    if blames_clock(problem):
        return SenderRefused("this machine's clock and the service's differ by minutes", remedy=SET_CLOCKS)
    remedy = "name another with --sender-key, or send people one by one with --batch 1"
    return SenderRefused("the services do not trust this key", field="--sender-key", remedy=remedy)


class _Verdicts(msgspec.Struct):
    accepted: int = 0
    refused: dict[str, int] = {}


@dataclass
class Counts:
    """People whose reports were accepted, and the others by reason, after each answer to the same bytes."""

    people: int  # all people of the upload
    # what the last answer said; until the first one everybody is ``pending``
    accepted: int = 0
    refused: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.refused = {_PENDING: self.people}

    @property
    def pending(self) -> bool:
        """Whether the same bytes may bring more people in."""
        return any(outcome_of(reason) is Outcome.PENDING for reason in self.refused)

    def update(self, answer: EndpointAnswer, again: bool) -> None:
        """Count an answer; if the bytes were sent ``again``, duplicates were accepted before."""
        accepted, refused = self._read(answer)
        if again:
            accepted += refused.pop("duplicate-report", 0)
        # A round that closed in between also turns away those whose reports it had taken.
        self.refused = _without(refused, self.accepted - accepted)
        self.accepted = max(self.accepted, accepted)

    def _read(self, answer: EndpointAnswer) -> tuple[int, dict[str, int]]:
        try:
            said = msgspec.json.decode(answer.body, type=_Verdicts)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            said = _Verdicts(0, {_PENDING: self.people})
        verdict = judge(answer)
        if verdict.outcome is Outcome.PENDING:
            return 0, {_PENDING: self.people}
        if answer.status == ACCEPTED:
            return said.accepted, dict(said.refused)
        return 0, dict(said.refused) or {verdict.reason or "duplicate-report": self.people}


def _without(refused: dict[str, int], people: int) -> dict[str, int]:
    """Return the refusals without those of some people."""
    left = {}
    for reason, count in refused.items():
        spared = min(count, max(0, people))
        people -= spared
        if count > spared:
            left[reason] = count - spared
    return left


@dataclass
class Wire:
    """One experiment's services."""

    # the experiment, and the addresses of its services; a shuffler only if its reports are shuffled
    name: str
    server: str
    shuffler: str | None
    http: aiohttp.ClientSession
    sender: Ed25519PrivateKey | None = None  # the key that signs uploads of several people's reports, if there is one
    sent: int = 0  # bytes of the bodies that were answered
    is_paused: bool = False  # whether nobody was asked when the last publication was fetched
    tokens: TokenSource | None = None  # where people get upload tokens, if their reports need some
    patience: Backoff = field(default_factory=Backoff)  # waits before somebody asks again
    _met: bool = False
    _meeting: asyncio.Lock = field(default_factory=asyncio.Lock)
    _waiting: dict[str, UploadWait] = field(default_factory=dict)

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        name: str,
        server: str,
        shuffler: str | None,
        concurrency: int,
        sender: Ed25519PrivateKey | None = None,
        issuer: str | None = None,
        secret: bytes | None = None,
    ) -> AsyncIterator[Self]:
        """Connect to the services until the context is left."""
        timeout = aiohttp.ClientTimeout(total=_WAIT + 60)
        connector = aiohttp.TCPConnector(limit=concurrency + 1)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as http:
            patience = Backoff()
            tokens = TokenSource(issuer.rstrip("/"), secret, http, patience) if issuer else None
            yield cls(name, server.rstrip("/"), shuffler, http, sender, tokens=tokens, patience=patience)

    async def counts(self) -> ServerCounts | None:
        """Return how the server counts the experiment's people; None if it does not say."""
        return await counts_of(self.http, self.server, self.name)

    async def send(self, header: Header, sealed: bytes, people: int, endpoint: str) -> tuple[int, dict[str, int]]:
        """Upload the reports of ``people`` until somebody answers; return how many were accepted, the others by reason.

        The bytes are the same each time, so that nothing counts twice. The endpoint is ``server`` or ``shuffler``.
        """
        base, address = self.server, f"{self.server}/reports"
        if endpoint == "shuffler":
            base = await self._met_shuffler()
            address = f"{base}/experiments/{self.name}/reports"
        token = await self.tokens.token(self.name, base) if self.tokens else None
        waiting = self._waiting.setdefault(endpoint, UploadWait(endpoint))
        with waiting.limited():
            body = encode_envelope(Envelope(header, sealed))
            return await self._decided(address, body, people, waiting, self._headers(body, people, token))

    async def _met_shuffler(self) -> str:
        """Return the shuffler's address, once it is known to take the experiment's reports."""
        if self.shuffler is None:
            raise TermsRefused("the experiment needs a shuffler", field="--shuffler", remedy="give its URL")
        shuffler = self.shuffler.rstrip("/")
        async with self._meeting:
            if not self._met:
                await meet(self.http, shuffler, self.name, self.patience)
            self._met = True
        return shuffler

    async def _decided(
        self, address: str, body: bytes, people: int, waiting: UploadWait, headers: dict[str, str]
    ) -> tuple[int, dict[str, int]]:
        counts = Counts(people)
        for attempt in range(TRIES):
            asked = None
            try:
                async with self.http.post(address, data=body, headers=headers) as response:
                    answer, asked = await response.read(), response.headers.get("Retry-After")
                    if slug_of(answer) == SenderRefused.slug:
                        raise _sender_refusal(answer)
                    counts.update(EndpointAnswer(response.status, answer), attempt > 0)
                    if counts.pending:
                        waiting.note(response.status, answer)
            except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError):
                raise no_url("--url") from None
            except (aiohttp.ClientError, TimeoutError):
                waiting.note_silence()
            if not counts.pending:
                self.sent += len(body)
                break
            await self.patience.pause(attempt, asked)
        return counts.accepted, counts.refused

    def _headers(self, body: bytes, people: int, token: bytes | None) -> dict[str, str]:
        headers = {"Content-Type": MEDIA_TYPE} | ({"Authorization": authorization(token)} if token else {})
        if self.sender is not None and people > 1:
            headers[UPLOAD.header] = UPLOAD.sign(body, self.sender)
        return headers

    async def fetch(self, old: bytes | None) -> bytes | None:
        """Fetch the publication; None if it still is that of digest ``old`` some seconds later, or nobody answers."""
        headers, query = {"Accept": MEDIA_TYPE}, ""
        if old is not None:
            headers["If-None-Match"], query = f'"{old.hex()}"', f"?wait={_WAIT}"
        try:
            url = f"{self.server}/experiments/{self.name}/policy{query}"
            async with self.http.get(url, headers=headers) as response:
                if response.status == 410:
                    raise Deleted("the experiment was deleted", field="NAME", remedy="privateer list")
                if response.status == 404:
                    raise NotFound("the server has no such experiment", field="NAME", remedy="privateer list")
                if response.status == Unavailable.status:
                    await self.patience.pause(0, response.headers.get("Retry-After"))
                self.is_paused = response.headers.get(ASKS_HEADER) == ASKS_NOBODY
                return await response.read() if response.status == 200 else None
        except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError):
            raise no_url("--url") from None
        except (aiohttp.ClientError, TimeoutError):
            if old is None:
                raise Unavailable("no answer", field="--url", remedy="is the server running?") from None
            return None
