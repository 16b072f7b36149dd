"""The most that the payments of a device may sum to: of all experiments together, and of those of one server."""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from privateer_client.ledger.account_protocol import Payment
from privateer_core.errors import BudgetExceeded, InputError

COSTS: Final = ("epsilon", "delta", "local_epsilon")
_SHARE: Final = 0.5
"""One server may spend this share of a total: whatever one takes, as much is left for another."""
_ROUNDING: Final = 1 + 1e-9
Most: TypeAlias = Sequence[float | None]
"""A limit for each of `COSTS`; None: none is given."""


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

    Parameters
    ----------
    totals
        The most that all experiments together may cost; None: no limit.
    shares
        The most that the experiments of one server may cost; None: half of the total.
    window_days
        Days that the limits look back, today included; None: for ever.

    Raises
    ------
    InputError
        If a limit or the window is out of range.
    """

    def __init__(self, totals: Most, shares: Most, window_days: int | None) -> None:
        if window_days is not None and window_days < 1:
            raise InputError("must be at least 1", field="window_days", remedy="choose another window")
        self._window_days = window_days
        most = [math.inf if total is None else total for total in totals]
        parts = [_SHARE * total if share is None else share for share, total in zip(shares, most, strict=True)]
        self._totals, self._shares = _limits("total", most), _limits("per_server", parts)

    def check(self, asked: Payment, paid: Sequence[Payment]) -> None:
        """Refuse a payment of its day that exceeds a limit of all experiments, or of its server's.

        Raises
        ------
        BudgetExceeded
            If a sum would exceed its limit; states spent, asked and limit.
        """
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
