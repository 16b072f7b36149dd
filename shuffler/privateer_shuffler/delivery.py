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

from privateer_core.errors import (
    BatchRefused,
    Conflict,
    Deleted,
    Malformed,
    NotFound,
    RoundClosed,
    SpecError,
    Unavailable,
)
from privateer_core.prepared_types import prepared
from privateer_core.serving.logs import tell
from privateer_core.wire.batch import BATCH, SET_CLOCKS, SIGNATURE_HEADER, BatchAnswer, blames_clock, sign_claim
from privateer_core.wire.envelope import MEDIA_TYPE
from privateer_core.wire.identity import SIGNED_HEADER
from privateer_core.wire.problem import slug_of
from privateer_core.wire.publication import Round, decode_publication
from privateer_shuffler.metrics import ShufflerMetrics
from privateer_shuffler.pool.pool import Pool
from privateer_shuffler.resources import Pin

_ANSWER_SECONDS: Final = 10.0
_LEARN_SECONDS: Final = 600.0
"""A server may open every report of a batch, and learn from them, before it answers."""
_ANSWER_BYTES: Final = 64 << 10
_PUBLICATION_BYTES: Final = 64 << 20
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 30.0
_CLOCKS_DIFFER: Final = "the clocks of the shuffler and the learning server differ by minutes"
_log = logging.getLogger(__name__)


class _Answer(NamedTuple):
    status: int
    body: bytes
    signed: str

    @property
    def is_success(self) -> bool:
        return httpx.codes.is_success(self.status)


class _ServerKey(msgspec.Struct):
    key: str


class Upstream:
    """Calls the learning server. It is not trusted, so the size and time of its answers are limited.

    url: base address of the server.
    transport: how to reach it; tests pass a server in the same process.
    authorities: file (PEM) of the certificate authorities to trust instead of the public ones.
    pin: refuses what the server has not signed; None: anything is taken.
    """

    def __init__(
        self,
        url: str,
        transport: httpx.AsyncBaseTransport | None = None,
        authorities: Path | None = None,
        pin: Pin | None = None,
    ) -> None:
        self._pin = pin
        # One long poll an experiment stays open, so the number of connections has no limit. The environment's proxies
        # are not used: the shuffler talks to nobody but the server.
        limits = httpx.Limits(max_connections=None)
        self._client = httpx.AsyncClient(
            base_url=url,
            transport=transport,
            limits=limits,
            timeout=_ANSWER_SECONDS,
            trust_env=False,
            verify=_trusting(authorities) if authorities else _public_authorities(),
        )

    async def publication(self, name: str, known: bytes | None = None, wait: int = 0) -> bytes | None:
        """Fetch the encoded publication of an experiment's round, or None if it still is the one with digest ``known``.

        name: the experiment.
        known: digest of the publication at hand.
        wait: seconds that the server may wait for a newer one.
        """
        headers = {"accept": MEDIA_TYPE}
        if known is not None:
            headers["if-none-match"] = f'"{known.hex()}"'
        seconds = wait + _ANSWER_SECONDS
        answer = await self._send("GET", _page(name, "policy"), seconds, headers=headers, params={"wait": wait})
        if answer.status == HTTPStatus.NOT_MODIFIED and known is not None:
            return None
        if slug_of(answer.body) == Deleted.slug:
            raise Deleted("the experiment was deleted", remedy="nothing to do: it asks nobody any more")
        if answer.status == HTTPStatus.NOT_FOUND:
            raise NotFound("the server has no such experiment", remedy="check the name")
        if answer.status != HTTPStatus.OK:
            raise _unexpected(answer)
        if self._pin:
            self._pin.check(answer.signed, answer.body)
        return answer.body

    async def claim(self, name: str, signature: str) -> None:
        """Make the server take batches of an experiment from no other shuffler."""
        headers = {SIGNATURE_HEADER: signature}
        answer = await self._send("POST", _page(name, "shuffler"), _ANSWER_SECONDS, headers=headers)
        if slug_of(answer.body) == Conflict.slug:
            raise Unavailable(
                "another shuffler takes the reports of this experiment",
                remedy="report through that one, or have the server's operator release its claim",
            )
        if blames_clock(answer.body):
            raise Unavailable(_CLOCKS_DIFFER, remedy=SET_CLOCKS)
        if slug_of(answer.body) == BatchRefused.slug:
            raise Unavailable(
                "the learning server does not trust this shuffler",
                remedy="its operator must add this shuffler's public key file to PRIVATEER_SHUFFLER_KEYS",
            )
        if not answer.is_success:
            raise _unexpected(answer)

    async def deliver(self, name: str, batch: bytes, signature: str) -> BatchAnswer:
        """Deliver a signed batch of an experiment. The answer stays the same if it is delivered again."""
        headers = {"content-type": MEDIA_TYPE, SIGNATURE_HEADER: signature}
        answer = await self._send("POST", "/batches", _LEARN_SECONDS, headers=headers, content=batch)
        slug = slug_of(answer.body)
        if slug in (RoundClosed.slug, Deleted.slug):
            return BatchAnswer(0, {}, closed=True)
        if blames_clock(answer.body):
            raise BatchRefused(_CLOCKS_DIFFER, remedy=SET_CLOCKS)
        if slug in (BatchRefused.slug, Conflict.slug):
            raise BatchRefused(
                "the learning server refuses the batch of this shuffler",
                remedy="if another one claimed the experiment, have the server's operator release it (DELETE "
                f"{_page(name, 'shuffler')}); else compare the two services' versions and this shuffler's key",
            )
        if not answer.is_success:
            raise _unexpected(answer)
        try:
            return msgspec.json.decode(answer.body, type=prepared(BatchAnswer))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _unexpected(answer) from error

    async def check(self) -> None:
        """Ask the server for its key."""
        answer = await self._send("GET", "/log/key", _ANSWER_SECONDS)
        if not answer.is_success:
            raise _unexpected(answer)
        try:
            key = bytes.fromhex(msgspec.json.decode(answer.body, type=prepared(_ServerKey)).key)
        except (msgspec.DecodeError, ValueError) as error:
            raise _unexpected(answer) from error
        if self._pin:
            self._pin.check_key(key)

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def _send(self, method: str, path: str, seconds: float, **request: Any) -> _Answer:
        headers = {"accept-encoding": "identity", **request.pop("headers", {})}
        timeout = httpx.Timeout(_ANSWER_SECONDS, read=seconds)
        try:
            async with (
                asyncio.timeout(seconds),
                self._client.stream(method, path, headers=headers, timeout=timeout, **request) as answer,
            ):
                return _Answer(answer.status_code, await _body(answer), answer.headers.get(SIGNED_HEADER, ""))
        except (httpx.HTTPError, TimeoutError) as error:
            remedy = "start it, or check PRIVATEER_SERVER_URL"
            raise Unavailable("the learning server does not answer", remedy=remedy) from error


async def _body(answer: httpx.Response) -> bytes:
    """Read the body, up to its limit."""
    # A few compressed bytes could fill the memory.
    if answer.headers.get("content-encoding", "identity") != "identity":
        raise Unavailable("the learning server's answer is compressed", remedy="try again later")
    most = _PUBLICATION_BYTES if answer.status_code == HTTPStatus.OK else _ANSWER_BYTES
    body = bytearray()
    async for chunk in answer.aiter_bytes():
        body += chunk
        if len(body) > most:
            raise Unavailable(f"the learning server's answer has more than {most} bytes", remedy="try again later")
    return bytes(body)


def read_round(name: str, body: bytes) -> Round:
    """Return the round that a server has published for an experiment."""
    try:
        round_ = decode_publication(body).round
    except Malformed as error:
        raise Unavailable("the server's answer is not a publication", remedy="try again later") from error
    if round_.experiment != name:
        raise Unavailable("the server answered for another experiment", remedy="try again later")
    return round_


def _page(name: str, page: str) -> str:
    return f"/experiments/{quote(name, safe='')}/{page}"


@cache
def _public_authorities() -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=False)


def _trusting(authorities: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=authorities)
    except OSError:  # a file without certificates is an ssl.SSLError, which is one, too
        raise SpecError(
            f"{authorities.name} holds no certificates (PEM)", field="PRIVATEER_SERVER_CA", remedy="check the path"
        ) from None


def _unexpected(answer: _Answer) -> Unavailable:
    reason = f"{answer.status} {slug_of(answer.body)}"
    return Unavailable(f"the learning server answered {reason}", remedy="try again later")


class Forwarding:
    """Claims experiments, signs complete batches, and delivers each until the server has it.

    After a crash between delivery and forgetting the same bytes are delivered again; the server knows their digest.
    """

    def __init__(self, upstream: Upstream, key: Ed25519PrivateKey, metrics: ShufflerMetrics) -> None:
        self._upstream = upstream
        self._key = key
        self._metrics = metrics

    async def claim(self, experiment: str) -> None:
        """Make sure that no other shuffler takes reports for an experiment: two would each hold a part of a batch."""
        await self._upstream.claim(experiment, sign_claim(experiment, self._key))

    async def run(self, pool: Pool, is_past: Callable[[], bool]) -> bool:
        """Wait until the pool is complete, deliver its batch, and return whether its version takes no further one.

        A batch that the server refuses from this shuffler is given up once ``is_past`` says that its version is over.
        """
        if not await pool.complete():
            return True
        answer = await self._deliver(await pool.batch(), pool.round.experiment, is_past)
        if answer is None:
            self._metrics.drop(pool.round.experiment, pool.shown)
            _log.warning("gave up version %d of %s, which is over", pool.round.version, pool.round.experiment)
            return True
        self._metrics.deliver(pool.round.experiment, pool.held)
        event = "batch delivered" if answer.closed else "batch delivered, and too few reports opened: another follows"
        tell(_log, event, experiment=pool.round.experiment, round=pool.round.version, reports=pool.held)
        return answer.closed

    async def _deliver(self, batch: bytes, experiment: str, is_past: Callable[[], bool]) -> BatchAnswer | None:
        pause = _FIRST_PAUSE
        while True:
            signature = await asyncio.to_thread(BATCH.sign, batch, self._key)  # it expires after some minutes
            try:
                return await self._upstream.deliver(experiment, batch, signature)
            except Unavailable as error:
                self._metrics.failures.inc()
                _log.warning("a batch of %s waits: %s", experiment, error.detail)
            except BatchRefused as error:
                if is_past():
                    return None
                self._metrics.failures.inc()
                _log.error("a batch of %s waits: %s; %s", experiment, error.detail, error.remedy)
                pause = _LONGEST_PAUSE
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
