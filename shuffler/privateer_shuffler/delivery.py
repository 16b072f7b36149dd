"""Delivery of complete batches to the server, and all other calls to it."""

import asyncio
import logging
import ssl
from collections.abc import Callable
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import httpx
import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_core import errors
from privateer_core.prepared_types import cache_decoder
from privateer_core.serving.logs import log_event
from privateer_core.wire.batch import BATCH, CLOCK_REMEDY, SIGNATURE_HEADER, BatchAnswer, is_clock_problem, sign_claim
from privateer_core.wire.identity import SIGNED_HEADER
from privateer_core.wire.problem import read_slug
from privateer_core.wire.publication import MEDIA_TYPE, Round, decode_publication
from privateer_shuffler.metrics import ShufflerMetrics
from privateer_shuffler.pool.pool import Pool
from privateer_shuffler.resources import Pin

_ANSWER_SECONDS: Final = 10.0
_LEARN_SECONDS: Final = 600.0
"""Timeout of a delivery: the server decrypts all reports of a batch, and learns from them, before it answers."""
_ANSWER_BYTES: Final = 64 << 10
_PUBLICATION_BYTES: Final = 64 << 20
_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 30.0
_CLOCKS_DIFFER: Final = "the clocks of the shuffler and the learning server differ by minutes"
_log = logging.getLogger(__name__)


class _Response(NamedTuple):
    status: int
    body: bytes
    signed: str

    @property
    def is_success(self) -> bool:
        return httpx.codes.is_success(self.status)


class _ServerKey(msgspec.Struct):
    key: str


class Upstream:
    """A client of the learning server, which is not trusted: size and time of its responses are limited.

    url: base address of the server.
    transport: transport to the server; tests pass a transport to a server in the same process.
    authorities: file (PEM) of the certificate authorities to trust instead of the public authorities.
    pin: verifies the server's signatures; None: no verification.
    """

    def __init__(
        self,
        url: str,
        transport: httpx.AsyncBaseTransport | None = None,
        authorities: Path | None = None,
        pin: Pin | None = None,
    ) -> None:
        self._pin = pin
        # One long poll per experiment stays open, so the number of connections has no limit. The environment's proxies
        # are not used: the shuffler connects to the server alone.
        self._client = httpx.AsyncClient(
            base_url=url,
            transport=transport,
            limits=httpx.Limits(max_connections=None),
            timeout=_ANSWER_SECONDS,
            trust_env=False,
            verify=_load_authorities(authorities) if authorities else _public_authorities(),
        )

    async def fetch_publication(self, name: str, known_digest: bytes | None = None, wait: int = 0) -> bytes | None:
        """Fetch an encoded publication; None if its digest is ``known_digest`` after ``wait`` seconds at the server."""
        headers = {"accept": MEDIA_TYPE}
        if known_digest is not None:
            headers["if-none-match"] = f'"{known_digest.hex()}"'
        seconds = wait + _ANSWER_SECONDS
        response = await self._send("GET", _page_path(name, "policy"), seconds, headers=headers, params={"wait": wait})
        if response.status == HTTPStatus.NOT_MODIFIED and known_digest is not None:
            return None
        if read_slug(response.body) == errors.Deleted.slug:
            raise errors.Deleted("the experiment was deleted", remedy="nothing to do: it asks nobody any more")
        if response.status == HTTPStatus.NOT_FOUND:
            raise errors.NotFound("the server has no such experiment", remedy="check the name")
        if response.status != HTTPStatus.OK:
            raise _unexpected_response_error(response)
        if self._pin:
            self._pin.check_signature(response.signed, response.body)
        return response.body

    async def claim(self, name: str, signature: str) -> None:
        """Claim an experiment, so that the server takes batches from no other shuffler; raise if it refuses."""
        headers = {SIGNATURE_HEADER: signature}
        response = await self._send("POST", _page_path(name, "shuffler"), _ANSWER_SECONDS, headers=headers)
        if read_slug(response.body) == errors.Conflict.slug:
            remedy = "report through that one, or have the server's operator release its claim"
            raise errors.Unavailable("another shuffler takes the reports of this experiment", remedy=remedy)
        if is_clock_problem(response.body):
            raise errors.Unavailable(_CLOCKS_DIFFER, remedy=CLOCK_REMEDY)
        if read_slug(response.body) == errors.BatchRefused.slug:
            remedy = "its operator must add this shuffler's public key file to PRIVATEER_SHUFFLER_KEYS"
            raise errors.Unavailable("the learning server does not trust this shuffler", remedy=remedy)
        if not response.is_success:
            raise _unexpected_response_error(response)

    async def deliver(self, name: str, batch: bytes, signature: str) -> BatchAnswer:
        """Deliver a signed batch of an experiment. A repeated delivery has the same answer."""
        headers = {"content-type": MEDIA_TYPE, SIGNATURE_HEADER: signature}
        response = await self._send("POST", "/batches", _LEARN_SECONDS, headers=headers, content=batch)
        slug = read_slug(response.body)
        if slug in (errors.RoundClosed.slug, errors.Deleted.slug):
            return BatchAnswer(0, {}, closed=True)
        if is_clock_problem(response.body):
            raise errors.BatchRefused(_CLOCKS_DIFFER, remedy=CLOCK_REMEDY)
        if slug in (errors.BatchRefused.slug, errors.Conflict.slug):
            raise errors.BatchRefused(
                "the learning server refuses the batch of this shuffler",
                remedy="if another one claimed the experiment, have the server's operator release it (DELETE "
                f"{_page_path(name, 'shuffler')}); else compare the two services' versions and this shuffler's key",
            )
        if not response.is_success:
            raise _unexpected_response_error(response)
        try:
            return msgspec.json.decode(response.body, type=cache_decoder(BatchAnswer))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _unexpected_response_error(response) from error

    async def check_key(self) -> None:
        """Fetch the server's key, and refuse a key other than the known keys."""
        response = await self._send("GET", "/log/key", _ANSWER_SECONDS)
        if not response.is_success:
            raise _unexpected_response_error(response)
        try:
            key = bytes.fromhex(msgspec.json.decode(response.body, type=cache_decoder(_ServerKey)).key)
        except (msgspec.DecodeError, ValueError) as error:
            raise _unexpected_response_error(response) from error
        if self._pin:
            self._pin.check_key(key)

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def _send(self, method: str, path: str, seconds: float, **request: Any) -> _Response:
        """Send a request, and return the response; raise `Unavailable` if there is none within the limits."""
        headers = {"accept-encoding": "identity", **request.pop("headers", {})}
        timeout = httpx.Timeout(_ANSWER_SECONDS, read=seconds)
        try:
            async with (
                asyncio.timeout(seconds),
                self._client.stream(method, path, headers=headers, timeout=timeout, **request) as response,
            ):
                signed = response.headers.get(SIGNED_HEADER, "")
                return _Response(response.status_code, await _read_body(response), signed)
        except (httpx.HTTPError, TimeoutError) as error:
            remedy = "start it, or check PRIVATEER_SERVER_URL"
            raise errors.Unavailable("the learning server does not answer", remedy=remedy) from error


async def _read_body(response: httpx.Response) -> bytes:
    # A few compressed bytes could decompress to gigabytes.
    if response.headers.get("content-encoding", "identity") != "identity":
        raise errors.Unavailable("the learning server's answer is compressed", remedy="try again later")
    max_bytes = _PUBLICATION_BYTES if response.status_code == HTTPStatus.OK else _ANSWER_BYTES
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > max_bytes:
            raise errors.Unavailable(
                f"the learning server's answer has more than {max_bytes} bytes", remedy="try again later"
            )
    return bytes(body)


def read_round(name: str, body: bytes) -> Round:
    """Return the round of an encoded publication, which must be for the experiment ``name``."""
    try:
        round_ = decode_publication(body).round
    except errors.Malformed as error:
        raise errors.Unavailable("the server's answer is not a publication", remedy="try again later") from error
    if round_.experiment != name:
        raise errors.Unavailable("the server answered for another experiment", remedy="try again later")
    return round_


def _page_path(name: str, page: str) -> str:
    return f"/experiments/{quote(name, safe='')}/{page}"


@cache
def _public_authorities() -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=False)


def _load_authorities(authorities: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=authorities)
    except OSError:  # a file without certificates is an ssl.SSLError, which is one, too
        detail = f"{authorities.name} holds no certificates (PEM)"
        raise errors.SpecError(detail, field="PRIVATEER_SERVER_CA", remedy="check the path") from None


def _unexpected_response_error(response: _Response) -> errors.Unavailable:
    reason = f"{response.status} {read_slug(response.body)}"
    return errors.Unavailable(f"the learning server answered {reason}", remedy="try again later")


class Forwarding:
    """The delivery of complete batches: claims experiments, signs batches, and repeats until the server has them.

    After a crash between delivery and erasure the same bytes are delivered again; the server knows their digest.
    """

    def __init__(self, upstream: Upstream, key: Ed25519PrivateKey, metrics: ShufflerMetrics) -> None:
        self._upstream, self._key, self._metrics = upstream, key, metrics

    async def claim(self, experiment: str) -> None:
        """Claim an experiment: two shufflers would each hold an incomplete batch."""
        await self._upstream.claim(experiment, sign_claim(experiment, self._key))

    async def deliver_when_complete(self, pool: Pool, is_past: Callable[[], bool]) -> bool:
        """Wait until the pool is complete, deliver its batch, and return whether its version takes no further batch.

        A batch that the server refuses from this shuffler is abandoned once ``is_past`` is true for its version.
        """
        if not await pool.claim_when_complete():
            return True
        answer = await self._deliver(await pool.read_batch(), pool.round.experiment, is_past)
        if answer is None:
            self._metrics.count_dropped(pool.round.experiment, pool.n_shown)
            _log.warning("gave up version %d of %s, which is over", pool.round.version, pool.round.experiment)
            return True
        self._metrics.count_delivery(pool.round.experiment, pool.n_held)
        event = "batch delivered" if answer.closed else "batch delivered, and too few reports opened: another follows"
        log_event(_log, event, experiment=pool.round.experiment, round=pool.round.version, reports=pool.n_held)
        return answer.closed

    async def _deliver(self, batch: bytes, experiment: str, is_past: Callable[[], bool]) -> BatchAnswer | None:
        """Deliver a batch until the server answers; None if the server refuses it and its version is over."""
        pause_seconds = _FIRST_PAUSE_SECONDS
        while True:
            signature = await asyncio.to_thread(BATCH.sign, batch, self._key)  # it expires after some minutes
            try:
                return await self._upstream.deliver(experiment, batch, signature)
            except errors.Unavailable as error:
                self._metrics.failures.inc()
                _log.warning("a batch of %s waits: %s", experiment, error.detail)
            except errors.BatchRefused as error:
                if is_past():
                    return None
                self._metrics.failures.inc()
                _log.error("a batch of %s waits: %s; %s", experiment, error.detail, error.remedy)
                pause_seconds = _LONGEST_PAUSE_SECONDS
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, _LONGEST_PAUSE_SECONDS)
