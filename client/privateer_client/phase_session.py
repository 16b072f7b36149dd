"""One person's part in one phase: whether it asks them, and their vector."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from privateer.errors import InputError
from privateer_client.answers import Outcome
from privateer_client.features import is_number
from privateer_client.phase import Phase
from privateer_client.sending import AsyncSending, Part, Sending


class _PhasePart(Part):
    """What sync and async sessions share."""

    _followed: Phase

    def __init__(self, *part: Any) -> None:
        super().__init__(*part)
        followed = self._followed
        self.asked = False
        """Whether the phase asks this person, who has not reported yet."""
        if followed.round.batch:
            people = followed.spec.experiment.people
            number = self._account.number(self._identity, followed.policy.seed, people)
            self.asked = followed.asks(number) and not self._account.has_paid(self._identity)

    @property
    def plays(self) -> dict[int, int]:
        """How often each action of the phase is played, by its row in the spec, from 0."""
        return self._followed.plays

    def _reported(self, averages: Mapping[int, float]) -> bytes | None:
        told = self._checked(averages)
        self._check_unpaid()
        if not self.asked:
            return None
        return self._paid(lambda: self._followed.reports(told[None, :])[0])

    def _checked(self, averages: Mapping[int, float]) -> Any:
        actions = self._followed.policy.support.tolist()
        if not isinstance(averages, Mapping) or set(averages) != set(actions):
            raise InputError(
                f"must have the {len(actions)} actions of the phase", field="averages", remedy="see session.plays"
            )
        if not all(is_number(averages[action]) and np.isfinite(averages[action]) for action in actions):
            raise InputError("must be finite numbers", field="averages", remedy="report what was observed")
        told = np.array([averages[action] for action in actions], np.float64)
        reward = self._followed.spec.reward
        self.clipped = bool(((told < reward.low) | (told > reward.high)).any())
        return told


class PhaseSession(_PhasePart, Sending):
    """A session over a blocking transport; made by `Client.join_phase`."""

    def report(self, averages: Mapping[int, float]) -> Outcome:
        """Clip, randomize, pay for, seal and send this person's one vector, if the phase asks them.

        Parameters
        ----------
        averages
            The person's average reward of each action of `plays`, by its row.

        Raises
        ------
        InputError
            If an action is missing or unknown, or an average is not a number.
        AlreadyReported, BudgetExceeded
            If the ledger does not allow it; nothing was sent.
        """
        return self._send(self._reported(averages))


class AsyncPhaseSession(_PhasePart, AsyncSending):
    """A session over an asyncio transport; made by `AsyncClient.join_phase`."""

    async def report(self, averages: Mapping[int, float]) -> Outcome:
        """As `PhaseSession.report`."""
        return await self._send(self._reported(averages))
