"""Limits on what a device's payments may cost together, over all experiments and for each server."""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from privateer_client.ledger.account_protocol import COSTS, Payment
from privateer_core.errors import BudgetExceeded, InputError

_SERVER_SHARE: Final = 0.5
"""Share of a total that one server may spend, so that as much remains for another server."""
_ROUNDING_FACTOR: Final = 1 + 1e-9
CostLimits: TypeAlias = Sequence[float | None]
"""A limit for each of `COSTS`; None: no limit."""


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
        self._totals, self._shares = _build_limits("total", bounds), _build_limits("per_server", server_bounds)

    def check(self, new: Payment, payments: Sequence[Payment]) -> None:
        """Refuse a payment that exceeds a limit of all experiments or of its server, within the window of days."""
        first_day, text, server = -math.inf, "", server_origin(new.experiment)
        if self._window_days is not None:
            first_day, text = new.day - self._window_days, f" in {self._window_days} days"
        recent = [payment for payment in payments if payment.day > first_day]
        for limit in self._totals:
            limit.check(new, recent, text)
        of_server = [payment for payment in recent if server_origin(payment.experiment) == server]
        for limit in self._shares:
            limit.check(new, of_server, f" at {server}{text}")


def _build_limits(prefix: str, bounds: Sequence[float]) -> list[_Limit]:
    """Return the limits of all costs, named after their parameters; refuse a bound below 0."""
    limits = [_Limit(cost, f"{prefix}_{cost}", value) for cost, value in zip(COSTS, bounds, strict=True)]
    for limit in limits:
        if not limit.max_sum >= 0:
            raise InputError("must be at least 0", field=limit.parameter, remedy="choose another limit")
    return limits


def server_origin(experiment: str) -> str:
    """Return the origin of an experiment's server by the experiment's identity: scheme, host and port, not the path."""
    return "/".join(experiment.split("/")[:3])
