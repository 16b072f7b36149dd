"""What a device may spend: on all experiments together, and on those of one server."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from privateer.errors import BudgetExceeded, InputError
from privateer_client.account import Payment

COSTS: Final = ("epsilon", "delta", "local_epsilon")
_SHARE: Final = 0.5
"""One server may spend this share of a total: whatever one takes, as much is left for another."""
_ROUNDING: Final = 1 + 1e-9


@dataclass(frozen=True)
class Limit:
    """The most that one cost may sum to.

    Attributes
    ----------
    cost
        ``epsilon``, ``delta`` or ``local_epsilon``.
    parameter
        The ledger's parameter that sets it.
    most
        Infinite: no limit.
    """

    cost: str
    parameter: str
    most: float

    def check(self, asked: Payment, before: Iterable[Payment], where: str) -> None:
        """Refuse what is beyond the limit after what was spent before."""
        spent, wanted = sum(getattr(one, self.cost) for one in before), getattr(asked, self.cost)
        if spent + wanted > self.most * _ROUNDING:
            raise BudgetExceeded(
                f"spent {spent:g}{where}, asked {wanted:g}, limit {self.most:g}",
                field=self.cost,
                remedy=f"do not take part, or raise {self.parameter}",
            )


class Budget:
    """Limits on sums of epsilon, delta and local epsilon (basic composition).

    Parameters
    ----------
    totals, per_server
        The most of each cost, of all experiments and of one server's; None: no limit, and half of the total.
    window
        How messages name the days that are looked back; empty: for ever.

    Raises
    ------
    InputError
        If a limit is negative or no number.
    """

    def __init__(self, totals: Mapping[str, float | None], per_server: Mapping[str, float | None], window: str) -> None:
        most = {cost: _or(totals[cost], math.inf) for cost in COSTS}
        self._totals = [_limit(cost, f"total_{cost}", most[cost]) for cost in COSTS]
        self._shares = [
            _limit(cost, f"per_server_{cost}", _or(per_server[cost], _SHARE * most[cost])) for cost in COSTS
        ]
        self._window = window

    def check(self, asked: Payment, before: list[Payment]) -> None:
        """Refuse a cost that is beyond a limit.

        Raises
        ------
        BudgetExceeded
            Stating spent, asked and limit.
        """
        for limit in self._totals:
            limit.check(asked, before, self._window)
        mine = [one for one in before if one.server == asked.server]
        for limit in self._shares:
            limit.check(asked, mine, f" at {asked.server}{self._window}")


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value


def _limit(cost: str, parameter: str, most: float) -> Limit:
    if not most >= 0:
        raise InputError("must be at least 0", field=parameter, remedy="choose another limit")
    return Limit(cost, parameter, most)
