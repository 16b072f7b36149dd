"""The endpoint that takes reports."""

from typing import Final

from starlette.types import Scope

from privateer.errors import Malformed, PrivateerError
from privateer.serving.answer import Answer, with_json
from privateer.serving.bodies import Body
from privateer.serving.budget import Budget
from privateer.serving.endpoint import UploadEndpoint
from privateer.serving.problems import problem_answer
from privateer.serving.timing import Answered
from privateer.wire.envelope import Envelope, split_sealed
from privateer.wire.keys import TrustedKeys
from privateer.wire.upload import UploadAnswer, check_alone
from privateer_shuffler.metrics import Metrics
from privateer_shuffler.pool import Receipt
from privateer_shuffler.rounds import Rounds

EXPERIMENT: Final = "privateer.experiment"
"""The scope of a request has the experiment that its path names under this key."""
_ACCEPTED: Final = 202


class Endpoint(UploadEndpoint):
    """Holds the reports of envelopes, and answers once those accepted are durable.

    The answer is 202 if any report was accepted, otherwise the problem of the first refusal.
    """

    route = "/experiments/{name}/reports"

    def __init__(self, rounds: Rounds, metrics: Metrics, budget: Budget, body_limit: int, senders: TrustedKeys) -> None:
        super().__init__(budget, body_limit, senders, metrics.refuse)
        self._rounds, self._metrics = rounds, metrics

    def _tell(self, scope: Scope, answered: Answered) -> None:
        self._metrics.answer(scope[EXPERIMENT], answered)

    async def _counted(self, scope: Scope, envelope: Envelope, body: Body) -> Answer:
        try:
            if envelope.header.experiment != scope[EXPERIMENT]:
                raise Malformed("the reports are for another experiment than the address", remedy="correct the address")
            receipt = await self._hold(envelope, body.is_signed)
        except PrivateerError as error:
            return self._refused(error)
        self._refuse(receipt.refused)
        if receipt.accepted == 0 and receipt.reason is not None:
            return problem_answer(receipt.reason, accepted=0, refused=receipt.refused)
        return with_json(_ACCEPTED, UploadAnswer(receipt.accepted, receipt.refused))

    async def _hold(self, envelope: Envelope, is_signed: bool) -> Receipt:
        followed = await self._rounds.current(envelope.header)
        try:
            pool = self._rounds.admit(envelope.header, followed)
        except PrivateerError as error:
            reports = len(envelope.sealed) // followed.round.report_size
            return Receipt(0, {error.slug: max(1, reports)}, error)
        if not is_signed:
            check_alone(envelope, followed.round)
        return await pool.hold(split_sealed(envelope, followed.round))
