"""The page where devices get tokens: who asks is attested and counted, and what is signed is blind."""

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from privateer_core.clock import Clock
from privateer_core.errors import PrivateerError
from privateer_core.serving.bodies import Body
from privateer_core.serving.budget import Budget
from privateer_core.serving.peer import peer
from privateer_core.serving.problems import problem_response
from privateer_core.wire.attestation import HEADER
from privateer_core.wire.token import REQUEST_SIZE, RESPONSE_TYPE, read_request
from privateer_issuer.attestation import Attestation
from privateer_issuer.keys import Keys
from privateer_issuer.metrics import Metrics
from privateer_issuer.shares import Shares
from privateer_issuer.store import Taking


class Issuing:
    """Signs a device's blinded token.

    The same request gets the same answer, and counts once: a device whose answer was lost asks again.
    """

    def __init__(
        self, keys: Keys, shares: Shares, attestation: Attestation, metrics: Metrics, budget: Budget, clock: Clock
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
