"""The endpoint for tokens: devices are attested and counted, and signatures are blind."""

import asyncio
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final, Protocol

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from privateer_core.clock import Clock
from privateer_core.errors import PrivateerError, SpecError, TokensExhausted, Unavailable
from privateer_core.serving.http.answer import wait_for_turn
from privateer_core.serving.http.bodies import Body, Budget, peer_address
from privateer_core.serving.http.problems import problem_response
from privateer_core.serving.settings import unset_error
from privateer_core.serving.thread_turns import THREAD_TURNS
from privateer_core.serving.write_health import WriteHealth
from privateer_core.wire.attestation import HEADER, verify_attestation
from privateer_core.wire.token import REQUEST_SIZE, RESPONSE_TYPE, parse_token_request
from privateer_issuer.metrics import IssuerMetrics
from privateer_issuer.signing_keys import KeyRing
from privateer_issuer.store import IssuerStore, TokenRequest

ENTRY_POINT_GROUP: Final = "privateer.attestations"
SECRETS_VARIABLE: Final = "PRIVATEER_ATTESTATION_SECRETS"
_SECRET_BYTES_MIN: Final = 32


class Attestation(Protocol):
    """A plug that identifies devices from identity and time, without access to the token."""

    async def device(self, text: str, experiment: str, now: float) -> str | None:
        """Return a constant identifier of the device; None: devices are not distinguished.

        text: the request's header ``privateer-attestation``; empty if there is none.
        experiment: name of the experiment.
        now: seconds since 1970.
        """
        ...


AttestationFactory = Callable[[Mapping[str, str]], Attestation]


class Open:
    """An attestation that accepts all devices and counts none, for tests, and behind a gateway that does both."""

    def __init__(self, _: Mapping[str, str]) -> None: ...

    async def device(self, text: str, experiment: str, now: float) -> str | None:  # noqa: ARG002
        """Return None, for any device."""
        return None


class Hmac:
    """An attestation by signatures of the application's backend (`privateer_core.wire.attestation.attest`)."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        if not environment.get(SECRETS_VARIABLE):
            raise unset_error(SECRETS_VARIABLE, "a file of secrets, hexadecimal, one a line")
        path = Path(environment[SECRETS_VARIABLE])
        try:
            self._secrets = [bytes.fromhex(line) for line in path.read_text("ascii").split()]
        except (OSError, ValueError):
            self._secrets = []
        if not self._secrets or min(map(len, self._secrets)) < _SECRET_BYTES_MIN:
            detail, remedy = f"{path.name} holds no secrets of 32 bytes or more", f"openssl rand -hex 32 > {path.name}"
            raise SpecError(detail, field=SECRETS_VARIABLE, remedy=remedy)

    async def device(self, text: str, experiment: str, now: float) -> str | None:
        """Return the pseudonym that the backend signed; None if the attestation is not valid."""
        return verify_attestation(text, experiment, self._secrets, now)


_BUILT_IN: Final[Mapping[str, AttestationFactory]] = {"open": Open, "hmac": Hmac}


def load_attestation(name: str, environment: Mapping[str, str]) -> Attestation:
    """Return the attestation plug with this name; refuse a name that is not installed."""
    if name in _BUILT_IN:
        return _BUILT_IN[name](environment)
    plugs = entry_points(group=ENTRY_POINT_GROUP)
    if name not in plugs.names:
        names = ", ".join([*_BUILT_IN, *sorted(plugs.names)])
        detail, remedy = f"there is no attestation {name!r}", f"choose from {names}"
        raise SpecError(detail, field="PRIVATEER_ATTESTATION_VERIFIER", remedy=remedy)
    plug: Attestation = plugs[name].load()(environment)
    return plug


_PENDING_MAX: Final = 4096


class DeviceQuotas:
    """The quota of tokens of each device: requests that arrive while the disk is busy are counted in one transaction.

    max_tokens: the quota: a device's tokens of an experiment.
    writes: records whether each transaction succeeded.
    """

    def __init__(self, store: IssuerStore, max_tokens: int, writes: WriteHealth) -> None:
        self._store, self._max_tokens, self._writes = store, max_tokens, writes
        self._disk = ThreadPoolExecutor(1, "disk")
        self._pending: list[tuple[TokenRequest, asyncio.Future[bool]]] = []
        self._count_task: asyncio.Task[None] | None = None

    async def take(self, token_request: TokenRequest) -> None:
        """Count a request, if it is new, and return when that is durable; `TokensExhausted` beyond the quota."""
        if len(self._pending) >= _PENDING_MAX:
            raise _unavailable()
        is_granted: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._pending.append((token_request, is_granted))
        if self._count_task is None:
            self._count_task = asyncio.create_task(self._count_pending())
        if not await is_granted:
            raise TokensExhausted("the device has had its share of tokens", remedy="use those that it has")

    async def _count_pending(self) -> None:
        """Count the pending requests in transactions, and answer those who wait, until none is pending."""
        try:
            while self._pending:
                (requests, futures), self._pending = zip(*self._pending, strict=True), []
                grants: Sequence[bool | None]
                try:
                    count = partial(self._store.count_requests, requests, self._max_tokens)
                    grants = await THREAD_TURNS.run(self._disk, count)
                    self._writes.record_commit()
                except sqlite3.Error as error:
                    self._writes.record_commit(error)
                    grants = [None] * len(futures)
                for future, grant in zip(futures, grants, strict=True):
                    if future.done():  # the device has hung up
                        continue
                    if grant is None:
                        future.set_exception(_unavailable())
                    else:
                        future.set_result(grant)
        finally:
            self._count_task = None

    async def close(self) -> None:
        """Wait for pending writes, and stop the writer."""
        if self._count_task is not None:
            await asyncio.wait({self._count_task})
        self._disk.shutdown()


def _unavailable() -> Unavailable:
    return Unavailable("the issuer cannot count tokens now", remedy="send the same request again later")


class TokenRequests:
    """Signs blinded tokens of devices.

    A repeated request gets the same response, and counts once: a device without a response repeats it.
    """

    def __init__(
        self,
        keys: KeyRing,
        quotas: DeviceQuotas,
        attestation: Attestation,
        metrics: IssuerMetrics,
        budget: Budget,
        clock: Clock,
    ) -> None:
        self._keys, self._quotas, self._attestation = keys, quotas, attestation
        self._metrics, self._budget, self._clock = metrics, budget, clock

    async def sign(self, request: Request) -> Response:
        """Respond to a request for a token."""
        name = request.path_params["name"]
        try:
            signed = await self._sign_request(name, request)
        except ClientDisconnect:
            return Response(status_code=400)  # the device has disconnected
        except PrivateerError as error:
            self._metrics.refuse(error.slug)
            return problem_response(error)
        self._metrics.issue(name)
        return Response(signed, media_type=RESPONSE_TYPE)

    async def _sign_request(self, name: str, request: Request) -> bytes:
        """Read a request, check the device, count it in its quota, and return the blind signature."""
        body = Body.from_length(request.headers.get("content-length"), REQUEST_SIZE, peer_address(request.scope))
        with self._budget.reserve(body.length, body.sender) as reservation:
            last_byte, blinded = parse_token_request(await reservation.read(request.stream()))
        signer = self._keys.signer(name, last_byte)
        device = await self._attestation.device(request.headers.get(HEADER, ""), name, self._clock.now())
        signer.check(blinded)  # an invalid message is not counted
        if device is not None:  # a device without remaining tokens costs no signature
            await self._quotas.take(TokenRequest(name, device, bytes([last_byte]) + blinded))
            await wait_for_turn(request.scope)  # many are counted together
        return signer.sign(blinded)
