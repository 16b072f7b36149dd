"""One person's part in one experiment with arms: choose, then report."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privateer.errors import InputError
from privateer_client.answers import Outcome
from privateer_client.features import context_vector, scaled_reward
from privateer_client.participation import Participation
from privateer_client.sending import AsyncSending, Part, Sending


class _Choice(NamedTuple):
    """One choice: context (1, d), coins (1,) and arm (1,). It never leaves the device."""

    contexts: NDArray[np.float64]
    slots: NDArray[np.uint32]
    arms: NDArray[np.int64]

    def __repr__(self) -> str:
        return "_Choice(...)"


class _ArmsPart(Part):
    """What sync and async sessions share."""

    _followed: Participation

    def __init__(self, *part: Any) -> None:
        super().__init__(*part)
        self._choice: _Choice | None = None

    def choose(self, context: Mapping[str, Any]) -> str:
        """The arm for this person: its name.

        Every call draws coins of its own, so that no sequence of arms can be matched with the coins of a report. The
        report is about the last choice before it.

        Raises
        ------
        InputError
            If a feature is missing, unknown, not a number or NaN.
        """
        followed = self._followed
        slots = followed.slots(1)
        known = context_vector(context, followed.spec.context.features)
        self._choice = _Choice(known, slots, followed.choose(known, slots))
        return followed.spec.experiment.arms[int(self._choice.arms[0])]

    def _pay_and_seal(self, reward: float) -> bytes | None:
        """The body to send, paid for; None if no report is asked for."""
        if self._followed.cohort:
            raise InputError("people of a source report on the past", field="cohort", remedy="call report_past")
        if self._choice is None:
            raise InputError("choose an arm first", field="reward", remedy="call session.choose({...})")
        choice = self._choice
        return self._reported(reward, lambda rewards: self._followed.reports(*choice, rewards)[0])

    def _pay_and_seal_past(self, context: Mapping[str, Any], arm: str, reward: float) -> bytes | None:
        """As `_pay_and_seal`, for an arm that was played before."""
        spec = self._followed.spec
        if not self._followed.cohort:
            raise InputError("only people of a source do", field="cohort", remedy="join with cohort='...'")
        if arm not in spec.experiment.arms:
            raise InputError("not an arm of the experiment", field="arm", remedy="see the arms of its spec")
        played = np.array([spec.experiment.arms.index(arm)])
        known = context_vector(context, spec.context.features)
        return self._reported(reward, lambda rewards: self._followed.recorded(known, played, rewards)[0])

    def _reported(self, reward: float, seal: Callable[[NDArray[np.float64]], bytes]) -> bytes | None:
        scaled, self.clipped = scaled_reward(reward, self._followed.spec.reward)
        self._check_unpaid()
        if not self._followed.asks:
            return None
        return self._paid(lambda: seal(np.array([scaled])))


class Session(_ArmsPart, Sending):
    """A session over a blocking transport; made by `Client.join`."""

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


class AsyncSession(_ArmsPart, AsyncSending):
    """A session over an asyncio transport; made by `AsyncClient.join`."""

    async def report(self, reward: float) -> Outcome:
        """As `Session.report`."""
        return await self._send(self._pay_and_seal(reward))

    async def report_past(self, context: Mapping[str, Any], arm: str, reward: float) -> Outcome:
        """As `Session.report_past`."""
        return await self._send(self._pay_and_seal_past(context, arm, reward))
