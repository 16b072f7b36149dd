"""The page where devices get tokens: who asks is attested and counted, and what is signed is blind."""

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from privateer_core.clock import Clock
from privateer_core.errors import PrivateerError, TokensExhausted, Unavailable
from privateer_core.serving.body_budget import Budget
from privateer_core.serving.connections import peer
from privateer_core.serving.http.problems import problem_response
from privateer_core.serving.http.report_endpoint import Body
from privateer_core.serving.write_health import WriteHealth
from privateer_core.wire.attestation import HEADER
from privateer_core.wire.token import REQUEST_SIZE, RESPONSE_TYPE, read_request
from privateer_issuer.attestation import Attestation
from privateer_issuer.metrics import IssuerMetrics
from privateer_issuer.signing_keys import IssuerKeys
from privateer_issuer.store import IssuerStore, Taking

_WAITING_MAX: Final = 4096


class _Waiting(NamedTuple):
    taking: Taking
    granted: asyncio.Future[bool]


class TokenShares:
    """Counts requests. Those that come while the disk is busy share the next transaction.

    most: tokens of an experiment that a device may have.
    writes: takes note of whether the disk took a group.
    """

    def __init__(self, store: IssuerStore, most: int, writes: WriteHealth) -> None:
        self._store, self._most, self._writes = store, most, writes
        self._disk = ThreadPoolExecutor(1, "disk")
        self._waiting: list[_Waiting] = []
        self._writer: asyncio.Task[None] | None = None

    async def take(self, taking: Taking) -> None:
        """Count a request, unless it is one of before; return when that is durable."""
        if len(self._waiting) >= _WAITING_MAX:
            raise _unavailable()
        granted: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(taking, granted))
        if self._writer is None:
            self._writer = asyncio.create_task(self._write())
        if not await granted:
            raise TokensExhausted("the device has had its share of tokens", remedy="use those that it has")

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                group, self._waiting = self._waiting, []
                takings = [one.taking for one in group]
                try:
                    granted = await loop.run_in_executor(self._disk, self._store.take, takings, self._most)
                except sqlite3.Error as error:
                    self._writes.note(error)
                    self._answer(group, None)
                else:
                    self._writes.note()
                    self._answer(group, granted)
        finally:
            self._writer = None

    def _answer(self, group: list[_Waiting], granted: list[bool] | None) -> None:
        for index, one in enumerate(group):
            if one.granted.done():  # the device has hung up
                continue
            if granted is None:
                one.granted.set_exception(_unavailable())
            else:
                one.granted.set_result(granted[index])

    async def close(self) -> None:
        """Finish writing."""
        if self._writer is not None:
            await asyncio.wait({self._writer})
        self._disk.shutdown()


def _unavailable() -> Unavailable:
    return Unavailable("the issuer cannot count tokens now", remedy="send the same request again later")


class TokenRequests:
    """Signs a device's blinded token.

    The same request gets the same answer, and counts once: a device whose answer was lost asks again.
    """

    def __init__(
        self,
        keys: IssuerKeys,
        shares: TokenShares,
        attestation: Attestation,
        metrics: IssuerMetrics,
        budget: Budget,
        clock: Clock,
    ) -> None:
        self._keys, self._shares, self._attestation = keys, shares, attestation
        self._metrics, self._budget, self._clock = metrics, budget, clock

    async def sign(self, request: Request) -> Response:
        """Answer one request."""
        name = request.path_params["name"]
        try:
            signed = await self._signed(name, request)
        except ClientDisconnect:
            return Response(status_code=400)  # nobody reads it
        except PrivateerError as error:
            self._metrics.refuse(error.slug)
            return problem_response(error)
        self._metrics.issue(name)
        return Response(signed, media_type=RESPONSE_TYPE)

    async def _signed(self, name: str, request: Request) -> bytes:
        body = Body.unsigned(request.headers.get("content-length"), REQUEST_SIZE, peer(request.scope))
        with self._budget.reserve(body.length, body.sender) as room:
            last_byte, blinded = read_request(await room.read(request.stream()))
        signer = self._keys.signer(name, last_byte)
        device = await self._attestation.device(request.headers.get(HEADER, ""), name, self._clock.now())
        signer.check(blinded)  # what cannot be signed uses up nothing
        if device is not None:  # and who has none left costs no signature
            await self._shares.take(Taking(name, device, bytes([last_byte]) + blinded))
        return signer.sign(blinded)
