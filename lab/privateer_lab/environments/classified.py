"""People read from a file, whose class decides which arm is right for them."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from privateer.errors import SpecError
from privateer.experiment import Spec
from privateer.population import CsvPopulation
from privateer_lab.environments.bernoulli import played
from privateer_lab.environments.column import Classes
from privateer_lab.environments.named import Named, check_features
from privateer_lab.environments.projection import Projected
from privateer_lab.environments.table import FIELD, Table


class Classified:
    """Everybody once, in an order that the seed decides; then over again.

    The truth is the class, which nobody can see: regret is against somebody who knows it.

    Parameters
    ----------
    features
        Shape (n, d), in their own units.
    labels
        Class of each person, shape (n,).
    rewards
        Chance of reward 1, shape (classes, arms).
    seed
        Of the order.
    """

    def __init__(
        self, features: NDArray[np.float64], labels: NDArray[np.int32], rewards: NDArray[np.float64], seed: int
    ) -> None:
        order = np.random.default_rng([seed, 2]).permutation(len(labels))
        self.features, self.arms = features.shape[1], rewards.shape[1]
        self._people, self._labels, self._rewards = features[order], labels[order], rewards

    def contexts(self, seen: int, people: int, _rng: np.random.Generator) -> NDArray[np.float64]:
        """Features, and last the class; shape (n, d + 1)."""
        rows = (seen + np.arange(people)) % len(self._labels)
        return np.column_stack([self._people[rows], self._labels[rows]])

    def means(self, contexts: NDArray[np.float64]) -> NDArray[np.float64]:
        """Shape (n, arms)."""
        return np.asarray(self._rewards[contexts[:, -1].astype(np.int64)])

    def rewards(
        self, contexts: NDArray[np.float64], arms: NDArray[np.int64], rng: np.random.Generator
    ) -> NDArray[np.float64]:
        """Shape (n,), 0 or 1."""
        return played(self.means(contexts), arms, rng)


def read_classified(section: CsvPopulation, spec: Spec, seed: int) -> Classified:
    """The rows of CSV files as people.

    Raises
    ------
    SpecError
        If a file cannot be used, or does not fit the spec; names row, column and remedy.
    """
    classes = section.classes or spec.experiment.arms
    rewards = _rewards(section, len(classes), spec.arm_count)
    table = Table(section.path)
    if section.label not in table.header:
        raise SpecError("no column of the file has this name", field="population.label", remedy="see its header")
    label = Classes(section.label, classes)
    source = Projected(section.project, spec, table.header) if section.project else Named(spec, table.header)
    _check_columns(section, table.header, [column.name for column in source.columns])
    table.fill([*source.columns, label], spec.dimension, drop=section.missing == "drop")
    label.check("population.classes" if section.classes else "experiment.arms")
    contexts = source.contexts()
    check_features(contexts, spec)
    return Classified(contexts, label.codes, rewards, seed)


def _rewards(section: CsvPopulation, classes: int, arms: int) -> NDArray[np.float64]:
    """Chances of reward 1, (classes, arms)."""
    rewards = np.eye(classes) if section.rewards is None else np.array(section.rewards)
    if rewards.shape == (classes, arms):
        return rewards
    if section.rewards is None:
        message, field = f"there are {classes}, and {arms} arms", "population.classes"
        raise SpecError(message, field=field, remedy="give population.rewards, a row by class and a number by arm")
    message = f"must be {classes} rows, one a class, of {arms} numbers, one an arm"
    raise SpecError(message, field="population.rewards", remedy="correct it")


def _check_columns(section: CsvPopulation, header: Sequence[str], used: Sequence[str]) -> None:
    """Refuse the label as a feature, and columns that nobody mentions."""
    if section.label in used:
        message = "is a feature too: no device knows its class"
        raise SpecError(message, field="population.label", remedy="remove it from the features")
    if "*" in section.ignore:
        return
    rest = [name for name in header if name not in {*used, section.label, *section.ignore}]
    if rest:
        remedy = "name it in context.features, or in population.ignore ('*' for all others)"
        raise SpecError(f"the spec does not mention column {rest[0]!r}", field=FIELD, remedy=remedy)
