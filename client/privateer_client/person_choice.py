"""A participant's choice in an experiment: stored until its report is made and paid for, for the round then open."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeAlias

import msgspec
import numpy as np

from privateer_client.delivery import Steps
from privateer_client.inputs import warn_of_invalid_value
from privateer_client.ledger.account_protocol import Account, Payment
from privateer_client.ledger.choice import StoredArm, pinned_terms
from privateer_client.participation import Participation, SealedReport, StoredChoice, check_same_meaning, period_number
from privateer_client.publications import Publications
from privateer_client.states import ALLOWED, NEXT, OUTCOMES, Action, ChoiceEvent, ChoiceState, ReportStatus, find_state
from privateer_core.arrays import Array, Coins
from privateer_core.clock import Clock
from privateer_core.errors import Deleted, InputError, LogForked, LogRollback, PrivateerError, Unavailable
from privateer_core.spec.reward import append_numbers
from privateer_core.wire.publication import Envelope, encode_envelope

Past: TypeAlias = tuple[Array, str, Array, Array]
"""The context, the earlier arm, the rewards and the arm's propensity of a participant from a source."""


class PersonChoice:
    """The choice of this device's participant, which the ledger stores, and its `state`.

    publications: the publications of the experiment.
    account: stores choice, arm and report, and records payments.
    clock: the clock for due times.
    """

    def __init__(self, publications: Publications, account: Account, clock: Clock) -> None:
        self._publications, self._account, self._clock = publications, account, clock
        self._identity = publications.address.identity
        self.state = ChoiceState.CLOSED

    @property
    def _now(self) -> float:
        return self._clock.now()

    def is_allowed(self, action: Action) -> bool:
        """Whether the state allows an action."""
        return action in ALLOWED[self.state]

    def apply_event(self, event: ChoiceEvent) -> None:
        """Change the state by an event that the state allows."""
        self.state = NEXT[self.state, event]

    @property
    def report_status(self) -> ReportStatus:
        """The status of a report in a state in which nothing is sent."""
        return OUTCOMES[self.state]

    def load_stored(self, participation: Participation) -> StoredChoice | None:
        """Return the stored choice, or None, and set the state by it."""
        stored = self._account.choice(self._identity)
        self._update_state(stored, participation)
        return stored

    def _update_state(self, stored: StoredChoice | None, participation: Participation) -> None:
        payment, now = self._account.payment(self._identity), self._now
        period = period_number(participation.spec, now)
        self.state = find_state(stored, payment, now, period, lambda: self._is_report_requested(participation))

    def load_valid_choice(self, participation: Participation, *, fresh: bool) -> StoredChoice | None:
        """Return the stored choice if it is still valid, and set the state; ``fresh`` ends a choice that is not due."""
        stored = self.load_stored(participation)
        if stored is None or not self.is_allowed(Action.REPORT):
            return None
        if stored.has_lapsed(participation, self._now) or (fresh and self.is_allowed(Action.SHOW)):
            self._end_choice(ChoiceEvent.LAPSED, participation)
            return None
        return stored

    def _end_choice(self, event: ChoiceEvent, participation: Participation) -> None:
        """Change the state by an event that ends the choice."""
        self.apply_event(event)
        self._update_state(None, participation)

    def store(self, choice: StoredChoice | None, previous: StoredChoice | None, participation: Participation) -> None:
        """Store a choice if the state allows it, else the previous choice; participants from a source store none."""
        if participation.cohort:
            return
        is_storable = choice is not None and self.is_allowed(Action.KEEP)
        self._account.change_choice(self._identity, lambda _: choice if is_storable else previous)
        if choice is not None and is_storable:
            self.apply_event(ChoiceEvent.DEFERRED if choice.window else ChoiceEvent.DECIDED)

    def forget(self, participation: Participation) -> None:
        """Erase the choice and the arm."""
        self._account.forget(self._identity)
        self._end_choice(ChoiceEvent.ERASED, participation)

    def load_valid_arm(self, participation: Participation) -> StoredArm | None:
        """Return the participant's stored arm, if it is still valid."""
        arm = None if participation.cohort else self._account.change_arm(self._identity, lambda arm: arm)
        return arm if arm is not None and arm.is_valid(participation, self._now) else None

    def store_arm(self, choice: StoredChoice, participation: Participation) -> None:
        """Store the arm of a choice, unless it is the same for all participants or chosen by the final policy."""
        if not (participation.cohort or participation.is_over or choice.is_common):
            with suppress(InputError):
                self._account.change_arm(self._identity, lambda arm: (arm or StoredArm()).with_choice(choice))

    def draw_or_keep_coins(self, participation: Participation, *, fresh: bool) -> Coins:
        """Draw the coins of a choice; a final policy's coins are stored and kept, unless ``fresh`` replaces them."""
        coins = participation.draw_coins(1)

        def keep_coins(arm: StoredArm | None) -> StoredArm:
            stored = arm or StoredArm()
            return stored if len(stored.coins) and not fresh else msgspec.structs.replace(stored, coins=coins)

        if participation.is_over and not participation.cohort:
            with suppress(InputError):  # coins that cannot be stored are drawn again each time
                return (self._account.change_arm(self._identity, keep_coins) or StoredArm(coins=coins)).coins
        return coins

    def _is_report_requested(self, participation: Participation) -> bool:
        """Whether the device is asked for a report on a choice that is made now."""
        if not (participation.is_report_requested and self._is_drawn(participation)):
            return False
        is_for_later = participation.spec.experiment.conversion_window_seconds > 0
        return (is_for_later or self._is_new(participation)) and self._is_reporting_time(participation)

    def _is_drawn(self, participation: Participation) -> bool:
        """Whether the round's draw of participants includes this device's number; True if the round draws none."""
        draw = participation.policy.draw
        return draw is None or draw.is_invited(self._account.draw_number(self._identity, draw.seed, draw.people))

    def _is_new(self, opened: Participation) -> bool:
        """Whether this device has not reported to this or a later round, since a batch does not hide two reports."""
        payment = self._account.payment(self._identity)
        return payment is None or payment.version < opened.round.version

    def _is_reporting_time(self, participation: Participation) -> bool:
        """Whether the device reports on this visit; if it reports on one of several visits, it has drawn which."""
        table = participation.spec.experiment
        if table.reports_per_person == participation.n_sharing_reports:
            return True
        period = period_number(participation.spec, self._now)
        return self._account.count_visit(self._identity, table.reports_per_person, table.report_period_seconds, period)

    def record_outcome(
        self, choice: StoredChoice, rewards: Array, participation: Participation, opened: Participation | None
    ) -> StoredChoice | SealedReport | None:
        """Add an outcome to the stored choice, and return the choice; None if the choice is no longer stored.

        The participant may have erased it, or another session may have replaced it, so that the outcome is not its own.

        opened: the participation in the open round, if known; then this returns the report, if the round takes it.
        """
        now = self._now
        reports = list[SealedReport]()

        def accepts_outcome(stored: StoredChoice | None) -> bool:
            if stored is None:
                return False
            return stored.is_same_choice(choice) or (stored.is_due(now) and not stored.has_lapsed(participation, now))

        def add_outcome(stored: StoredChoice | None) -> StoredChoice | None:
            if stored is None or not accepts_outcome(stored):
                return stored
            updated_choice = stored.with_outcome(rewards, now)
            report = None
            if opened is not None and not updated_choice.window:
                with suppress(PrivateerError):  # the error is raised when the report is made from the stored choice
                    report = self.make_report(updated_choice, opened)
            reports.extend([report] if report else [])
            return None if report else updated_choice

        updated = self._account.change_choice(self._identity, add_outcome)
        if not (reports or accepts_outcome(updated)):
            self.load_stored(participation)
            return None
        self.apply_event(ChoiceEvent.OUTCOME)
        return reports[0] if reports else updated

    def is_stored(self, choice: StoredChoice) -> bool:
        """Whether a choice is still stored: the participant may erase it while the device waits for a server."""
        stored = self._account.choice(self._identity)
        return stored is not None and stored.is_same_choice(choice)

    def end_report(self, event: ChoiceEvent, participation: Participation) -> ReportStatus:
        """Change the state by the end of a due report, and return the report's status."""
        if event is ChoiceEvent.EXPIRED:
            self.store(None, None, participation)
        self.state = NEXT[ChoiceState.DUE, event]
        return self.report_status

    def make_due_report(self, timeout: float) -> Steps[ReportStatus | None]:
        """Make the report on the stored choice, if it is due; return the status of a report that is not made."""
        try:
            choice = self._account.choice(self._identity)
        except InputError:  # joining the experiment raises the error
            return ReportStatus.PENDING
        now = self._now
        if choice is not None and choice.with_corrected_due_time(now) is not choice:
            choice = self._account.change_choice(
                self._identity, lambda old: None if old is None else old.with_corrected_due_time(now)
            )
        if choice is None:
            return None
        self.state = find_state(choice, self._account.payment(self._identity), now, choice.period, lambda: False)
        if self.state is ChoiceState.DELIVERED:
            self._account.change_choice(self._identity, lambda _: None)
        if not self.is_allowed(Action.MAKE):
            return None
        event = yield from self._make_report_or_event(choice, timeout, now)
        self.apply_event(event)
        return None if event is ChoiceEvent.TAKEN else OUTCOMES.get(self.state)

    def _make_report_or_event(self, choice: StoredChoice, timeout: float, now: float) -> Steps[ChoiceEvent]:
        """Make the due report, and return the resulting event."""
        try:
            opened = yield from self._publications.fetch_open(None, timeout)
            with self._account.transaction():
                stored = self._account.choice(self._identity)
                if stored is None or not stored.is_due(now):
                    return ChoiceEvent.ERASED  # by the participant, during the request
                if self.make_report(stored, opened.participation) is not None:
                    return ChoiceEvent.TAKEN
        except Unavailable:
            return ChoiceEvent.DECLINED
        except Deleted:
            self._account.forget(self._identity)
            return ChoiceEvent.DELETED
        except (LogForked, LogRollback):  # the device stops all operations at this server
            raise
        except PrivateerError:  # of its terms, of the budget: another round may do better
            pass
        if not choice.is_abandoned(now):
            return ChoiceEvent.DECLINED
        self._account.change_choice(
            self._identity, lambda stored: stored if stored and not stored.is_due(now) else None
        )
        return ChoiceEvent.EXPIRED

    def make_report(self, choice: StoredChoice, opened: Participation) -> SealedReport | None:
        """Make and pay for the report on a choice; return None without payment if the open round does not take it."""
        choice.check_publication(opened)
        if not (opened.accepts_version(choice.decided) and self._is_new(opened) and self._is_drawn(opened)):
            return None
        versions = np.array([choice.decided])
        rewards = append_numbers(choice.rewards, choice.numbers)
        arguments = (choice.contexts, choice.coins, choice.decisions, rewards)
        # A clock that was ahead at the choice must not use up later periods.
        period = min(choice.period, period_number(opened.spec, self._now)) if choice.period else 0
        return self._pay_and_seal(opened, period, lambda: opened.make_reports(*arguments, versions)[0])

    def make_past_report(self, past: Past, participation: Participation, opened: Participation) -> SealedReport | None:
        """Make and pay for the report on an earlier arm, under the spec joined, as `make`; None if unrequested."""
        (contexts, arm, rewards, propensities), spec, cohort = past, participation.spec, participation.cohort
        check_same_meaning(
            participation.meaning_digest(len(spec.options), cohort), opened.meaning_digest(len(spec.options), cohort)
        )
        if not opened.is_report_requested:
            return None
        facts = (contexts, np.array([_arm_index(arm, spec.options)]), rewards, propensities)
        return self._pay_and_seal(opened, 0, lambda: opened.make_past_reports(*facts)[0])

    def _pay_and_seal(self, opened: Participation, period: int, seal: Callable[[], bytes]) -> SealedReport:
        """Seal the report; the ledger stores its body together with the payment, and erases the choice."""
        terms, header, reports = opened.terms, opened.header, opened.n_sharing_reports
        payment = Payment(
            experiment=self._identity,
            version=header.version,
            model=terms.model,
            epsilon=terms.epsilon,
            delta=terms.delta,
            local_epsilon=terms.local_epsilon,
            reports=reports,
            period=period,
            pinned=pinned_terms(opened.spec, terms) if reports > 1 else "",
        )
        body = self._account.pay(payment, opened.endpoint, lambda: encode_envelope(Envelope(header, seal())))
        return SealedReport(self._identity, opened.endpoint, body)


def _arm_index(arm: Any, options: tuple[str, ...]) -> int:
    """Return the index of an arm; -1 with a warning if the spec does not list it."""
    if isinstance(arm, str) and arm in options:
        return options.index(arm)
    warn_of_invalid_value(InputError("not an arm of the experiment", field="arm", remedy="see the arms of its spec"))
    return -1
