"""Analyzers, which sum a round's reports by the policies that decided."""

from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import msgspec
import numpy as np
from typing_extensions import override

from privateer_core.mechanisms import Mechanism
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.public_coins import UNIT, EarlierChoices, Layout


class Analyzer(Protocol):
    """An analyzer of reports on the decisions of a policy."""

    def tally(self, mechanism: Mechanism, rows: bytes) -> Any:
        """Parse reports and return their total; `OutOfRange` if they are not reports of the round's mechanism."""
        ...

    def simulate(self, mechanism: Any, contributions: Any, rng: "np.random.Generator") -> Any:
        """Draw a release of participants with these contributions."""
        ...


class DirectAnalyzer(Analyzer):
    """Sums reports that do not depend on the deciding policy."""

    @override
    def tally(self, mechanism: Mechanism, rows: bytes) -> Any:
        return mechanism.add(mechanism.empty(), mechanism.parse(rows))

    @override
    def simulate(self, mechanism: Any, contributions: Any, rng: "np.random.Generator") -> Any:
        return mechanism.simulate(contributions, rng)


@dataclass(frozen=True)
class ChoiceAnalyzer(Analyzer):
    """Sums reports by the groups of their coins under an earlier policy."""

    choices: Layout  # the layout of the coins at the round's keys
    leaves_out: bool = False  # whether the last group is no group of the round: of coins with unknown choices

    @classmethod
    def from_layouts(cls, layout: Layout, earlier: Layout) -> Self:
        """Return the analyzer of a round with this layout, for coins that chose by an earlier one at the same keys.

        No coins chose groups that were added since.
        """
        thresholds = np.full((layout.keys, layout.groups - 1), UNIT, np.uint32)
        thresholds[:, : earlier.groups - 1] = earlier.thresholds
        return cls(EarlierChoices(layout.seed, thresholds, earlier, np.arange(layout.keys)))

    @override
    def tally(self, mechanism: Mechanism, rows: bytes) -> Any:
        recoded = self._with_choices(mechanism)
        return self._drop_last_group(recoded.add(recoded.empty(), recoded.parse(rows)))

    @override
    def simulate(self, mechanism: Any, contributions: KeyedValues, rng: "np.random.Generator") -> Any:
        """Draw a release with the choices' groups; participants with unknown choices are left out."""
        if self.leaves_out:
            is_unknown = (self.choices.thresholds[:, -1] == 0)[contributions.keys] & (contributions.keys >= 0)
            groups = np.where(is_unknown, self.choices.groups - 1, contributions.groups)
            contributions = replace(contributions, groups=groups)
        return self._drop_last_group(self._with_choices(mechanism).simulate(contributions, rng))

    def _with_choices(self, mechanism: Mechanism) -> Any:
        return msgspec.structs.replace(mechanism, layout=self.choices)

    def _drop_last_group(self, total: Any) -> Any:
        """Return a total or a release without the last group, if that is left out."""
        if not self.leaves_out:
            return total
        hits = total.hits if total.hits.ndim == 1 else total.hits[:, :-1]
        return replace(total, sums=total.sums[:, :-1], counts=total.counts[:, :-1], hits=hits)
