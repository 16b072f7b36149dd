"""HTTP requests of simulated participants: upload tokens, uploads of reports, and policies."""

import asyncio
import math
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, Self

import aiohttp
import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_client.delivery import ACCEPTED_STATUS, EndpointAnswer, judge_answer, refusal_status
from privateer_client.states import ReportStatus
from privateer_core.errors import Deleted, Malformed, NotFound, SenderRefused, TermsRefused, Unavailable, printable
from privateer_core.wire.attestation import HEADER, attest
from privateer_core.wire.batch import CLOCK_REMEDY, UPLOAD, is_clock_problem
from privateer_core.wire.problem import read_slug
from privateer_core.wire.publication import ASKS_HEADER, ASKS_NOBODY, MEDIA_TYPE, Envelope, Header, encode_envelope
from privateer_core.wire.share_keys import sealing_public_key
from privateer_core.wire.token import REQUEST_TYPE, Challenge, PendingToken, authorization, origin_name
from privateer_core.wire.token_keys import Directory, TokenKey
from privateer_lab.load import endpoints

_FIELD: Final = "--issuer"
_KEY_LIFETIME_SECONDS: Final = 60.0
"""Seconds for which fetched keys are used."""
_ATTESTATION_SECONDS: Final = 600
_POLL_SECONDS: Final = 0.2
_HTTP_OK: Final = 200


@dataclass
class TokenSource:
    """A client of an issuer of upload tokens."""

    issuer: str  # the address
    # the secret that backend and issuer share, for attestations; None: no attestation is needed
    secret: bytes | None
    http: aiohttp.ClientSession
    backoff: endpoints.Backoff = field(default_factory=endpoints.Backoff)  # waits while the issuer is busy
    _keys: dict[str, tuple[float, TokenKey | None]] = field(default_factory=dict)

    async def fetch_token(self, name: str, base: str) -> bytes:
        """Fetch a token for an experiment at the endpoint of a service."""
        key = await self._find_key(name, base)
        pending = PendingToken.draw(Challenge(origin_name(self.issuer), origin_name(base), name), key)
        headers = {"Content-Type": REQUEST_TYPE}
        if self.secret is not None:
            headers[HEADER] = attest(self.secret, name, secrets.token_hex(16), int(time.time()) + _ATTESTATION_SECONDS)
        status, body = await self._request_token(f"{self.issuer}/experiments/{name}/tokens", pending.request, headers)
        if status != _HTTP_OK:
            remedy = "see the experiments and the attestation that the issuer was started with"
            raise TermsRefused(f"the issuer signs no token ({printable(read_slug(body))})", field=_FIELD, remedy=remedy)
        try:
            return pending.finish(key, body)
        except Malformed as error:
            raise TermsRefused(error.detail, field=_FIELD, remedy=error.remedy) from None

    async def _request_token(self, url: str, request: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        """Return the status and the body of the issuer's response, with retries while it is busy."""
        for attempt in range(endpoints.MAX_ATTEMPTS):
            try:
                async with self.http.post(url, data=request, headers=headers) as response:
                    status, body, delay = response.status, await response.read(), response.headers.get("Retry-After")
            except (aiohttp.ClientError, TimeoutError):
                raise Unavailable("no answer", field=_FIELD, remedy="is the issuer running?") from None
            if status != Unavailable.status:
                break
            await self.backoff.pause(attempt, delay)
        return status, body

    async def _find_key(self, name: str, base: str) -> TokenKey:
        """Return the newest key that an endpoint accepts, after retries while it starts; `Unavailable` if none."""
        fetched_at, key = self._keys.get(base, (-math.inf, None))
        if time.monotonic() - fetched_at > _KEY_LIFETIME_SECONDS:
            deadline = time.monotonic() + endpoints.STARTUP_SECONDS
            while (fetched := await self._fetch_key(name, base)) is None and key is None:
                if time.monotonic() >= deadline:
                    remedy = "set its PRIVATEER_TOKEN_KEYS"
                    raise Unavailable("the endpoint shows no token keys", field=_FIELD, remedy=remedy)
                await asyncio.sleep(_POLL_SECONDS)
            key = fetched or key
            self._keys[base] = time.monotonic(), key
        assert key is not None, "it was found, or known before"
        return key

    async def _fetch_key(self, name: str, base: str) -> TokenKey | None:
        """Fetch the first valid token key of the experiment; None if none is there."""
        try:
            async with self.http.get(f"{base}/experiments/{name}/token-keys") as response:
                body = await response.read()
            keys = [key for key in Directory.decode(body).keys(name) if key.is_valid(time.time())]
        except (aiohttp.ClientError, TimeoutError, Malformed):
            return None
        return keys[0] if keys else None


_PENDING: Final = "pending"
_LONG_POLL_SECONDS: Final = 10
"""Seconds of a long poll for the next policy."""


def _sender_refused_error(problem: bytes) -> SenderRefused:
    """Make the error that services refuse several participants' reports at once."""
    if is_clock_problem(problem):
        return SenderRefused("this machine's clock and the service's differ by minutes", remedy=CLOCK_REMEDY)
    remedy = "name another with --sender-key, or send people one by one with --batch 1"
    return SenderRefused("the services do not trust this key", field="--sender-key", remedy=remedy)


class _Verdicts(msgspec.Struct):
    accepted: int = 0
    refused: dict[str, int] = {}


@dataclass
class UploadCounts:
    """Counts of an upload's accepted reports and refusals by reason, over retries of the same bytes."""

    n_participants: int  # all people of the upload
    # of the last response; before the first response all are ``pending``
    accepted: int = 0
    refused: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.refused = {_PENDING: self.n_participants}

    @property
    def is_pending(self) -> bool:
        """Whether a retry of the same bytes may be accepted."""
        return any(refusal_status(reason) is ReportStatus.PENDING for reason in self.refused)

    def update(self, response: EndpointAnswer, is_repeat: bool) -> None:
        """Count a response; in a repeat, duplicates are reports that were accepted before."""
        accepted, refused = self._count_verdicts(response)
        if is_repeat:
            accepted += refused.pop("duplicate-report", 0)
        # A round that closed in between also refuses reports that it had accepted.
        n_accepted, self.refused = self.accepted - accepted, {}
        for reason, count in refused.items():
            n_removed = min(count, max(0, n_accepted))
            n_accepted -= n_removed
            if count > n_removed:
                self.refused[reason] = count - n_removed
        self.accepted = max(self.accepted, accepted)

    def _count_verdicts(self, response: EndpointAnswer) -> tuple[int, dict[str, int]]:
        """Read how many an answer accepts and refuses by reason; what is not answered is pending."""
        pending, verdict = {_PENDING: self.n_participants}, judge_answer(response)
        if verdict.status is ReportStatus.PENDING:
            return 0, pending
        try:
            verdicts = msgspec.json.decode(response.body, type=_Verdicts)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            verdicts = _Verdicts(0, pending)
        if response.status == ACCEPTED_STATUS:
            return verdicts.accepted, dict(verdicts.refused)
        return 0, dict(verdicts.refused) or {verdict.reason or "duplicate-report": self.n_participants}


@dataclass
class Wire:
    """The connection to an experiment's services."""

    # the experiment, and the addresses of its services; a shuffler only if its reports are shuffled
    name: str
    server: str
    shuffler: str | None
    http: aiohttp.ClientSession
    sender: Ed25519PrivateKey | None = None  # the key that signs uploads of several people's reports, if there is one
    bytes_sent: int = 0  # bytes of the bodies that were answered
    is_paused: bool = False  # whether nobody was asked when the last publication was fetched
    tokens: TokenSource | None = None  # where people get upload tokens, if their reports need some
    backoff: endpoints.Backoff = field(default_factory=endpoints.Backoff)  # waits before somebody asks again
    _is_shuffler_ready: bool = False
    _shuffler_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _upload_waits: dict[str, endpoints.UploadWait] = field(default_factory=dict)

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
        """Connect to the services within the context."""
        timeout = aiohttp.ClientTimeout(total=_LONG_POLL_SECONDS + 60)
        connector = aiohttp.TCPConnector(limit=concurrency + 1)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as http:
            patience = endpoints.Backoff()
            tokens = TokenSource(issuer.rstrip("/"), secret, http, patience) if issuer else None
            yield cls(name, server.rstrip("/"), shuffler, http, sender, tokens=tokens, backoff=patience)

    async def counts(self) -> endpoints.ServerCounts | None:
        """Fetch the server's counts of the experiment's participants; None without a valid response."""
        return await endpoints.fetch_counts(self.http, self.server, self.name)

    async def send(self, header: Header, sealed: bytes, size: int, endpoint: str) -> tuple[int, dict[str, int]]:
        """Upload to ``server`` or ``shuffler`` until decided, the same bytes again; return acceptances and refusals."""
        base, address = self.server, f"{self.server}/reports"
        if endpoint == "shuffler":
            base = await self._wait_for_ready_shuffler()
            address = f"{base}/experiments/{self.name}/reports"
        token = await self.tokens.fetch_token(self.name, base) if self.tokens else None
        wait = self._upload_waits.setdefault(endpoint, endpoints.UploadWait(endpoint))
        with wait.warn_if_slow():
            body = encode_envelope(Envelope(header, sealed))
            return await self._post(address, body, size, wait, self._build_headers(body, size, token))

    async def _wait_for_ready_shuffler(self) -> str:
        """Wait until the shuffler takes the experiment's reports; return its address, or raise `TermsRefused`."""
        if self.shuffler is None:
            raise TermsRefused("the experiment needs a shuffler", field="--shuffler", remedy="give its URL")
        shuffler = self.shuffler.rstrip("/")
        async with self._shuffler_lock:
            if not self._is_shuffler_ready:
                await endpoints.wait_for_shuffler(self.http, shuffler, self.name, self.backoff)
            self._is_shuffler_ready = True
        return shuffler

    async def fetch_helper_key(self) -> bytes:
        """Fetch the key to which reports in shares are sealed for the shuffler, once it takes them."""
        shuffler = await self._wait_for_ready_shuffler()
        async with self.http.get(f"{shuffler}/keys") as response:
            answer = msgspec.json.decode(await response.read(), type=dict[str, str])
        return sealing_public_key(bytes.fromhex(answer["public_key"]))

    async def _post(
        self, address: str, body: bytes, n_participants: int, wait: endpoints.UploadWait, headers: dict[str, str]
    ) -> tuple[int, dict[str, int]]:
        """Upload a body, again while no verdict comes; return how many were accepted and refused, by reason."""
        counts = UploadCounts(n_participants)
        for attempt in range(endpoints.MAX_ATTEMPTS):
            retry_after = None
            try:
                async with self.http.post(address, data=body, headers=headers) as response:
                    content, retry_after = await response.read(), response.headers.get("Retry-After")
                    if read_slug(content) == SenderRefused.slug:
                        raise _sender_refused_error(content)
                    counts.update(EndpointAnswer(response.status, content), attempt > 0)
                    if counts.is_pending:
                        wait.note_response(response.status, content)
            except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError):
                raise endpoints.invalid_url_error("--url") from None
            except (aiohttp.ClientError, TimeoutError):
                wait.note_silence()
            if not counts.is_pending:
                self.bytes_sent += len(body)
                break
            await self.backoff.pause(attempt, retry_after)
        return counts.accepted, counts.refused

    def _build_headers(self, body: bytes, n_participants: int, token: bytes | None) -> dict[str, str]:
        """Build the upload's headers: its token, and the sender's signature of several people's reports."""
        headers = {"Content-Type": MEDIA_TYPE} | ({"Authorization": authorization(token)} if token else {})
        if self.sender is not None and n_participants > 1:
            headers[UPLOAD.header] = UPLOAD.sign(body, self.sender)
        return headers

    async def fetch_publication(self, old: bytes | None) -> bytes | None:
        """Fetch the publication; None if it still has the digest ``old`` some seconds later, or without a response."""
        headers, query = {"Accept": MEDIA_TYPE}, ""
        if old is not None:
            headers["If-None-Match"], query = f'"{old.hex()}"', f"?wait={_LONG_POLL_SECONDS}"
        try:
            url = f"{self.server}/experiments/{self.name}/policy{query}"
            async with self.http.get(url, headers=headers) as response:
                if response.status == 410:
                    raise Deleted("the experiment was deleted", field="NAME", remedy="privateer list")
                if response.status == 404:
                    raise NotFound("the server has no such experiment", field="NAME", remedy="privateer list")
                if response.status == Unavailable.status:
                    await self.backoff.pause(0, response.headers.get("Retry-After"))
                self.is_paused = response.headers.get(ASKS_HEADER) == ASKS_NOBODY
                return await response.read() if response.status == 200 else None
        except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError):
            raise endpoints.invalid_url_error("--url") from None
        except (aiohttp.ClientError, TimeoutError):
            if old is None:
                raise Unavailable("no answer", field="--url", remedy="is the server running?") from None
            return None
