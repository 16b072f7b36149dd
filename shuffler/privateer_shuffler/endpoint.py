"""The endpoint that takes reports."""

import asyncio
from typing import Final

from starlette.types import Scope

from privateer_core.errors import Malformed, PrivateerError
from privateer_core.serving.body_budget import Budget
from privateer_core.serving.http.answer import HttpAnswer
from privateer_core.serving.http.report_endpoint import Body, UploadEndpoint, UploadReceipt
from privateer_core.serving.http.timing import AnswerTiming
from privateer_core.serving.token_gate import TokenGate
from privateer_core.wire.batch import check_single_report
from privateer_core.wire.keys import TrustedKeys
from privateer_core.wire.publication import Envelope, split_sealed
from privateer_shuffler.followed_rounds import FollowedRounds, TrackedRound
from privateer_shuffler.metrics import ShufflerMetrics
from privateer_shuffler.pool.uploads import PoolReceipt

EXPERIMENT: Final = "privateer.experiment"  # key of a request's scope for the experiment of its path


class PoolEndpoint(UploadEndpoint):
    """The endpoint that holds the reports of envelopes, and answers once accepted reports are durable.

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
        super().__init__(budget, body_limit, senders, metrics.count_refusals, gate)
        self._rounds, self._metrics = rounds, metrics

    def _record_timing(self, scope: Scope, timing: AnswerTiming) -> None:
        self._metrics.count_upload(scope[EXPERIMENT], timing)

    def _experiment_name(self, scope: Scope) -> str:
        return str(scope[EXPERIMENT])

    def _submit(self, scope: Scope, envelope: Envelope, body: Body) -> asyncio.Future[PoolReceipt] | None:
        _check_address(scope, envelope)
        followed = self._rounds.get_cached_round(envelope.header)
        return self._hold(envelope, followed, body) if followed else None

    async def _submit_and_wait(self, scope: Scope, envelope: Envelope, body: Body) -> PoolReceipt:
        _check_address(scope, envelope)
        return await self._hold(envelope, await self._rounds.get_current_round(envelope.header), body)

    def _hold(self, envelope: Envelope, followed: TrackedRound, body: Body) -> asyncio.Future[PoolReceipt]:
        """Put the reports of an envelope into their pool, or return a receipt with the refusal of all of them."""
        try:
            pool = self._rounds.admit(envelope.header, followed)
        except PrivateerError as error:
            reports = len(envelope.sealed) // followed.round.report_size
            receipt: asyncio.Future[PoolReceipt] = asyncio.get_running_loop().create_future()
            receipt.set_result(PoolReceipt(0, {error.slug: max(1, reports)}, error))
            return receipt
        if not body.is_signed:
            check_single_report(envelope, followed.round)
        return pool.hold(split_sealed(envelope, followed.round), body.admission)

    def _receipt_answer(self, receipt: UploadReceipt) -> HttpAnswer:
        self._count_refusals(receipt.refused)
        return super()._receipt_answer(receipt)

    def _failure_answer(self, error: PrivateerError) -> HttpAnswer:
        return self._refuse_body(error)


def _check_address(scope: Scope, envelope: Envelope) -> None:
    if envelope.header.experiment != scope[EXPERIMENT]:
        raise Malformed("the reports are for another experiment than the address", remedy="correct the address")
