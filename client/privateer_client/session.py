"""One person's part in one experiment: choose, then report."""

from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from privateer.decisions import Decisions, Plays
from privateer.errors import AlreadyReported, InputError
from privateer.wire.envelope import Envelope, encode_envelope
from privateer_client.account import Account, Payment, SealedReport
from privateer_client.answers import Outcome
from privateer_client.delivery import Pace, Steps, deliver
from privateer_client.features import context_vector
from privateer_client.participation import Participation

Reported = TypeVar("Reported")
"""What a report returns: an `Outcome`, or an awaitable of it."""


class _Choice(NamedTuple):
    """One choice: context (1, d), coins (1,) and what was decided. It never leaves the device."""

    contexts: NDArray[np.float64]
    coins: NDArray[np.uint32]
    decisions: Decisions

    def __repr__(self) -> str:
        return "_Choice(...)"


class Session(Generic[Reported]):
    """A session of one person; `Client.join` makes it.

    Sessions of an `AsyncClient` are the same, with ``await session.report(...)``.

    Attributes
    ----------
    asked
        Whether the round asks this person, who has not reported yet.
    refusal
        The reason of a refused report, or why one still waits.
    clipped
        Whether the last reward had to be clipped to its bounds.
    """

    def __init__(
        self,
        run: Callable[[Steps[Outcome]], Reported],
        participation: Participation,
        account: Account,
        identity: str,
        endpoint: str,
        pace: Pace,
    ) -> None:
        self._run, self._participation, self._pace = run, participation, pace
        self._account, self._identity, self._endpoint = account, identity, endpoint
        self._choice: _Choice | None = None
        self.asked = self._is_drawn() and not self._account.has_paid(self._identity)
        self.refusal: str | None = None
        self.clipped = False

    def _is_drawn(self) -> bool:
        """Find out whether the round asks this device, by the device's own number if the round draws numbers."""
        draw = self._participation.policy.draw
        if draw is None or not self._participation.asks:
            return self._participation.asks
        return draw.asks(self._account.number(self._identity, draw.seed, draw.people))

    def choose(self, context: Mapping[str, Any] = {}) -> Any:
        """Choose for this person; nothing is sent. The report is about the last choice before it.

        Parameters
        ----------
        context
            A number for each feature of the experiment.

        Returns
        -------
        The name of an arm, or how often each action is played: a mapping {row: times}.

        Raises
        ------
        InputError
            If a feature is missing, unknown, not a number or NaN.
        """
        self._choice = self._decided(context)
        return self._participation.policy.shown(self._participation.spec, self._choice.decisions)

    def _decided(self, context: Mapping[str, Any]) -> _Choice:
        # Every choice has coins of its own, so that no sequence of arms can be matched with the coins of a report.
        coins = self._participation.coins(1)
        known = context_vector(context, self._participation.spec.features)
        return _Choice(known, coins, self._participation.decide(known, coins))

    def report(self, reward: Any) -> Reported:
        """Randomize, pay for, seal and send this person's one report, if the round asks for it.

        Parameters
        ----------
        reward
            A number, or for actions the person's average reward of each: a mapping {row: average}. The device clips
            rewards to the experiment's bounds.

        Returns
        -------
        The `Outcome`.

        Raises
        ------
        InputError
            If nothing was chosen, or the reward is not what the experiment asks for.
        AlreadyReported, BudgetExceeded
            If the ledger does not allow the report; nothing was sent.
        """
        return self._run(self._reporting(reward))

    def report_past(self, context: Mapping[str, Any], arm: str, reward: Any) -> Reported:
        """Report, as a member of a source, on an arm that was played before; the arm stays secret.

        Parameters
        ----------
        context
            The person's features when the arm was played.
        arm
            Its name.
        reward
            What came of it.

        Raises
        ------
        InputError
            If the session is not one of a source, or as `choose` and `report`.
        """
        return self._run(self._reporting_past(context, arm, reward))

    def _reporting(self, reward: Any) -> Steps[Outcome]:
        followed = self._participation
        if followed.cohort:
            raise InputError("people of a source report on the past", field="cohort", remedy="call report_past")
        choice = self._made_choice()
        return (yield from self._sent(reward, lambda rewards: followed.reports(*choice, rewards)))

    def _made_choice(self) -> _Choice:
        """Return the choice that a report is about; what is played for everybody needs no call of `choose`."""
        choice = self._choice
        if choice is None and not self._participation.spec.features:
            common = self._decided({})
            choice = common if isinstance(common.decisions, Plays) else None
        if choice is None:
            raise InputError("choose an arm first", field="reward", remedy="call session.choose({...})")
        return choice

    def _reporting_past(self, context: Mapping[str, Any], arm: str, reward: Any) -> Steps[Outcome]:
        followed, spec = self._participation, self._participation.spec
        if not followed.cohort:
            raise InputError("only people of a source do", field="cohort", remedy="join with cohort='...'")
        if arm not in spec.options:
            raise InputError("not an arm of the experiment", field="arm", remedy="see the arms of its spec")
        played = np.array([spec.options.index(arm)])
        known = context_vector(context, spec.features)
        return (yield from self._sent(reward, lambda rewards: followed.recorded(known, played, rewards)))

    def _sent(self, reward: Any, seal: Callable[[NDArray[np.float64]], list[bytes]]) -> Steps[Outcome]:
        """Pay for a report, if one is asked for, and send it."""
        rewards, self.clipped = self._participation.policy.read(self._participation.spec, reward)
        if self._account.has_paid(self._identity):
            raise AlreadyReported(
                "this device has reported to the experiment", remedy="nothing to do: if it waits, the client sends it"
            )
        if not self.asked:
            return Outcome.NOT_ASKED
        body = self._paid(lambda: seal(rewards)[0])
        self.asked = False
        report = SealedReport(self._identity, self._endpoint, body)
        verdict = (yield from deliver([report], self._account, self._pace))[self._identity]
        self.refusal = verdict.reason
        return verdict.outcome

    def _paid(self, seal: Callable[[], bytes]) -> bytes:
        """Make the body to send, once; the ledger keeps it together with its payment."""
        terms, header = self._participation.terms, self._participation.header
        promise = (terms.epsilon, terms.delta, terms.local_epsilon)
        payment = Payment(self._identity, header.version, terms.model, *promise)
        return self._account.pay(payment, self._endpoint, lambda: encode_envelope(Envelope(header, seal())))
