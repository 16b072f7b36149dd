"""One person's part in one experiment: choose, then report."""

from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from privateer_client.delivery import Outcome, Pace, Steps, Tied, deliver
from privateer_client.inputs import (
    UnfitValues,
    adjustment_of,
    clipped_features,
    context_vector,
    features_of,
    read_outcome,
)
from privateer_client.ledger.account_protocol import Account
from privateer_client.ledger.arm import KeptArm
from privateer_client.ledger.choice import KeptChoice, period_of
from privateer_client.participation import SealedReport
from privateer_client.publications import Publications, Published
from privateer_client.reports import Reports
from privateer_client.shown_arm import ShownArm
from privateer_core.errors import AlreadyReported, Deleted, InputError, Unavailable

_REWARD: Final = "reward"
Reported = TypeVar("Reported")
"""What a report returns: an `Outcome`, or an awaitable of it."""


class Session(Generic[Reported]):
    """A session of one person; `Client.join` makes it.

    Sessions of an `AsyncClient` are the same, with ``await session.report(...)``.

    Attributes
    ----------
    asked
        Whether this person is asked for a report: the round asks them, or the device keeps their choice. False once
        the report is made.
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
        reports: Reports,
        account: Account,
        pace: Pace,
    ) -> None:
        self._run, self._published, self._publications, self._reports = run, published, publications, reports
        self._account, self._pace = account, pace
        self._identity, self._participation = publications.address.identity, published.participation
        self._shown = ShownArm(account, self._identity)
        with account.transaction():
            self._choice = self._account.choice(self._identity)
            self.asked = self._is_open and (self._choice is not None or self._is_asked)
        self._arm: KeptArm | None = None  # what was shown instead of a choice
        self._unfit = UnfitValues()
        self.offline = published.sent is None
        self.refusal: str | None = None
        self.clipped = False
        self.clipped_features: tuple[str, ...] = ()

    def choose(
        self,
        context: Mapping[str, Any] = {},
        *,
        fresh: bool = False,
        sticky: bool = True,
        is_awaited: Callable[[], bool] = lambda: True,
    ) -> Any:
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
        is_awaited
            Asked last, before the choice is durable: whether somebody will show it. If not, nothing is kept.

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
        Unavailable
            If nobody waits for the arm any more.

        Warns
        -----
        UnfitValueWarning
            If the spec has no place for a value, which then counts as missing.
        """
        self._publications.check_server()
        before = self._choice, self._arm, self.asked
        with self._account.transaction():
            shown = self._chosen(context, fresh=fresh, sticky=sticky)
            if not is_awaited():
                self._choice, self._arm, self.asked = before
                raise Unavailable("nobody waits for the arm any more", remedy="call it again")
        return shown

    def _chosen(self, context: Mapping[str, Any], *, fresh: bool, sticky: bool) -> Any:
        """Return the arm to show, within a transaction of the ledger."""
        kept = self._account.choice(self._identity)
        if kept is not None and not fresh and self._stands(kept):
            self._choice, self._arm = kept, None
            return kept.shown
        # A choice that was kept before says nothing of whether this one is asked about.
        self.asked = self.asked and self._is_asked
        waits = kept is not None and self._waits(kept)
        is_new = fresh or not sticky or (self._reports_choices and not waits)
        self._arm = None if is_new else self._shown.standing(self._participation, self._now)
        if self._arm is not None:
            self._choice = self._account.change(self._identity, self._only_if_it_waits)
            return self._arm.shown
        choice = self._decided(context, fresh=fresh)
        if self._reports_choices or (kept is not None and not self._participation.cohort):
            choice = self._kept(choice, fresh=fresh)
        self._choice = choice
        self._shown.show(choice, self._participation)
        return choice.shown

    def save(self) -> None:
        """Make sure that the choice is kept, as `choose` does: `Client.resume` finds it after a restart.

        Where nobody is asked for a report on it there is nothing to keep: people of a source report on the past.

        Raises
        ------
        InputError
            If nothing was chosen, or the ledger cannot keep it.
        """
        if self._choice is None and self._arm is not None:
            return
        choice = self._made_choice()
        if self._reports_choices:
            self._choice = self._kept(choice)

    def forget(self) -> None:
        """Erase the choice, here and in the ledger: no report is made of it, and the next call of `choose` is free."""
        self._account.forget(self._identity)
        self._choice = self._arm = None
        self.asked = self.asked and self._is_asked

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
        return _answered(self._reporting(reward))

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
        return self._run(_answered(self._reporting_past(context, arm, reward)))

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
    def _reports_choices(self) -> bool:
        """Whether this person is asked for a report on what they choose."""
        return self.asked and not self._participation.cohort

    @property
    def _is_open(self) -> bool:
        """Whether the device may make a report of the choice, or of one that is made now."""
        paid = self._account.payment(self._identity)
        period = self._choice.period if self._choice else period_of(self._participation.spec, self._now)
        return paid is None or paid.allows(period)

    @property
    def _is_asked(self) -> bool:
        reports, followed = self._reports, self._participation
        is_for_later = followed.spec.experiment.conversion_window > 0
        return (
            reports.asks(followed)
            and (is_for_later or reports.is_new(followed))
            and reports.is_the_time(followed, self._now)
        )

    @property
    def _now(self) -> float:
        return self._pace.clock.now()

    def _only_if_it_waits(self, kept: KeptChoice | None) -> KeptChoice | None:
        return kept if kept is not None and self._waits(kept) else None

    def _decided(self, context: Mapping[str, Any], *, fresh: bool = False) -> KeptChoice:
        coins = self._shown.coins(self._participation, fresh=fresh)
        spec, given = self._participation.spec, features_of(context, self._participation.spec)
        known = context_vector(given, spec.features, spec.reward.adjust, self._unfit.tell)
        self.clipped_features = clipped_features(given, spec.features)
        offset, numbers = adjustment_of(context, spec, self._unfit.tell)
        return KeptChoice.made(self._participation, known, coins, self._now, offset, numbers)

    def _stands(self, kept: KeptChoice) -> bool:
        """Whether a choice that is kept is still the person's: see `Reports.stands`."""
        return self._reports.stands(kept, self._participation, self._now)

    def _waits(self, kept: KeptChoice) -> bool:
        """Whether a choice that is kept waits for its report: see `Reports.waits`."""
        return self._reports.waits(kept, self._participation, self._now)

    def _kept(self, choice: KeptChoice, *, fresh: bool = False) -> KeptChoice:
        """Keep a choice unless another one stands; return the one that does, or this one if that is due."""

        def keep(kept: KeptChoice | None) -> KeptChoice | None:
            if kept is not None and (self._waits(kept) or (not fresh and self._stands(kept))):
                return kept
            return choice if self._reports_choices else None

        standing = self._account.change(self._identity, keep)
        return choice if standing is None or standing.is_due(self._now) else standing

    def _made_choice(self) -> KeptChoice:
        """Return the choice that a report is about; what is played for everybody needs no call of `choose`."""
        choice = self._choice
        if choice is None and not self._participation.spec.features:
            common = self._decided({})
            choice = common if common.is_common else None
        if choice is None:
            raise InputError("choose an arm first", field="reward", remedy="call session.choose({...})")
        return choice

    def _reporting(self, reward: Any) -> Steps[Outcome]:
        if self._participation.cohort:
            raise InputError("people of a source report on the past", field="cohort", remedy="call report_past")
        with self._account.transaction():
            self._publications.check_server()
            self._check_unpaid()
            if self._choice is None and self._arm is not None:
                self._read(self._arm.shown, reward)
                return Outcome.NOT_ASKED
            choice = self._made_choice()
            rewards = self._read(choice.shown, reward, choice.offset)
            if not self.asked:
                return Outcome.NOT_ASKED
            self._reports.check(choice, self._participation)
            updated = self._with_outcome(choice, rewards)
        if (updated or choice).window:  # nothing is sent now: that would say when the outcome came
            return Outcome.NOT_ASKED if updated is None else Outcome.PENDING
        return (yield from self._sent(updated or choice.with_outcome(rewards, self._now)))

    def _with_outcome(self, choice: KeptChoice, rewards: NDArray[np.float64]) -> KeptChoice | None:
        """Keep an outcome with the choice that is kept, or is to be; return that, None if there is none."""
        now = self._now
        waits = bool(choice.window) and not choice.is_due(now)

        def counts(standing: KeptChoice | None) -> bool:
            # Another session may have kept a fresh choice: this outcome says nothing of that one.
            return standing is not None and (self._waits(standing) or standing.is_same(choice))

        def tell(kept: KeptChoice | None) -> KeptChoice | None:
            standing = kept or (choice if waits else None)
            return standing.with_outcome(rewards, now) if standing is not None and counts(standing) else kept

        updated = self._account.change(self._identity, tell)
        return updated if counts(updated) else None

    def _sent(self, updated: KeptChoice) -> Steps[Outcome]:
        """Report to the open round, or keep the outcome if nobody says which one that is."""
        try:
            opened = yield from self._open()
        except Unavailable:
            # An outcome that came before waits already.
            self._account.change(self._identity, lambda kept: kept if kept and self._waits(kept) else updated)
            return Outcome.PENDING
        except Deleted:
            self._account.forget(self._identity)
            return Outcome.NOT_ASKED
        with self._account.transaction():
            report = self._reports.on(updated, opened.participation, self._now)
            if report is None:
                self._account.change(self._identity, lambda _: None)
                return Outcome.NOT_ASKED
            tied = self._tied(report)
        return (yield from self._delivered(report, tied))

    def _reporting_past(self, context: Mapping[str, Any], arm: str, reward: Any) -> Steps[Outcome]:
        spec = self._participation.spec
        if not self._participation.cohort:
            raise InputError("only people of a source do", field="cohort", remedy="join with cohort='...'")
        self._publications.check_server()
        known = context_vector(context, spec.features, spec.reward.adjust, self._unfit.tell)
        rewards = self._read(None, reward)
        self._check_unpaid()
        if not self.asked:
            return Outcome.NOT_ASKED
        try:
            opened = yield from self._open()
        except Deleted:
            return Outcome.NOT_ASKED
        with self._account.transaction():
            report = self._reports.recalled(known, arm, rewards, self._participation, opened.participation)
            if report is None:
                return Outcome.NOT_ASKED
            tied = self._tied(report)
        return (yield from self._delivered(report, tied))

    def _check_unpaid(self) -> None:
        if not self._is_open:
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

    def _tied(self, report: SealedReport) -> Tied:
        return {report: self._account.tokens.tie(report)} if self._account.tokens else {}

    def _delivered(self, report: SealedReport, tied: Tied) -> Steps[Outcome]:
        self.asked, self._choice = False, None
        verdict = (yield from deliver([report], self._account, self._pace, tied))[report]
        self.refusal = verdict.reason
        return verdict.outcome


def _answered(steps: Steps[Outcome]) -> Steps[Outcome]:
    """Answer a second report, which is no error of the page."""
    try:
        return (yield from steps)
    except AlreadyReported:
        return Outcome.ALREADY_REPORTED
