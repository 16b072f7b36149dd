"""What a device keeps account of: payments and their limits, sealed reports on their way, and unreported choices."""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Protocol, TypeAlias

from privateer_client.ledger.choice import KeptArm, KeptChoice
from privateer_client.ledger.known_servers import Servers
from privateer_client.ledger.token_store import TokenStore
from privateer_client.participation import SealedReport
from privateer_core.errors import AlreadyReported, BudgetExceeded, InputError, TermsRefused

COSTS: Final = ("epsilon", "delta", "local_epsilon")
_SHARE: Final = 0.5
"""One server may spend this share of a total: whatever one takes, as much is left for another."""
_ROUNDING: Final = 1 + 1e-9
Most: TypeAlias = Sequence[float | None]
"""A limit for each of `COSTS`; None: none is given."""


@dataclass(frozen=True)
class Payment:
    """What the reports to one experiment cost together."""

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
        """Whether the device may make another report, in this period."""
        return self.made < self.reports and self.period < period

    def followed_by(self, asked: "Payment") -> "Payment":
        """Return the payment that another report makes of this one: the promise is paid for as a whole."""
        if self.made >= self.reports:
            raise AlreadyReported("this device has reported to the experiment", remedy="nothing to do")
        if asked.pinned != self.pinned:
            raise changed_terms()
        if not self.allows(asked.period):
            raise AlreadyReported("this device has reported in this period", remedy="come back in the next one")
        if asked.version <= self.version:
            raise AlreadyReported("this device has reported to this round", remedy="report to the next one")
        local_epsilon = max(self.local_epsilon, asked.local_epsilon)
        return replace(asked, made=self.made + 1, local_epsilon=local_epsilon)

    @property
    def server(self) -> str:
        """Origin of the experiment's server: scheme, host and port, whatever the path."""
        return "/".join(self.experiment.split("/")[:3])


class Account(Protocol):
    """Where a device records payments, and keeps reports, choices and publications; see `Ledger`."""

    @property
    def servers(self) -> Servers:
        """What the device knows of servers."""
        ...

    @property
    def tokens(self) -> TokenStore | None:
        """Where upload tokens are kept; None: nowhere."""
        ...

    def transaction(self) -> AbstractContextManager[object]:
        """Make what follows, on this thread, one durable transaction; ask nobody within it, since others wait.

        What is called within it has no transaction of its own: an error that is caught within it undoes nothing.
        """
        ...

    def pay(self, payment: Payment, endpoint: str, seal: Callable[[], bytes]) -> bytes:
        """Record a payment together with the sealed report that it is for, and erase the choice; or refuse it."""
        ...

    def payment(self, experiment: str) -> Payment | None:
        """Return what the reports to an experiment have cost; None: there are none."""
        ...

    def draw(self, experiment: str, times: int, seconds: float, period: int) -> bool:
        """Tell whether this time, of so many that the person comes, is the one that was drawn for the report."""
        ...

    def number(self, experiment: str, seed: int, people: int) -> int:
        """Return the device's number among an experiment's people, for the draw of this seed."""
        ...

    def waiting(self) -> list[SealedReport]:
        """Return the reports that no endpoint has answered for good."""
        ...

    def answered(self, report: SealedReport) -> None:
        """Overwrite a sealed report, since an endpoint has decided; its payment stays."""
        ...

    def choice(self, experiment: str) -> KeptChoice | None:
        """Return the choice that is kept for an experiment."""
        ...

    def choices(self) -> list[str]:
        """Return the experiments for which a choice is kept."""
        ...

    def change(self, experiment: str, change: Callable[[KeptChoice | None], KeptChoice | None]) -> KeptChoice | None:
        """Replace the choice that is kept by what ``change`` makes of it, at once; None once a report is paid for."""
        ...

    def change_arm(self, experiment: str, change: Callable[[KeptArm | None], KeptArm | None]) -> KeptArm | None:
        """Replace the arm that is kept by what ``change`` makes of it, at once; one that cannot be read is none."""
        ...

    def forget(self, experiment: str) -> None:
        """Overwrite the choice and the arm that are kept, whether they can be read or not: no report will be made."""
        ...

    def publication(self, experiment: str) -> bytes | None:
        """Return the publication that is kept for an experiment; None if there is none, or it is damaged."""
        ...

    def remember(self, experiment: str, publication: bytes) -> None:
        """Keep a publication, which is in its server's log, instead of the one before."""
        ...

    def has_witnessed(self, experiment: str, name: bytes) -> bool:
        """Whether the publication that is kept has this digest, and was in its server's log."""
        ...


class _Limit(NamedTuple):
    """The most that one cost may sum to, and the ledger's parameter that sets it; infinite: no limit."""

    cost: str
    parameter: str
    most: float

    def check(self, asked: Payment, before: Sequence[Payment], where: str) -> None:
        """Refuse a payment that exceeds the limit after those before it."""
        spent, wanted = sum(getattr(one, self.cost) for one in before), getattr(asked, self.cost)
        if spent + wanted > self.most * _ROUNDING:
            raise BudgetExceeded(
                f"spent {spent:g}{where}, asked {wanted:g}, limit {self.most:g}",
                field=self.cost,
                remedy=f"do not take part, or raise {self.parameter}",
            )


class SpendingLimits:
    """Limits on sums of payments, within a window of days.

    totals: the most that all experiments together may cost; None: no limit.
    shares: the most that the experiments of one server may cost; None: half of the total.
    window_days: days that the limits look back, today included; None: for ever.
    """

    def __init__(self, totals: Most, shares: Most, window_days: int | None) -> None:
        if window_days is not None and window_days < 1:
            raise InputError("must be at least 1", field="window_days", remedy="choose another window")
        self._window_days = window_days
        most = [math.inf if total is None else total for total in totals]
        parts = [_SHARE * total if share is None else share for share, total in zip(shares, most, strict=True)]
        self._totals, self._shares = _limits("total", most), _limits("per_server", parts)

    def check(self, asked: Payment, paid: Sequence[Payment]) -> None:
        """Refuse a payment of its day that exceeds a limit of all experiments, or of its server's."""
        since, window = -math.inf, ""
        if self._window_days is not None:
            since, window = asked.day - self._window_days, f" in {self._window_days} days"
        before = [one for one in paid if one.day > since]
        for limit in self._totals:
            limit.check(asked, before, window)
        for limit in self._shares:
            limit.check(asked, [one for one in before if one.server == asked.server], f" at {asked.server}{window}")


def _limits(prefix: str, most: Sequence[float]) -> list[_Limit]:
    limits = [_Limit(cost, f"{prefix}_{cost}", value) for cost, value in zip(COSTS, most, strict=True)]
    for limit in limits:
        if not limit.most >= 0:
            raise InputError("must be at least 0", field=limit.parameter, remedy="choose another limit")
    return limits


def changed_terms() -> TermsRefused:
    """Return the error about a server that has changed what all reports of a person share."""
    return TermsRefused(
        "reports a person, their period or their promise are not those of before",
        field="experiment.reports_per_person",
        remedy="do not take part",
    )
