"""The reports of a device to one experiment: made for the round that is open then, and paid for."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privateer_client.delivery import Outcome, Pace, Steps
from privateer_client.inputs import warn_unfit
from privateer_client.ledger.account_protocol import Account, Payment
from privateer_client.ledger.choice import KeptChoice, period_of, pinned
from privateer_client.participation import Participation, SealedReport
from privateer_client.publications import Address, Publications
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


class Reports:
    """Makes the reports of this device: one, or one a period.

    address: the experiment.
    account: pays for the report, and keeps it.
    """

    def __init__(self, address: Address, account: Account) -> None:
        self.address, self._account = address, account

    def asks(self, followed: Participation) -> bool:
        """Find out whether a round asks this device, by the device's own number if the round draws numbers."""
        return followed.asks and self._draws_number(followed)

    def _draws_number(self, followed: Participation) -> bool:
        draw = followed.policy.draw
        return draw is None or draw.asks(self._account.number(self.address.identity, draw.seed, draw.people))

    def is_new(self, opened: Participation) -> bool:
        """Whether no report of this device went to the round, or to a later one: no crowd hides two as it hides one."""
        paid = self._account.payment(self.address.identity)
        return paid is None or paid.version < opened.round.version

    def is_the_time(self, followed: Participation, now: float) -> bool:
        """Find out whether the device reports this time: where it reports one time of several, it has drawn which."""
        table = followed.spec.experiment
        if table.reports_per_person == followed.spec.reports:
            return True
        times, seconds, period = table.reports_per_person, table.report_period, period_of(followed.spec, now)
        return self._account.draw(self.address.identity, times, seconds, period)

    def stands(self, choice: KeptChoice, followed: Participation, now: float) -> bool:
        """Whether a choice that is kept is still the person's, under a publication.

        It is not once its report is due, nor once another arm is retired. Where the experiment waits for outcomes,
        nothing else ends it before. Elsewhere it ends with its period, when nobody is asked, and when no report on it
        would count.
        """
        spec, version, decided = followed.spec, followed.round.version, choice.decided
        # Whoever had any arm: the age of a report would tell who chose anew, and so who had the one that is retired.
        if choice.is_due(now) or choice.retired != spec.retired:
            return False
        if choice.window:
            return True
        takes = decided > version or followed.policy.takes(decided)  # another session may be ahead of this one
        is_of_now = choice.period == period_of(spec, now) and _means_the_same(choice, followed)
        return followed.round.batch > 0 and takes and is_of_now

    def waits(self, choice: KeptChoice, followed: Participation, now: float) -> bool:
        """Whether the report on a choice is due, and a round like the publication's may take it."""
        return choice.is_due(now) and (bool(choice.window) or _means_the_same(choice, followed))

    def on(self, choice: KeptChoice, opened: Participation, now: float) -> SealedReport | None:
        """Make the report on a choice and pay for it; None, unpaid, if the open round does not take it."""
        self.check(choice, opened)
        if not (opened.takes(choice.decided) and self.is_new(opened) and self._draws_number(opened)):
            return None
        decided = np.array([choice.decided])
        rewards = with_numbers(choice.rewards, choice.numbers)
        parts = (choice.contexts, choice.coins, choice.decisions, rewards)
        # A clock that was ahead when choosing must not use up the periods until then.
        period = min(choice.period, period_of(opened.spec, now))
        return self._paid(opened, period, lambda: opened.reports(*parts, decided)[0])

    def recalled(
        self,
        contexts: NDArray[np.float64],
        arm: str,
        rewards: NDArray[np.float64],
        followed: Participation,
        opened: Participation,
    ) -> SealedReport | None:
        """Make the report of a person of a source on the arm that they played before, as `on`.

        The person spoke of features, arm and reward as the spec has them that they ``followed``.
        """
        spec, cohort = followed.spec, followed.cohort
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
        terms, header = opened.terms, opened.header
        payment = Payment(
            experiment=self.address.identity,
            version=header.version,
            model=terms.model,
            epsilon=terms.epsilon,
            delta=terms.delta,
            local_epsilon=terms.local_epsilon,
            reports=opened.spec.reports,
            period=period,
            pinned=pinned(opened.spec, terms),
        )
        endpoint = self.address.endpoint(terms.trust)
        body = self._account.pay(payment, endpoint, lambda: encode_envelope(Envelope(header, seal())))
        return SealedReport(self.address.identity, endpoint, body)


def _means_the_same(choice: KeptChoice, followed: Participation) -> bool:
    return choice.meaning == followed.meaning(choice.options)


def _agree(before: bytes, now: bytes) -> None:
    if before != now:
        raise TermsRefused(
            "features, arms, rewards or privacy are not those by which the person chose",
            field="spec",
            remedy="do not report",
        )


def _place(arm: Any, options: tuple[str, ...]) -> int:
    """Return the place of an arm; -1 if the spec does not list it."""
    if isinstance(arm, str) and arm in options:
        return options.index(arm)
    remedy = "see the arms of its spec"
    warn_unfit(InputError("not an arm of the experiment", field="arm", remedy=remedy))
    return -1


class PendingReports:
    """Makes the reports on choices that are kept, when they are due.

    account: where choices are kept, and reports wait to be sent.
    pace: whose clock tells what is due.
    """

    def __init__(self, account: Account, pace: Pace) -> None:
        self._account, self._pace = account, pace

    def settle(self, publications: Publications, timeout: float) -> Steps[Outcome | None]:
        """Make the report on the choice that is kept for an experiment, if it is due; it then waits to be sent.

        Returns
        -------
        None if there is nothing to do any more: it is made, or not due. ``pending``: no round takes it, for now.
        ``not-asked``: none has for so long that the device has erased the choice.
        """
        identity = publications.address.identity
        try:
            choice = self._account.choice(identity)
        except InputError:  # whoever joins the experiment gets the error
            return Outcome.PENDING
        now = self._pace.clock.now()
        if choice is not None and choice.on_time(now) is not choice:
            choice = self._account.change(identity, lambda kept: None if kept is None else kept.on_time(now))
        if choice is None or not choice.is_due(now):
            return None
        paid = self._account.payment(identity)
        if paid is not None and not paid.allows(choice.period):
            self._account.change(identity, lambda _: None)
            return None
        return (yield from self._made(choice, publications, timeout))

    def _made(self, choice: KeptChoice, publications: Publications, timeout: float) -> Steps[Outcome | None]:
        now = self._pace.clock.now()
        is_over = choice.is_given_up(now)
        try:
            opened = yield from publications.opened(None, timeout)
            if self._account.choice(publications.address.identity) is None:
                return None  # the person has erased it while the server took its time
            if Reports(publications.address, self._account).on(choice, opened.participation, now) is not None:
                return None
        except Unavailable:
            return Outcome.PENDING
        except Deleted:
            self._account.forget(publications.address.identity)
            return Outcome.NOT_ASKED
        except (LogForked, HeadWentBack):  # the device goes on with nothing at this server
            raise
        except PrivateerError:  # of its terms, of the budget: another round may do better
            pass
        if not is_over:
            return Outcome.PENDING
        self._account.change(publications.address.identity, lambda _: None)
        return Outcome.NOT_ASKED
