"""Which people of data are the target and which are sources: by the values of a column, or by how often these occur."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privateer_core.errors import SpecError

Chosen = NDArray[np.bool_]


@dataclass(frozen=True)
class CohortsByValue:
    """Values of a column name the cohorts."""

    sources: Mapping[str, tuple[str, ...]]  # values of each source, by its name
    target: tuple[str, ...] = ()  # values of the target; none: all that no source has

    def choose(self, values: NDArray[np.str_]) -> tuple[Chosen, dict[str, Chosen]]:
        """Return who is in the target and in each source, shape (n,) each."""
        taken = [value for own in self.sources.values() for value in own]
        target = np.isin(values, self.target) if self.target else ~np.isin(values, taken)
        return target, {name: np.isin(values, own) for name, own in self.sources.items()}


@dataclass(frozen=True)
class CohortsBySize:
    """Two values of a column are the target and the one source: those that occur nearest to as often as is known."""

    # numbers of people that were printed; which values they have was not
    target: int
    source: int

    def choose(self, values: NDArray[np.str_]) -> tuple[Chosen, dict[str, Chosen]]:
        """Return who is in the target and in the source, shape (n,) each."""
        found, counts = np.unique(values, return_counts=True)
        if len(found) < 2:
            raise SpecError("all rows are of one cohort", field="population.path", remedy="give the whole file")
        sizes = dict(zip(found.tolist(), counts.tolist(), strict=True))
        target = min(sizes, key=lambda name: abs(sizes[name] - self.target))
        del sizes[target]
        source = min(sizes, key=lambda name: abs(sizes[name] - self.source))
        return values == target, {source: values == source}
