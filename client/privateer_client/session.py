"""One person's part in one experiment: choose, then report."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from privateer_client.delivery import Pace, Steps, deliver
from privateer_client.inputs import (
    UnfitValues,
    adjustment_of,
    clipped_features,
    context_vector,
    features_of,
    read_outcome,
)
from privateer_client.ledger.account_protocol import Account
from privateer_client.ledger.choice import KeptArm, KeptChoice, period_of
from privateer_client.participation import SealedReport
from privateer_client.person_choice import PersonChoice
from privateer_client.publications import Publications, Published
from privateer_client.states import Action, ChoiceEvent, ChoiceState, Outcome
from privateer_core.errors import AlreadyReported, Deleted, InputError, Unavailable

_REWARD: Final = "reward"
Reported = TypeVar("Reported")
"""What a report returns: an `Outcome`, or an awaitable of it."""


class Session(Generic[Reported]):
    """A session of one person; `Client.join` makes it.

    Sessions of an `AsyncClient` are the same, with ``await session.report(...)``.

    Attributes
    ----------
    offline
        Whether the policy is one that the device had kept, since the server did not answer.
    refusal
        The reason of a refused report, or why one still waits.
    clipped
        Whether the last reward had to be clipped to its bounds.
    clipped_features
        Names of features whose values the last decision had to clip to their bounds. They stay on the device.
    """

    def __init__(
        self,
        run: Callable[[Steps[Outcome]], Reported],
        published: Published,
        publications: Publications,
        account: Account,
        pace: Pace,
    ) -> None:
        self._run, self._published, self._publications = run, published, publications
        self._account, self._pace = account, pace
        self._identity, self._participation = publications.address.identity, published.participation
        self._choice = PersonChoice(publications, account, pace.clock)
        with account.transaction():
            # What the person was shown last: a report is about it, if it is a choice.
            self._shown: KeptChoice | KeptArm | None = self._choice.look_up(self._participation)
        self._unfit = UnfitValues()
        self.offline = published.sent is None
        self.refusal: str | None = None
        self.clipped = False
        self.clipped_features: tuple[str, ...] = ()

    def choose(self, context: Mapping[str, Any] = {}, *, fresh: bool = False, sticky: bool = True) -> Any:
        """Choose for this person; nothing is sent. The report is about the last choice before it.

        The choice is kept, encrypted, if the person is asked for a report. A kept choice stands, also after a restart:
        ``choose`` returns it whatever the context, until its report is made or due, its period is over, or no report on
        it would count any more. The arm stays after its report, and where nobody is asked, until it is retired, the
        period is over, the person is asked for another report, or the experiment is over.

        Parameters
        ----------
        context
            A value for each feature of the experiment, and each number that adjusts the reward.
        fresh
            Whether to decide anew, in the place of the choice that is kept. Whoever sees the arms then sees one more.
        sticky
            False: decide anew each time once the report is made, or if nobody is asked.

        Returns
        -------
        The name of an arm; how often each action is played, a mapping {row: times}; or a point as a list of
        coordinates, or two in a mapping {name: point}.

        Raises
        ------
        InputError
            If a feature is not given, or unknown, or the choice cannot be kept.
        LogForked, HeadWentBack
            If the device holds evidence that the server has contradicted itself.

        Warns
        -----
        UnfitValueWarning
            If the spec has no place for a value, which then counts as missing.
        """
        return self.choose_in_time(lambda: True, context, fresh=fresh, sticky=sticky)

    def choose_in_time(
        self, is_awaited: Callable[[], bool], context: Mapping[str, Any], *, fresh: bool = False, sticky: bool = True
    ) -> Any:
        """Choose as `choose` does; keep nothing, and raise `Unavailable`, if nobody awaits the arm by then."""
        self._publications.check_server()
        before = self._shown, self._choice.state
        try:
            with self._account.transaction():
                arm = self._chosen(context, fresh=fresh, sticky=sticky)
                if not is_awaited():
                    raise Unavailable("nobody waits for the arm any more", remedy="call it again")
        except BaseException:
            self._shown, self._choice.state = before
            raise
        return arm

    def save(self) -> None:
        """Make sure that the choice is kept, as `choose` does: `Client.resume` finds it after a restart.

        Where nobody is asked for a report on it there is nothing to keep: people of a source report on the past.

        Raises
        ------
        InputError
            If nothing was chosen, or the ledger cannot keep it.
        """
        with self._account.transaction():
            if self._shown is None:
                self._shown = self._common()

    def forget(self) -> None:
        """Erase the choice, here and in the ledger: no report is made of it, and the next call of `choose` is free."""
        with self._account.transaction():
            self._choice.forget(self._participation)
            self._shown = None

    def report(self, reward: Any) -> Reported:
        """Tell what came of the choice.

        The device makes sure which round is open, verifies its terms, pays for this person's one report, randomizes,
        seals and sends it. Where the experiment waits for outcomes it only keeps this one, in the place of the one
        before: the report is made by the first `Client.join` or `Client.resend` after the window, and nothing changes
        it then.

        Parameters
        ----------
        reward
            A number, or yes or no; for actions the person's average reward of each, a mapping {row: average}; for two
            points their rewards, a mapping {name: reward}. The device clips rewards to the experiment's bounds. None
            where nothing is known.

        Returns
        -------
        The `Outcome`.

        Raises
        ------
        InputError
            If nothing was chosen.
        TermsRefused
            If the open round's terms miss what was promised when the person chose, or what this device accepts.
        BudgetExceeded
            If the ledger does not allow the report; nothing was sent.
        LogForked, HeadWentBack
            If the device holds evidence that the server has contradicted itself; nothing was sent.

        Warns
        -----
        UnfitValueWarning
            If the reward is not what the experiment asks for: the report is made as if there had been no outcome.
        """
        return self._run(self.reporting(reward))

    def reporting(self, reward: Any) -> Steps[Outcome]:
        """Return what `report` does, in steps."""
        return self._answered(self._reporting(reward))

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
        Unavailable
            If the server does not tell which round is open; nothing was paid or sent.

        Warns
        -----
        UnfitValueWarning
            If the experiment has no such arm: the report then says nothing. Or as `choose` and `report`.
        """
        return self._run(self._answered(self._reporting_past(context, arm, reward)))

    @property
    def features(self) -> tuple[str, ...]:
        """Names of what `choose` asks for: features, and numbers from before that adjust the reward."""
        return self._participation.spec.asked_of_people

    @property
    def answers(self) -> tuple[str, ...]:
        """Names of the answers of yes or no that `report` takes beside the ``reward``; usually there are none."""
        nothing = self._participation.spec.without_outcome(None)
        named = nothing if isinstance(nothing, Mapping) and _REWARD in nothing else {}
        return tuple(name for name in named if name != _REWARD)

    @property
    def state(self) -> ChoiceState:
        """How far the person's choice is, as this session knows: docs/sdk/states.md has the picture."""
        return self._choice.state

    @property
    def asked(self) -> bool:
        """Whether this person is asked for a report: a round asks them, or the device keeps their choice."""
        return self._choice.may(Action.REPORT)

    def _chosen(self, context: Mapping[str, Any], *, fresh: bool, sticky: bool) -> Any:
        """Return the arm to show, within a transaction of the ledger."""
        choice, followed = self._choice, self._participation
        kept = choice.standing(followed, fresh=fresh)
        if kept is not None and choice.may(Action.SHOW):
            self._shown = kept
            return kept.shown
        arm = choice.arm(followed) if choice.may(Action.STAY) and sticky and not fresh else None
        if arm is not None:
            choice.keep(None, kept, followed)
            self._shown = kept or arm
            return arm.shown
        self._shown = decided = self._decided(context, fresh=fresh)
        choice.keep(decided, kept, followed)
        choice.keep_arm(decided, followed)
        return decided.shown

    def _decided(self, context: Mapping[str, Any], *, fresh: bool = False) -> KeptChoice:
        coins = self._choice.coins(self._participation, fresh=fresh)
        spec, given = self._participation.spec, features_of(context, self._participation.spec)
        known = context_vector(given, spec.features, spec.reward.adjust, self._unfit.tell)
        self.clipped_features = clipped_features(given, spec.features)
        offset, numbers = adjustment_of(context, spec, self._unfit.tell)
        return KeptChoice.made(self._participation, known, coins, self._pace.clock.now(), offset, numbers)

    def _common(self) -> KeptChoice:
        """Keep what is played for everybody, which needs no call of `choose`."""
        choice, followed = None if self._participation.spec.features else self._decided({}), self._participation
        if choice is None or not choice.is_common:
            raise InputError("choose an arm first", field="reward", remedy="call session.choose({...})")
        kept = self._choice.standing(followed, fresh=False)
        if kept is None:
            self._choice.keep(choice, None, followed)
        return kept or choice

    def _reporting(self, reward: Any) -> Steps[Outcome]:
        if self._participation.cohort:
            raise InputError("people of a source report on the past", field="cohort", remedy="call report_past")
        with self._account.transaction():
            self._publications.check_server()
            self._check_unpaid(self._shown)
            if self._shown is None and not self.asked:
                return self._choice.outcome
            shown = self._shown = self._shown or self._common()
            rewards = self._read(shown.shown, reward, shown.offset)
            if not self.asked or not isinstance(shown, KeptChoice):
                return self._choice.outcome
            self._choice.check(shown, self._participation)
            told = self._choice.tell(shown, rewards, self._participation)
        if told is None or told.window:  # nothing is sent now: that would say when the outcome came
            return Outcome.NOT_ASKED if told is None else self._choice.outcome
        return (yield from self._sent(told))

    def _sent(self, told: KeptChoice) -> Steps[Outcome]:
        """Report to the open round, or wait if nobody says which one that is."""
        try:
            opened = (yield from self._open()).participation
        except Unavailable:
            return (yield from self._delivered(lambda: None, ChoiceEvent.DECLINED, told))
        return (yield from self._delivered(lambda: self._choice.make(told, opened), ChoiceEvent.EXPIRED, told))

    def _reporting_past(self, context: Mapping[str, Any], arm: str, reward: Any) -> Steps[Outcome]:
        spec = self._participation.spec
        if not self._participation.cohort:
            raise InputError("only people of a source do", field="cohort", remedy="join with cohort='...'")
        self._publications.check_server()
        known = context_vector(context, spec.features, spec.reward.adjust, self._unfit.tell)
        rewards = self._read(None, reward)
        self._check_unpaid(None)
        if not self.asked:
            return self._choice.outcome
        self._choice.move(ChoiceEvent.OUTCOME)
        opened = yield from self._open()
        past, followed = (known, arm, rewards), self._participation
        recall = partial(self._choice.recall, past, followed, opened.participation)
        return (yield from self._delivered(recall, ChoiceEvent.EXPIRED))

    def _delivered(
        self, make: Callable[[], SealedReport | None], unmade: ChoiceEvent, about: KeptChoice | None = None
    ) -> Steps[Outcome]:
        """Make the report and send it, unless no round takes it, or what it is about was erased meanwhile."""
        with self._account.transaction():
            self._check_unpaid(about)
            if about is not None and not self._choice.keeps(about):
                self._choice.look_up(self._participation)
                return Outcome.NOT_ASKED
            report = make()
            if report is None:
                return self._choice.end(unmade, self._participation)
            tied = {report: self._account.tokens.tie(report)} if self._account.tokens else {}
        self._choice.end(ChoiceEvent.TAKEN, self._participation)
        self._shown = None
        verdict = (yield from deliver([report], self._account, self._pace, tied))[report]
        self.refusal = verdict.reason
        return verdict.outcome

    def _check_unpaid(self, about: KeptChoice | KeptArm | None) -> None:
        """Refuse a second report."""
        paid = self._account.payment(self._identity)
        now = period_of(self._participation.spec, self._pace.clock.now())
        if paid is not None and not paid.allows(about.period if isinstance(about, KeptChoice) else now):
            raise AlreadyReported(
                "this device has reported to the experiment", remedy="nothing to do: if it waits, the client sends it"
            )

    def _read(self, shown: Any, reward: Any, offset: float = 0.0) -> NDArray[np.float64]:
        followed = self._participation
        policy, spec, tell = followed.policy, followed.spec, self._unfit.tell
        rewards, self.clipped = read_outcome(policy, spec, shown, reward, offset, tell)
        return rewards

    def _open(self) -> Steps[Published]:
        self._published = yield from self._publications.opened(self._published)
        self.offline = False
        return self._published

    def _answered(self, steps: Steps[Outcome]) -> Steps[Outcome]:
        """Answer a second report, or one to an experiment that is gone, which are no errors of the page."""
        try:
            return (yield from steps)
        except AlreadyReported:
            self._choice.state = ChoiceState.DELIVERED
        except Deleted:
            self._account.forget(self._identity)
            return self._choice.end(ChoiceEvent.DELETED, self._participation)
        return self._choice.outcome
