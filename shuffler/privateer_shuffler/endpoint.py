"""The endpoint that takes reports."""

import asyncio
from typing import Final

from starlette.types import Scope

from privateer_core.errors import Malformed, PrivateerError
from privateer_core.serving.body_budget import Budget
from privateer_core.serving.http.answer import HttpAnswer
from privateer_core.serving.http.report_endpoint import Body, UploadEndpoint
from privateer_core.serving.http.report_endpoint import UploadReceipt as Answerable
from privateer_core.serving.http.timing import Answered
from privateer_core.serving.token_gate import TokenGate
from privateer_core.wire.batch import check_alone
from privateer_core.wire.envelope import Envelope, split_sealed
from privateer_core.wire.keys import TrustedKeys
from privateer_shuffler.followed_rounds import FollowedRound, FollowedRounds
from privateer_shuffler.metrics import ShufflerMetrics
from privateer_shuffler.pool.uploads import PoolReceipt

EXPERIMENT: Final = "privateer.experiment"
"""The scope of a request has the experiment that its path names under this key."""


class PoolEndpoint(UploadEndpoint):
    """Holds the reports of envelopes, and answers once those accepted are durable.

    The answer is 202 if any report was accepted, otherwise the problem of the first refusal.
    """

    route = "/experiments/{name}/reports"

    def __init__(
        self,
        rounds: FollowedRounds,
        metrics: ShufflerMetrics,
        budget: Budget,
        body_limit: int,
        senders: TrustedKeys,
        gate: TokenGate | None = None,
    ) -> None:
        super().__init__(budget, body_limit, senders, metrics.refuse, gate)
        self._rounds, self._metrics = rounds, metrics

    def _tell(self, scope: Scope, answered: Answered) -> None:
        self._metrics.answer(scope[EXPERIMENT], answered)

    def _named(self, scope: Scope) -> str:
        return str(scope[EXPERIMENT])

    def _take(self, scope: Scope, envelope: Envelope, body: Body) -> asyncio.Future[PoolReceipt] | None:
        _check_address(scope, envelope)
        followed = self._rounds.known(envelope.header)
        return self._hold(envelope, followed, body) if followed else None

    async def _taken(self, scope: Scope, envelope: Envelope, body: Body) -> PoolReceipt:
        _check_address(scope, envelope)
        return await self._hold(envelope, await self._rounds.current(envelope.header), body)

    def _hold(self, envelope: Envelope, followed: FollowedRound, body: Body) -> asyncio.Future[PoolReceipt]:
        try:
            pool = self._rounds.admit(envelope.header, followed)
        except PrivateerError as error:
            reports = len(envelope.sealed) // followed.round.report_size
            return _known(PoolReceipt(0, {error.slug: max(1, reports)}, error))
        if not body.is_signed:
            check_alone(envelope, followed.round)
        return pool.hold(split_sealed(envelope, followed.round), body.admission)

    def _answer_of(self, receipt: Answerable) -> HttpAnswer:
        self._refuse(receipt.refused)
        return super()._answer_of(receipt)

    def _failed(self, error: PrivateerError) -> HttpAnswer:
        return self._refused(error)


def _check_address(scope: Scope, envelope: Envelope) -> None:
    if envelope.header.experiment != scope[EXPERIMENT]:
        raise Malformed("the reports are for another experiment than the address", remedy="correct the address")


def _known(receipt: PoolReceipt) -> asyncio.Future[PoolReceipt]:
    future: asyncio.Future[PoolReceipt] = asyncio.get_running_loop().create_future()
    future.set_result(receipt)
    return future
