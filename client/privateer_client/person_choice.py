"""One person's choice in one experiment: kept until its report is made for the round that is open then, and paid."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from privateer_client.delivery import Steps
from privateer_client.inputs import warn_unfit
from privateer_client.ledger.account_protocol import Account, Payment
from privateer_client.ledger.choice import KeptArm, KeptChoice, period_of, pinned
from privateer_client.participation import Participation, SealedReport
from privateer_client.publications import Publications
from privateer_client.states import ALLOWED, NEXT, OUTCOMES, Action, ChoiceEvent, ChoiceState, Outcome, state_of
from privateer_core.clock import Clock
from privateer_core.errors import (
    Deleted,
    HeadWentBack,
    InputError,
    LogForked,
    PrivateerError,
    TermsRefused,
    Unavailable,
)
from privateer_core.spec.adjustment import with_numbers
from privateer_core.wire.envelope import Envelope, encode_envelope

Past: TypeAlias = tuple[NDArray[np.float64], str, NDArray[np.float64]]
"""The context of a person of a source, the arm that they played, and its rewards."""


class PersonChoice:
    """The choice of this device's person: the ledger keeps it, and `state` says how far it is.

    publications: the experiment's.
    account: keeps choice, arm and report, and pays for this.
    clock: tells what is due.
    """

    def __init__(self, publications: Publications, account: Account, clock: Clock) -> None:
        self._publications, self._account, self._clock = publications, account, clock
        self._address, self._identity = publications.address, publications.address.identity
        self.state = ChoiceState.CLOSED

    @property
    def _now(self) -> float:
        return self._clock.now()

    def may(self, action: Action) -> bool:
        """Whether the state allows something."""
        return action in ALLOWED[self.state]

    def move(self, event: ChoiceEvent) -> None:
        """Go to the next state."""
        self.state = NEXT[self.state, event]

    @property
    def outcome(self) -> Outcome:
        """What a report returns that sends nothing."""
        return OUTCOMES[self.state]

    def look_up(self, followed: Participation) -> KeptChoice | None:
        """Return the choice that is kept, and set the state."""
        kept = self._account.choice(self._identity)
        self._find_state(kept, followed)
        return kept

    def _find_state(self, kept: KeptChoice | None, followed: Participation) -> None:
        paid, now = self._account.payment(self._identity), self._now
        self.state = state_of(kept, paid, now, period_of(followed.spec, now), lambda: self._asks(followed))

    def standing(self, followed: Participation, *, fresh: bool) -> KeptChoice | None:
        """Return the choice that is kept and still the person's, and set the state; ``fresh`` ends one that can be."""
        kept = self.look_up(followed)
        if kept is None or not self.may(Action.REPORT):
            return None
        if kept.has_lapsed(followed, self._now) or (fresh and self.may(Action.SHOW)):
            self._end(ChoiceEvent.LAPSED, followed)
            return None
        return kept

    def _end(self, event: ChoiceEvent, followed: Participation) -> None:
        """Go on without the choice."""
        self.move(event)
        self._find_state(None, followed)

    def keep(self, choice: KeptChoice | None, before: KeptChoice | None, followed: Participation) -> None:
        """Keep a choice if it may be kept, else the one of before; people of a source keep none."""
        if followed.cohort:
            return
        may = choice is not None and self.may(Action.KEEP)
        self._account.change(self._identity, lambda _: choice if may else before)
        if choice is not None:
            self.decide(choice)

    def decide(self, choice: KeptChoice) -> None:
        """Note that the person has a choice, if one may be kept."""
        if self.may(Action.KEEP):
            self.move(ChoiceEvent.DEFERRED if choice.window else ChoiceEvent.DECIDED)

    def forget(self, followed: Participation) -> None:
        """Erase the choice and the arm."""
        self._account.forget(self._identity)
        self._end(ChoiceEvent.ERASED, followed)

    def arm(self, followed: Participation) -> KeptArm | None:
        """Return the arm that the person had before, if it is still theirs."""
        arm = None if followed.cohort else self._account.change_arm(self._identity, lambda arm: arm)
        return arm if arm is not None and arm.stands(followed, self._now) else None

    def keep_arm(self, choice: KeptChoice, followed: Participation) -> None:
        """Keep the arm of a choice; what is decided for everybody, or by the final policy, needs no keeping."""
        if not (followed.cohort or followed.is_over or choice.is_common):
            with suppress(InputError):
                self._account.change_arm(self._identity, lambda arm: (arm or KeptArm()).showing(choice))

    def coins(self, followed: Participation, *, fresh: bool) -> NDArray[np.uint32]:
        """Return the coins of a choice: of its own, since its report may show them, or those of the final policy."""
        drawn = followed.coins(1)

        def final(arm: KeptArm | None) -> KeptArm:
            known = arm or KeptArm()
            return known if len(known.coins) and not fresh else replace(known, coins=drawn)

        if followed.is_over and not followed.cohort:
            with suppress(InputError):  # what cannot be kept is drawn anew each time
                return (self._account.change_arm(self._identity, final) or KeptArm(coins=drawn)).coins
        return drawn

    def _asks(self, followed: Participation) -> bool:
        """Find out whether the device is asked for a report on what its person chooses now."""
        if not (followed.asks and self._draws_number(followed)):
            return False
        is_for_later = followed.spec.experiment.conversion_window > 0
        return (is_for_later or self._is_new(followed)) and self._is_the_time(followed)

    def _draws_number(self, followed: Participation) -> bool:
        """Find out whether it is this device's turn by its own number, if the round draws numbers."""
        draw = followed.policy.draw
        return draw is None or draw.asks(self._account.number(self._identity, draw.seed, draw.people))

    def _is_new(self, opened: Participation) -> bool:
        """Whether no report of this device went to the round, or to a later one: no crowd hides two as it hides one."""
        paid = self._account.payment(self._identity)
        return paid is None or paid.version < opened.round.version

    def _is_the_time(self, followed: Participation) -> bool:
        """Find out whether the device reports this time: where it reports one time of several, it has drawn which."""
        table = followed.spec.experiment
        if table.reports_per_person == followed.spec.reports:
            return True
        times, seconds, period = table.reports_per_person, table.report_period, period_of(followed.spec, self._now)
        return self._account.draw(self._identity, times, seconds, period)

    def tell(self, choice: KeptChoice, rewards: NDArray[np.float64], followed: Participation) -> KeptChoice | None:
        """Keep an outcome with the choice that the report is about, and return that; None if it is not kept any more.

        The person may have erased it, or another session may have kept a fresh one, of which the outcome says nothing.
        """
        now = self._now

        def counts(kept: KeptChoice | None) -> bool:
            return kept is not None and (_waits(kept, followed, now) or kept.is_same(choice))

        updated = self._account.change(
            self._identity, lambda kept: kept.with_outcome(rewards, now) if kept and counts(kept) else kept
        )
        if not counts(updated):
            self.look_up(followed)
            return None
        self.move(ChoiceEvent.OUTCOME)
        return updated

    def keeps(self, choice: KeptChoice) -> bool:
        """Whether a choice is still kept: the person may erase it while a server takes its time."""
        kept = self._account.choice(self._identity)
        return kept is not None and kept.is_same(choice)

    def end(self, event: ChoiceEvent, followed: Participation) -> Outcome:
        """Return what came of the report that was due, whatever the session was asked for meanwhile."""
        if event is ChoiceEvent.EXPIRED:
            self.keep(None, None, followed)
        self.state = NEXT[ChoiceState.DUE, event]
        return self.outcome

    def settle(self, timeout: float) -> Steps[Outcome | None]:
        """Make the report on the choice that is kept, if it is due; return what came of one that is not made."""
        try:
            choice = self._account.choice(self._identity)
        except InputError:  # whoever joins the experiment gets the error
            return Outcome.PENDING
        now = self._now
        if choice is not None and choice.on_time(now) is not choice:
            choice = self._account.change(self._identity, lambda kept: None if kept is None else kept.on_time(now))
        if choice is None:
            return None
        self.state = state_of(choice, self._account.payment(self._identity), now, choice.period, lambda: False)
        if self.state is ChoiceState.DELIVERED:
            self._account.change(self._identity, lambda _: None)
        if not self.may(Action.MAKE):
            return None
        event = yield from self._attempt(choice, timeout, now)
        self.move(event)
        return None if event is ChoiceEvent.TAKEN else OUTCOMES.get(self.state)

    def _attempt(self, choice: KeptChoice, timeout: float, now: float) -> Steps[ChoiceEvent]:
        """Make the report that is due; return what came of it."""
        try:
            opened = yield from self._publications.opened(None, timeout)
            with self._account.transaction():
                kept = self._account.choice(self._identity)
                if kept is None or not kept.is_due(now):
                    return ChoiceEvent.ERASED  # the person did it while the server took its time
                if self.make(kept, opened.participation) is not None:
                    return ChoiceEvent.TAKEN
        except Unavailable:
            return ChoiceEvent.DECLINED
        except Deleted:
            self._account.forget(self._identity)
            return ChoiceEvent.DELETED
        except (LogForked, HeadWentBack):  # the device goes on with nothing at this server
            raise
        except PrivateerError:  # of its terms, of the budget: another round may do better
            pass
        if not choice.is_given_up(now):
            return ChoiceEvent.DECLINED
        self._account.change(self._identity, lambda kept: kept if kept and not kept.is_due(now) else None)
        return ChoiceEvent.EXPIRED

    def make(self, choice: KeptChoice, opened: Participation) -> SealedReport | None:
        """Make the report on a choice and pay for it; None, unpaid, if the open round does not take it."""
        self.check(choice, opened)
        if not (opened.takes(choice.decided) and self._is_new(opened) and self._draws_number(opened)):
            return None
        decided = np.array([choice.decided])
        rewards = with_numbers(choice.rewards, choice.numbers)
        parts = (choice.contexts, choice.coins, choice.decisions, rewards)
        # A clock that was ahead when choosing must not use up the periods until then.
        period = min(choice.period, period_of(opened.spec, self._now))
        return self._paid(opened, period, lambda: opened.reports(*parts, decided)[0])

    def recall(self, past: Past, followed: Participation, opened: Participation) -> SealedReport | None:
        """Make the report of a person of a source on what the spec has that they ``followed``, as `make`."""
        (contexts, arm, rewards), spec, cohort = past, followed.spec, followed.cohort
        _agree(followed.meaning(len(spec.options), cohort), opened.meaning(len(spec.options), cohort))
        if not opened.asks:
            return None
        played = np.array([_place(arm, spec.options)])
        return self._paid(opened, 0, lambda: opened.recorded(contexts, played, rewards)[0])

    def check(self, choice: KeptChoice, opened: Participation) -> None:
        """Refuse a publication under which a choice means something else than when it was made."""
        _agree(choice.meaning, opened.meaning(choice.options))
        if opened.round.version == choice.decided and opened.header.digest != choice.digest:
            raise TermsRefused(
                "the server has published another policy of this version", field="version", remedy="do not report"
            )

    def _paid(self, opened: Participation, period: int, seal: Callable[[], bytes]) -> SealedReport:
        """Make the body to send, once; the ledger keeps it together with its payment, and forgets the choice."""
        terms, header, reports = opened.terms, opened.header, opened.spec.reports
        payment = Payment(
            experiment=self._identity,
            version=header.version,
            model=terms.model,
            epsilon=terms.epsilon,
            delta=terms.delta,
            local_epsilon=terms.local_epsilon,
            reports=reports,
            period=period,
            pinned=pinned(opened.spec, terms) if reports > 1 else "",
        )
        endpoint = self._address.endpoint(terms.trust)
        body = self._account.pay(payment, endpoint, lambda: encode_envelope(Envelope(header, seal())))
        return SealedReport(self._identity, endpoint, body)


def _waits(kept: KeptChoice, followed: Participation, now: float) -> bool:
    """Whether the report on a choice is due, and a round like the one that is followed may take it."""
    return kept.is_due(now) and not kept.has_lapsed(followed, now)


def _agree(before: bytes, now: bytes) -> None:
    if before != now:
        detail = "features, arms, rewards or privacy are not those by which the person chose"
        raise TermsRefused(detail, field="spec", remedy="do not report")


def _place(arm: Any, options: tuple[str, ...]) -> int:
    """Return the place of an arm; -1 if the spec does not list it."""
    if isinstance(arm, str) and arm in options:
        return options.index(arm)
    remedy = "see the arms of its spec"
    warn_unfit(InputError("not an arm of the experiment", field="arm", remedy=remedy))
    return -1
