"""The session of a participant in an experiment: choose, then report."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, Generic, TypeAlias, TypeVar

from privateer_client.delivery import Pace, Steps, deliver
from privateer_client.inputs import (
    InvalidValueWarnings,
    encode_context,
    list_clipped_features,
    read_offset,
    read_outcome,
    read_propensity,
    select_features,
)
from privateer_client.ledger.account_protocol import Account
from privateer_client.ledger.choice import StoredArm
from privateer_client.ledger.known_servers import refuse_contradictory_server
from privateer_client.participation import Participation, SealedReport, StoredChoice, period_number
from privateer_client.person_choice import PersonChoice
from privateer_client.publications import CheckedPublication, Publications
from privateer_client.states import Action, ChoiceEvent, ChoiceState, ReportStatus
from privateer_core.arrays import Array
from privateer_core.errors import AlreadyReported, Deleted, InputError, Unavailable

_REWARD: Final = "reward"
Reported = TypeVar("Reported")
"""The result of a report: a `ReportStatus`, or an awaitable of it."""
Run: TypeAlias = Callable[[Steps[ReportStatus]], Reported]
"""A function that runs the steps of a report."""


class Session(Generic[Reported]):
    """A session of one participant; `Client.join` returns it.

    Sessions of an `AsyncClient` are the same, with ``await session.report(...)``.

    Attributes
    ----------
    offline
        Whether the policy is the one stored on the device, since the server did not answer.
    refusal
        The reason why the last report was refused or is pending.
    clipped
        Whether the last reward had to be clipped to its bounds.
    clipped_features
        Names of features whose values the last decision had to clip to their bounds. They stay on the device.
    """

    def __init__(
        self,
        run: Run[Reported],
        published: CheckedPublication,
        publications: Publications,
        account: Account,
        pace: Pace,
    ) -> None:
        self._run, self._published, self._publications = run, published, publications
        self._account, self._servers, self._pace = account, account.servers, pace
        self._identity, self._participation = publications.address.identity, published.participation
        self._choice = PersonChoice(publications, account, pace.clock)
        with account.transaction():
            # The last choice or arm that was shown. A report is about it, if it is a choice.
            self._shown_choice: StoredChoice | StoredArm | None = self._choice.load_stored(self._participation)
        self._value_warnings = InvalidValueWarnings()
        self.offline = published.sent_at is None
        self.refusal: str | None = None
        self.clipped = False
        self.clipped_features: tuple[str, ...] = ()

    def choose(self, context: Mapping[str, Any] = {}, *, fresh: bool = False, sticky: bool = True) -> Any:
        """Choose for this participant; nothing is sent. A report is about the last choice.

        The choice is stored, encrypted, if a report is requested. A stored choice stays, also after a restart:
        ``choose`` returns it whatever the context, until its report is made or due, its period is over, or its report
        would not count any more. The arm stays after its report, and where no report is requested, until it is retired,
        the period is over, another report is requested, or the experiment is over.

        Parameters
        ----------
        context
            A value for each feature of the experiment, and for each covariate that adjusts the reward.
        fresh
            Whether to replace the stored choice by a new one. An adversary who sees the arms then sees one more.
        sticky
            False: decide again at each call once the report is made, or if no report is requested.

        Returns
        -------
        The name of an arm; how often each action is played, a mapping {row: times}; or a point as a list of
        coordinates, or two in a mapping {name: point}.

        Raises
        ------
        InputError
            If a feature is not given, or unknown, or the choice cannot be kept.
        LogForked, LogRollback
            If the device holds evidence that the server has contradicted itself.

        Warns
        -----
        InvalidValueWarning
            If the spec has no place for a value, which then counts as missing.
        """
        return self.choose_in_time(lambda: True, context, fresh=fresh, sticky=sticky)

    def choose_in_time(
        self, is_awaited: Callable[[], bool], context: Mapping[str, Any], *, fresh: bool = False, sticky: bool = True
    ) -> Any:
        """Choose as `choose`, but store nothing and raise `Unavailable` if the arm is no longer awaited."""
        self._publications.check_server()
        old_state = self._shown_choice, self._choice.state
        try:
            with self._account.transaction():
                arm = self._choose_arm(context, fresh=fresh, sticky=sticky)
                if not is_awaited():
                    raise Unavailable("nobody waits for the arm any more", remedy="call it again")
        except BaseException:
            self._shown_choice, self._choice.state = old_state
            raise
        return arm

    def save(self) -> None:
        """Store the choice, as `choose` does, so that `Client.resume` finds it after a restart.

        Without a requested report there is nothing to store: participants from a source report on earlier arms.

        Raises
        ------
        InputError
            If nothing was chosen, or the ledger cannot keep it.
        """
        with self._account.transaction():
            if self._shown_choice is None:
                self._shown_choice = self._store_common_choice()

    def forget(self) -> None:
        """Erase the choice in the session and the ledger: it is not reported, and `choose` may choose another arm."""
        with self._account.transaction():
            self._choice.forget(self._participation)
            self._shown_choice = None

    def report(self, reward: Any) -> Reported:
        """Report the outcome of the choice.

        The device fetches the open round, verifies its terms, pays for this participant's report, randomizes, seals and
        sends it. Where the experiment waits for outcomes it only stores this outcome, in the place of the one
        before: the report is made by the first `Client.join` or `Client.flush` after the window, and nothing changes
        it then.

        Parameters
        ----------
        reward
            A number, or yes or no; for actions the person's average reward of each, a mapping {row: average}; for two
            points their rewards, a mapping {name: reward}. The device clips rewards to the experiment's bounds. None
            where nothing is known.

        Returns
        -------
        The `ReportStatus`.

        Raises
        ------
        InputError
            If nothing was chosen.
        TermsRefused
            If the open round's terms miss what was promised when the person chose, or what this device accepts.
        BudgetExceeded
            If the ledger does not allow the report; nothing was sent.
        LogForked, LogRollback
            If the device holds evidence that the server has contradicted itself; nothing was sent.

        Warns
        -----
        InvalidValueWarning
            If the reward is not what the experiment asks for: the report is made as if there had been no outcome.
        """
        return self._run(self.report_steps(reward))

    def report_steps(self, reward: Any) -> Steps[ReportStatus]:
        """Return the steps of `report`."""
        return self._handle_final_errors(self._report_choice_steps(reward))

    def report_past(
        self, context: Mapping[str, Any], arm: str, reward: Any, propensity: float | None = None
    ) -> Reported:
        """Report, as a participant from a source, on an earlier arm, which stays secret.

        Parameters
        ----------
        context
            The participant's features when the arm was played.
        arm
            Its name.
        reward
            The outcome of the arm.
        propensity
            The probability with which the earlier policy gave the participant this arm, above 0 and at most 1; None if
            unknown. It stays secret, and only a source with ``min_propensities`` takes it.

        Raises
        ------
        InputError
            If the session is not one of a source, or its source takes no propensity; or as `choose` and `report`.
        Unavailable
            If the server does not tell which round is open; nothing was paid or sent.

        Warns
        -----
        InvalidValueWarning
            If the experiment has no such arm, or the propensity that the source needs is unknown: the report then says
            nothing. Or as `choose` and `report`.
        """
        return self._run(self._handle_final_errors(self._report_past_steps(context, arm, reward, propensity)))

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the values that `choose` needs: features, and covariates that adjust the reward."""
        return self._participation.spec.input_names

    @property
    def answers(self) -> tuple[str, ...]:
        """Names of the yes-or-no answers that `report` takes beside the ``reward``; usually empty."""
        default_outcome = self._participation.spec.without_outcome(None)
        default_by_name = default_outcome if isinstance(default_outcome, Mapping) and _REWARD in default_outcome else {}
        return tuple(name for name in default_by_name if name != _REWARD)

    @property
    def state(self) -> ChoiceState:
        """The state of the participant's choice, as this session knows it: docs/sdk/states.md draws the states."""
        return self._choice.state

    @property
    def report_requested(self) -> bool:
        """Whether a report of this participant is requested: by a round, or on a stored choice."""
        return self._choice.is_allowed(Action.REPORT)

    def _choose_arm(self, context: Mapping[str, Any], *, fresh: bool, sticky: bool) -> Any:
        """Return the arm to show, within a transaction of the ledger."""
        choice, participation = self._choice, self._participation
        stored = choice.load_valid_choice(participation, fresh=fresh)
        if stored is not None and choice.is_allowed(Action.SHOW):
            self._shown_choice = stored
            return stored.display_value
        arm = choice.load_valid_arm(participation) if choice.is_allowed(Action.STAY) and sticky and not fresh else None
        if arm is not None:
            choice.store(None, stored, participation)
            self._shown_choice = stored or arm
            return arm.display_value
        self._shown_choice = new_choice = self._decide(context, fresh=fresh)
        choice.store(new_choice, stored, participation)
        choice.store_arm(new_choice, participation)
        return new_choice.display_value

    def _decide(self, context: Mapping[str, Any], *, fresh: bool = False) -> StoredChoice:
        """Decide by the policy for a context, with stored or fresh coins; note which features were clipped."""
        coins = self._choice.draw_or_keep_coins(self._participation, fresh=fresh)
        spec, features = self._participation.spec, select_features(context, self._participation.spec)
        encoded_context = encode_context(features, spec.features, spec.reward.covariates, self._value_warnings.warn)
        self.clipped_features = list_clipped_features(features, spec.features)
        offset, numbers = read_offset(context, spec, self._value_warnings.warn)
        return StoredChoice.decide(self._participation, encoded_context, coins, self._pace.clock.now(), offset, numbers)

    def _store_common_choice(self) -> StoredChoice:
        """Store and return the choice that is the same for all participants, which needs no call of `choose`."""
        choice, participation = None if self._participation.spec.features else self._decide({}), self._participation
        if choice is None or not choice.is_common:
            raise InputError("choose an arm first", field="reward", remedy="call session.choose({...})")
        stored = self._choice.load_valid_choice(participation, fresh=False)
        if stored is None:
            self._choice.store(choice, None, participation)
        return stored or choice

    def _report_choice_steps(self, reward: Any) -> Steps[ReportStatus]:
        """Record the outcome of the choice, and send its report if it is requested and due now."""
        if self._participation.cohort:
            raise InputError("people of a source report on the past", field="cohort", remedy="call report_past")
        with self._account.transaction():
            refuse_contradictory_server(self._servers, self._publications.address.server)
            self._refuse_second_report(self._shown_choice)
            if self._shown_choice is None and not self.report_requested:
                return self._choice.report_status
            shown_choice = self._shown_choice = self._shown_choice or self._store_common_choice()
            rewards = self._read_rewards(shown_choice.display_value, reward, shown_choice.offset)
            if not self.report_requested or not isinstance(shown_choice, StoredChoice):
                return self._choice.report_status
            shown_choice.check_publication(self._participation)
            at_hand = self._publications.find_open(self._published)
            open_round = at_hand and at_hand.participation
            recorded = self._choice.record_outcome(shown_choice, rewards, self._participation, open_round)
            token = self._account.tie_token(recorded) if isinstance(recorded, SealedReport) else None
        if isinstance(recorded, SealedReport):
            return (yield from self._send_steps(recorded, token))
        if recorded is None or recorded.window:  # nothing is sent now: that would say when the outcome came
            return ReportStatus.NOT_REQUESTED if recorded is None else self._choice.report_status
        opened = None
        with suppress(Unavailable):
            opened = yield from self._open_round_steps()
        return (yield from self._deliver_steps(opened, partial(self._choice.make_report, recorded), recorded))

    def _report_past_steps(
        self, context: Mapping[str, Any], arm: str, reward: Any, propensity: float | None
    ) -> Steps[ReportStatus]:
        """Report the outcome of an earlier arm, which people of a source alone do."""
        spec = self._participation.spec
        source = spec.source(self._participation.cohort)
        if source is None:
            raise InputError("only people of a source do", field="cohort", remedy="join with cohort='...'")
        propensities = read_propensity(propensity, source, self._value_warnings.warn)
        self._publications.check_server()
        encoded_context = encode_context(context, spec.features, spec.reward.covariates, self._value_warnings.warn)
        rewards = self._read_rewards(None, reward)
        self._refuse_second_report(None)
        if not self.report_requested:
            return self._choice.report_status
        opened = yield from self._open_round_steps()
        past = (encoded_context, arm, rewards, propensities)
        recall = partial(self._choice.make_past_report, past, self._participation)
        return (yield from self._deliver_steps(opened, recall))

    def _deliver_steps(
        self,
        opened: CheckedPublication | None,
        make: Callable[[Participation], SealedReport | None],
        choice: StoredChoice | None = None,
    ) -> Steps[ReportStatus]:
        """Make the report and send it, unless no round takes it or its choice was erased meanwhile."""
        with self._account.transaction():
            self._refuse_second_report(choice)
            if choice is not None and not self._choice.is_stored(choice):
                self._choice.load_stored(self._participation)
                return ReportStatus.NOT_REQUESTED
            if opened is None:
                return self._choice.end_report(ChoiceEvent.DECLINED, self._participation)
            report = make(opened.participation)
            # From now on the session follows the open round, unless its terms are refused.
            self._published, self._participation = opened, opened.participation
            if report is None:
                return self._choice.end_report(ChoiceEvent.EXPIRED, self._participation)
            token = self._account.tie_token(report)
        return (yield from self._send_steps(report, token))

    def _send_steps(self, report: SealedReport, token: bytes | None) -> Steps[ReportStatus]:
        """Send a report that is paid for, and return its status."""
        self._choice.end_report(ChoiceEvent.TAKEN, self._participation)
        self._shown_choice = None
        verdict = (yield from deliver([report], self._account, self._pace, {report: token}))[report]
        self.refusal = verdict.reason
        return verdict.status

    def _refuse_second_report(self, choice: StoredChoice | StoredArm | None) -> None:
        """Refuse a second report for the promise, or for the period of the stored choice, else the current period."""
        payment = self._account.payment(self._identity)
        if payment is None:
            return
        if isinstance(choice, StoredChoice):
            period = choice.period
        else:
            period = period_number(self._participation.spec, self._pace.clock.now())
        if not payment.allows(period):
            detail = "this device has reported to the experiment"
            raise AlreadyReported(detail, remedy="nothing to do: if it waits, the client sends it")

    def _read_rewards(self, displayed: Any, reward: Any, offset: float = 0.0) -> Array:
        """Return the rewards of an outcome, and note in `clipped` whether it was beyond its bounds."""
        participation = self._participation
        policy, spec, warn = participation.policy, participation.spec, self._value_warnings.warn
        rewards, self.clipped = read_outcome(policy, spec, displayed, reward, offset, warn)
        return rewards

    def _open_round_steps(self) -> Steps[CheckedPublication]:
        opened = yield from self._publications.fetch_open(self._published)
        self.offline = False
        return opened

    def _handle_final_errors(self, steps: Steps[ReportStatus]) -> Steps[ReportStatus]:
        """Return a status for a second report and for a deleted experiment, which are no errors of the page."""
        try:
            return (yield from steps)
        except AlreadyReported:
            self._choice.state = ChoiceState.DELIVERED
        except Deleted:
            self._account.forget(self._identity)
            return self._choice.end_report(ChoiceEvent.DELETED, self._participation)
        return self._choice.report_status
