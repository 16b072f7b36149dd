"""The account of a device: payments and their limits, pending reports, and stored choices."""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Protocol, TypeAlias

from privateer_client.ledger.choice import StoredArm, StoredChoice
from privateer_client.ledger.known_servers import Servers
from privateer_client.ledger.token_store import TokenStore
from privateer_client.participation import SealedReport
from privateer_core.errors import AlreadyReported, BudgetExceeded, InputError, TermsRefused

COSTS: Final = ("epsilon", "delta", "local_epsilon")
_SERVER_SHARE: Final = 0.5
"""Share of a total that one server may spend, so that as much remains for another server."""
_ROUNDING_FACTOR: Final = 1 + 1e-9
CostLimits: TypeAlias = Sequence[float | None]
"""A limit for each of `COSTS`; None: no limit."""


@dataclass(frozen=True)
class Payment:
    """The total cost of the reports to an experiment."""

    # identity of the experiment: server and name. A new spec under an old name does not buy a second report.
    experiment: str
    # version, model: round of the last report, and trust model
    version: int
    model: str
    # epsilon, delta, local_epsilon: the promise under the trust model, and what remains of it if everybody else
    # colludes; infinite without a bound. The first report pays for all that share the promise.
    epsilon: float
    delta: float
    local_epsilon: float
    day: int = 0  # when the last report was made, in days since 1970: no finer, since somebody may look into the device
    # reports, made: reports that share the promise, and how many of them are made
    reports: int = 1
    made: int = 1
    period: int = 0  # number of the period of the last report, 0 where a person reports once
    pinned: str = ""  # what a server must not change between them (`privateer_client.ledger.choice`)

    def allows(self, period: float) -> bool:
        """Whether the device may make another report in this period."""
        return self.made < self.reports and self.period < period

    def followed_by(self, new_payment: "Payment") -> "Payment":
        """Return the payment that includes another report, whose promise is already paid for."""
        if self.made >= self.reports:
            raise AlreadyReported("this device has reported to the experiment", remedy="nothing to do")
        if new_payment.pinned != self.pinned:
            raise changed_terms()
        if not self.allows(new_payment.period):
            raise AlreadyReported("this device has reported in this period", remedy="come back in the next one")
        if new_payment.version <= self.version:
            raise AlreadyReported("this device has reported to this round", remedy="report to the next one")
        local_epsilon = max(self.local_epsilon, new_payment.local_epsilon)
        return replace(new_payment, made=self.made + 1, local_epsilon=local_epsilon)

    @property
    def server(self) -> str:
        """Origin of the experiment's server: scheme, host and port, whatever the path."""
        return "/".join(self.experiment.split("/")[:3])


class Account(Protocol):
    """The interface of a device's record of payments, reports, choices and publications; see `Ledger`."""

    @property
    def servers(self) -> Servers:
        """The known servers of the device."""

    @property
    def tokens(self) -> TokenStore | None:
        """The store of upload tokens; None: tokens are not stored."""

    def transaction(self) -> AbstractContextManager[object]:
        """Make the calls of this thread in a context a single durable transaction, which must not contain requests.

        The calls have no transactions of their own: an error that is caught within the context undoes nothing.
        """

    def pay(self, payment: Payment, endpoint: str, seal: Callable[[], bytes]) -> bytes:
        """Record a payment together with the sealed report that it is for, and erase the choice; or refuse it."""

    def payment(self, experiment: str) -> Payment | None:
        """Return the payment of an experiment's reports; None: there are none."""

    def count_visit(self, experiment: str, times: int, seconds: float, period: int) -> bool:
        """Count a visit, and return whether it is the one of ``times`` visits that was drawn for the report."""

    def draw_number(self, experiment: str, seed: int, n_participants: int) -> int:
        """Return the device's number among the participants for a seed; it is drawn and stored at the first call."""

    def pending_reports(self) -> list[SealedReport]:
        """Return the pending reports, on which no endpoint has decided."""

    def erase_report(self, report: SealedReport) -> None:
        """Overwrite a sealed report, since an endpoint has decided; its payment stays."""

    def choice(self, experiment: str) -> StoredChoice | None:
        """Return the stored choice of an experiment, or None."""

    def experiments_with_choice(self) -> list[str]:
        """Return the experiments with a stored choice."""

    def change_choice(
        self, experiment: str, change: Callable[[StoredChoice | None], StoredChoice | None]
    ) -> StoredChoice | None:
        """Replace the stored choice by the result of ``change`` atomically; None once a report is paid for."""

    def change_arm(self, experiment: str, change: Callable[[StoredArm | None], StoredArm | None]) -> StoredArm | None:
        """Replace the stored arm by the result of ``change`` atomically; an unreadable arm counts as None."""

    def forget(self, experiment: str) -> None:
        """Overwrite the stored choice and arm, whether they can be read or not, so that no report is made."""

    def publication(self, experiment: str) -> bytes | None:
        """Return the stored publication of an experiment; None if there is none, or it is damaged."""

    def store_publication(self, experiment: str, publication: bytes) -> None:
        """Store a publication that is in its server's log, instead of the one before."""

    def has_witnessed(self, experiment: str, publication_digest: bytes) -> bool:
        """Whether the stored publication has this digest, and was in its server's log."""


class _Limit(NamedTuple):
    """The maximum sum of a cost, and the ledger's parameter that sets it; infinite: no limit."""

    cost: str
    parameter: str
    max_sum: float

    def check(self, new_payment: Payment, payments: Sequence[Payment], scope: str) -> None:
        """Refuse a payment whose cost and the costs of the earlier payments exceed the limit."""
        spent_sum, requested = sum(getattr(payment, self.cost) for payment in payments), getattr(new_payment, self.cost)
        if spent_sum + requested > self.max_sum * _ROUNDING_FACTOR:
            detail = f"spent {spent_sum:g}{scope}, asked {requested:g}, limit {self.max_sum:g}"
            raise BudgetExceeded(detail, field=self.cost, remedy=f"do not take part, or raise {self.parameter}")


class SpendingLimits:
    """Limits on sums of payments, within a window of days.

    totals: the maximum cost of all experiments together; None: no limit.
    shares: the maximum cost of the experiments of a server; None: half of the total.
    window_days: days that the limits look back, today included; None: for ever.
    """

    def __init__(self, totals: CostLimits, shares: CostLimits, window_days: int | None) -> None:
        if window_days is not None and window_days < 1:
            raise InputError("must be at least 1", field="window_days", remedy="choose another window")
        self._window_days = window_days
        bounds = [math.inf if total is None else total for total in totals]
        server_bounds = [
            _SERVER_SHARE * total if share is None else share for share, total in zip(shares, bounds, strict=True)
        ]
        self._totals, self._shares = _limits("total", bounds), _limits("per_server", server_bounds)

    def check(self, new: Payment, payments: Sequence[Payment]) -> None:
        """Refuse a payment that exceeds a limit of all experiments or of its server, within the window of days."""
        first_day, text = -math.inf, ""
        if self._window_days is not None:
            first_day, text = new.day - self._window_days, f" in {self._window_days} days"
        recent = [payment for payment in payments if payment.day > first_day]
        for limit in self._totals:
            limit.check(new, recent, text)
        for limit in self._shares:
            limit.check(new, [payment for payment in recent if payment.server == new.server], f" at {new.server}{text}")


def _limits(prefix: str, bounds: Sequence[float]) -> list[_Limit]:
    """Return the limits of all costs, named after their parameters; refuse a bound below 0."""
    limits = [_Limit(cost, f"{prefix}_{cost}", value) for cost, value in zip(COSTS, bounds, strict=True)]
    for limit in limits:
        if not limit.max_sum >= 0:
            raise InputError("must be at least 0", field=limit.parameter, remedy="choose another limit")
    return limits


def changed_terms() -> TermsRefused:
    """Return the error about a server that has changed the terms that a participant's reports share."""
    detail = "reports a person, their period or their promise are not those of before"
    return TermsRefused(detail, field="experiment.reports_per_person", remedy="do not take part")
