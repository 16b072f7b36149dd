"""One person's part in one experiment: choose, then report."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray

from privateer.errors import AlreadyReported, InputError
from privateer.wire.envelope import MEDIA_TYPE, Envelope, encode_envelope
from privateer.wire.problem import slug_of
from privateer_client.features import context_vector, scaled_reward
from privateer_client.ledger import Account, Payment
from privateer_client.participation import Participation


class Outcome(StrEnum):
    """What became of a report.

    ``accepted``: it is durable. ``late``: the round closed between choosing and reporting. ``not-asked``: the
    experiment is over, or it is another cohort's turn. ``refused``: the door did not take it. ``unsent``: nobody
    answered; it may have arrived or not.
    """

    ACCEPTED = "accepted"
    LATE = "late"
    NOT_ASKED = "not-asked"
    REFUSED = "refused"
    UNSENT = "unsent"


class _Part:
    """What sync and async sessions share; does no input or output but the ledger's."""

    def __init__(self, participation: Participation, account: Account, identity: str, door: str) -> None:
        self._participation = participation
        self._account = account
        self._identity = identity
        self._door = door
        self._slots: NDArray[np.uint32] = participation.slots(1)
        self._context: NDArray[np.float64] | None = None
        self.refusal: str | None = None
        """Reason of a refused report."""
        self.clipped = False
        """Whether the reward had to be clipped to its bounds."""

    def choose(self, context: Mapping[str, Any]) -> str:
        """The arm for this person: its name.

        Raises
        ------
        InputError
            If a feature is missing, unknown, not a number or NaN.
        """
        participation = self._participation
        self._context = context_vector(context, participation.spec.context.features)
        return participation.spec.experiment.arms[int(participation.choose(self._context, self._slots)[0])]

    def _pay_and_seal(self, reward: float) -> bytes | None:
        """The body to send, paid for; None if no report is asked for."""
        if self._participation.cohort:
            raise InputError("people of a source report on the past", field="cohort", remedy="call report_past")
        if self._context is None:
            raise InputError("choose an arm first", field="reward", remedy="call session.choose({...})")
        return self._paid(self._context, None, reward)

    def _pay_and_seal_past(self, context: Mapping[str, Any], arm: str, reward: float) -> bytes | None:
        """As `_pay_and_seal`, for an arm that was played before."""
        spec = self._participation.spec
        if not self._participation.cohort:
            raise InputError("only people of a source do", field="cohort", remedy="join with cohort='...'")
        if arm not in spec.experiment.arms:
            raise InputError("not an arm of the experiment", field="arm", remedy="see the arms of its spec")
        played = np.array([spec.experiment.arms.index(arm)])
        return self._paid(context_vector(context, spec.context.features), played, reward)

    def _paid(self, context: NDArray[np.float64], played: NDArray[np.int64] | None, reward: float) -> bytes | None:
        participation = self._participation
        scaled, self.clipped = scaled_reward(reward, participation.spec.reward)
        if self._account.has_paid(self._identity):
            raise AlreadyReported("this device has reported to the experiment", remedy="nothing to do")
        if not participation.asks:
            return None
        terms = participation.terms
        promise = (terms.epsilon, terms.delta, terms.local_epsilon)
        self._account.pay(Payment(self._identity, participation.round.version, terms.model, *promise))
        rewards = np.array([scaled])
        if played is None:
            (sealed,) = participation.reports(context, self._slots, rewards)
        else:
            (sealed,) = participation.recorded(context, self._slots, played, rewards)
        return encode_envelope(Envelope(participation.header, sealed))

    def _outcome(self, response: httpx.Response, retried: bool) -> Outcome:
        if response.is_success:
            return Outcome.ACCEPTED
        self.refusal = slug_of(response.content)
        if retried and self.refusal == "duplicate-report":
            return Outcome.ACCEPTED
        return Outcome.LATE if self.refusal == "round-closed" else Outcome.REFUSED


_HEADERS = {"Content-Type": MEDIA_TYPE}


def _is_final(response: httpx.Response) -> bool:
    return not response.is_server_error


class Session(_Part):
    """A session over a blocking transport; made by `Client.join`."""

    def __init__(self, http: httpx.Client, retries: int, *part: Any) -> None:
        super().__init__(*part)
        self._http, self._retries = http, retries

    def report(self, reward: float) -> Outcome:
        """Randomize, pay for, seal and send this person's one report.

        Parameters
        ----------
        reward
            Clipped to the experiment's bounds on the device.

        Raises
        ------
        InputError
            If no arm was chosen, or the reward is not a number.
        AlreadyReported, BudgetExceeded
            If the ledger does not allow it; nothing was sent.
        """
        return self._send(self._pay_and_seal(reward))

    def report_past(self, context: Mapping[str, Any], arm: str, reward: float) -> Outcome:
        """As `report`, for a member of a source: on an arm that was played before, which stays secret.

        Parameters
        ----------
        context
            Of the person when the arm was played.
        arm
            Its name.
        reward
            What came of it.

        Raises
        ------
        InputError
            If the session is not one of a source, or as `choose` and `report`.
        """
        return self._send(self._pay_and_seal_past(context, arm, reward))

    def _send(self, body: bytes | None) -> Outcome:
        if body is None:
            return Outcome.NOT_ASKED
        for attempt in range(self._retries + 1):
            try:
                response = self._http.post(self._door, content=body, headers=_HEADERS)
            except httpx.TransportError:
                continue
            if _is_final(response):
                return self._outcome(response, attempt > 0)
        return Outcome.UNSENT


class AsyncSession(_Part):
    """A session over an asyncio transport; made by `AsyncClient.join`."""

    def __init__(self, http: httpx.AsyncClient, retries: int, *part: Any) -> None:
        super().__init__(*part)
        self._http, self._retries = http, retries

    async def report(self, reward: float) -> Outcome:
        """As `Session.report`."""
        return await self._send(self._pay_and_seal(reward))

    async def report_past(self, context: Mapping[str, Any], arm: str, reward: float) -> Outcome:
        """As `Session.report_past`."""
        return await self._send(self._pay_and_seal_past(context, arm, reward))

    async def _send(self, body: bytes | None) -> Outcome:
        if body is None:
            return Outcome.NOT_ASKED
        for attempt in range(self._retries + 1):
            try:
                response = await self._http.post(self._door, content=body, headers=_HEADERS)
            except httpx.TransportError:
                continue
            if _is_final(response):
                return self._outcome(response, attempt > 0)
        return Outcome.UNSENT
