"""Analyzers, which add up a round's reports where their meaning depends on the policy that decided."""

from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import msgspec
import numpy as np
from typing_extensions import override

from privateer_core.mechanisms import Mechanism
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.public_coins import UNIT, EarlierChoices, Layout


class Analyzer(Protocol):
    """An analyzer of reports on the decisions of one policy."""

    def tally(self, mechanism: Mechanism, rows: bytes) -> Any:
        """Parse reports and return their total.

        Raises
        ------
        OutOfRange
            If they are not reports of the round's mechanism.
        """
        ...

    def simulate(self, mechanism: Any, contributions: Any, rng: "np.random.Generator") -> Any:
        """Draw a release of people who decided so."""
        ...


class Counted(Analyzer):
    """Counts reports that mean the same whichever policy decided."""

    @override
    def tally(self, mechanism: Mechanism, rows: bytes) -> Any:
        return mechanism.add(mechanism.empty(), mechanism.parse(rows))

    @override
    def simulate(self, mechanism: Any, contributions: Any, rng: "np.random.Generator") -> Any:
        return mechanism.simulate(contributions, rng)


@dataclass(frozen=True)
class ByChoices(Analyzer):
    """Counts reports whose coins chose a group under an earlier policy, by what they meant then.

    Attributes
    ----------
    choices
        What the coins mean at the round's keys.
    leaves_out
        Whether the last group of the choices is no group of the round: of coins of which nobody knows what they chose.
    """

    choices: Layout
    leaves_out: bool = False

    @classmethod
    def of(cls, now: Layout, then: Layout) -> Self:
        """Return what counts reports to a round with this layout, whose coins chose by an earlier one at the same keys.

        Groups that were added since were chosen by nobody.
        """
        thresholds = np.full((now.keys, now.groups - 1), UNIT, np.uint32)
        thresholds[:, : then.groups - 1] = then.thresholds
        return cls(EarlierChoices(now.seed, thresholds, then, np.arange(now.keys)))

    @override
    def tally(self, mechanism: Mechanism, rows: bytes) -> Any:
        aware = self._aware(mechanism)
        return self._known(aware.add(aware.empty(), aware.parse(rows)))

    @override
    def simulate(self, mechanism: Any, contributions: KeyedValues, rng: "np.random.Generator") -> Any:
        if self.leaves_out:
            unknown = (self.choices.thresholds[:, -1] == 0)[contributions.keys] & (contributions.keys >= 0)
            groups = np.where(unknown, self.choices.groups - 1, contributions.groups)
            contributions = replace(contributions, groups=groups)
        return self._known(self._aware(mechanism).simulate(contributions, rng))

    def _aware(self, mechanism: Mechanism) -> Any:
        return msgspec.structs.replace(mechanism, layout=self.choices)

    def _known(self, counted: Any) -> Any:
        """Return a total or a release without the group that is left out."""
        if not self.leaves_out:
            return counted
        hits = counted.hits if counted.hits.ndim == 1 else counted.hits[:, :-1]
        return replace(counted, sums=counted.sums[:, :-1], counts=counted.counts[:, :-1], hits=hits)
