"""The endpoints of batches in shares: openings, which the server answers, and closings, which it counts."""

from typing import Any, ClassVar, Final

from starlette.types import Scope
from typing_extensions import override

from privateer_core.errors import PrivateerError, RoundClosed
from privateer_core.serving.http.answer import HttpAnswer, make_answer
from privateer_core.serving.http.bodies import Body
from privateer_core.wire.batch import CLOSING, OPENING
from privateer_core.wire.publication import MEDIA_TYPE, Envelope
from privateer_core.wire.shares import Closing, decode_closing
from privateer_server.api.endpoints import BatchesEndpoint
from privateer_server.experiments.catalog import Experiments
from privateer_server.intake.leader import JoinedBatch, Leader

_OK: Final = 200


class OpeningsEndpoint(BatchesEndpoint):
    """``POST /openings``: the reports of a batch as their helper forwards them; the answer is the leader's checks."""

    route = "/openings"
    purpose: ClassVar = OPENING

    def __init__(self, experiments: Experiments, leader: Leader, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._experiments, self._leader = experiments, leader

    @override
    async def _count_reports(self, scope: Scope, envelope: Envelope, body: Body) -> HttpAnswer:
        """Answer an opening, the same bytes whenever it comes again."""
        try:
            await self._intake.claim_experiment(self._delivery(envelope, body))
            current = (await self._experiments.find(envelope.header.experiment)).current
            answer = await self._leader.open(current, envelope, body.digest or b"", body.sender)
        except PrivateerError as error:
            return self._refuse_body(error)
        return make_answer(_OK, answer, MEDIA_TYPE.encode())


class ClosingsEndpoint(OpeningsEndpoint):
    """``POST /closings``: the helper's decisions and its share of the sum, which is counted once."""

    route = "/closings"
    purpose: ClassVar = CLOSING

    @override
    def _decode(self, body: bytes | bytearray) -> Closing:
        return decode_closing(body)

    @override
    async def _count_reports(self, scope: Scope, envelope: Any, body: Body) -> HttpAnswer:
        closing: Closing = envelope
        try:
            joined = await self._join(closing)
        except PrivateerError as error:
            return self._refuse_body(error)
        return await self._deliver(self._delivery(Envelope(closing.header, b""), body, joined))

    async def _join(self, closing: Closing) -> JoinedBatch | None:
        """Join a batch; None if its round is over, so that it is answered as before, or refused."""
        current = (await self._experiments.find(closing.header.experiment)).current
        try:
            return await self._leader.join(current, closing)
        except RoundClosed:
            return None
