"""The endpoint that takes reports."""

from starlette.requests import Request
from starlette.responses import Response

from privateer.errors import Malformed, PrivateerError
from privateer.serving.bodies import Body
from privateer.serving.budget import Budget
from privateer.serving.endpoint import UploadEndpoint, answer
from privateer.serving.problems import problem_response
from privateer.serving.tokens import TokenGate
from privateer.wire.envelope import Envelope, split_sealed
from privateer.wire.keys import TrustedKeys
from privateer.wire.upload import UploadAnswer, check_alone
from privateer_shuffler.metrics import Metrics
from privateer_shuffler.pool import Receipt
from privateer_shuffler.rounds import Rounds

_ACCEPTED = 202


class Endpoint(UploadEndpoint):
    """Holds the reports of envelopes, and answers once those accepted are durable.

    The answer is 202 if any report was accepted, otherwise the problem of the first refusal.
    """

    def __init__(
        self,
        rounds: Rounds,
        metrics: Metrics,
        budget: Budget,
        body_limit: int,
        senders: TrustedKeys,
        gate: TokenGate | None = None,
    ) -> None:
        super().__init__(budget, body_limit, senders, metrics.refuse, gate)
        self._rounds = rounds

    async def _counted(self, request: Request, envelope: Envelope, body: Body) -> Response:
        try:
            if envelope.header.experiment != request.path_params["name"]:
                raise Malformed("the reports are for another experiment than the address", remedy="correct the address")
            receipt = await self._hold(envelope, body)
        except PrivateerError as error:
            return self._refused(error)
        self._refuse(receipt.refused)
        if receipt.accepted == 0 and receipt.reason is not None:
            return problem_response(receipt.reason, accepted=0, refused=receipt.refused)
        return answer(UploadAnswer(receipt.accepted, receipt.refused), _ACCEPTED)

    async def _hold(self, envelope: Envelope, body: Body) -> Receipt:
        followed = await self._rounds.current(envelope.header)
        try:
            pool = self._rounds.admit(envelope.header, followed)
        except PrivateerError as error:
            reports = len(envelope.sealed) // followed.round.report_size
            return Receipt(0, {error.slug: max(1, reports)}, error)
        if not body.is_signed:
            check_alone(envelope, followed.round)
        return await pool.hold(split_sealed(envelope, followed.round), body.admission)
