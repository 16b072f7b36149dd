"""People of tables in which everybody has a class: CSV files of any data, and UCI Adult."""

from collections.abc import Sequence
from typing import Annotated, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from privateer_core.errors import SpecError
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.categories import Categorical
from privateer_core.spec.features import Numeric
from privateer_lab.environments.environment import Array, Environment, EnvironmentSection
from privateer_lab.environments.file_contexts import Named, Names, Projected, ProjectionSection
from privateer_lab.tables import refused
from privateer_lab.tables.columns import Categories, Numbers
from privateer_lab.tables.data_table import DataTable

PATH: Final = "population.path"
COLUMNS: Final = (
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital-gain",
    "capital-loss",
    "hours",
    "native-country",
    "income",
)
PROJECTION: Final = ProjectionSection(
    numbers=("age", "education-num", "capital-gain", "capital-loss", "hours"),
    categories=("workclass", "marital-status", "occupation", "relationship", "race", "sex"),
)
"""46 columns once categories are one-hot and incomplete rows are left out: the number in Ma et al. 2025, Table 1."""
ADDED: Final = np.array([[-0.074, -0.04, 0.01], [0.02, 0.06, 0.11]])
"""What an arm adds to the share of incomes above 50K: for women and for men of below 40, 40, and more hours."""
_HOURS: Final = (40.0, 41.0)
_REWARDS: Final = {"offers": np.array([[0.35, 0.0], [0.1, 1.0]]), "income": np.eye(2)}
_INCOMES: Final = {"<=50K": 0, ">50K": 1, "<=50K.": 0, ">50K.": 1}
"""The test file's labels end in a dot."""
_TARGET: Final = "United-States"


class Classified(Environment):
    """An environment that shows every row once, in an order that the seed decides, and then begins again.

    The truth is the class, which no policy can see: regret is against somebody who knows it.

    contexts (n, d): in their own units.
    labels: class of each person, shape (n,).
    rewards: probability of reward 1, shape (classes, arms).
    seed: decides the order.
    """

    def __init__(self, contexts: Array, labels: NDArray[np.int32], rewards: Array, seed: int) -> None:
        order = np.random.default_rng([seed, 2]).permutation(len(labels))
        self._people, self._labels, self._rewards = contexts[order], labels[order], rewards

    def contexts(self, seen: int, people: int, _rng: np.random.Generator) -> Array:
        """Return features, and last the class; shape (n, d + 1)."""
        rows = (seen + np.arange(people)) % len(self._labels)
        return np.column_stack([self._people[rows], self._labels[rows]])

    def means(self, contexts: Array) -> Array:
        """Return the rewards of each person's class, shape (n, arms)."""
        return np.asarray(self._rewards[contexts[:, -1].astype(np.int64)])


class CsvSection(EnvironmentSection):
    """The rows of CSV files with a header: everybody once, in an order that the run's seed decides; then over again."""

    name: Literal["csv"]
    # the file, plain or gzipped; several, with the same columns, are separated by commas
    path: str = Field(min_length=1)
    label: str = Field(min_length=1)  # the column that says which class somebody belongs to; no device knows it
    classes: Names | None = None  # its values; by default the names of the arms
    # row by class, the probability of reward 1 of every arm; by default 1 for the arm of the same position and 0
    # otherwise: a classification bandit (Ma et al. 2025, Section 4.2).
    rewards: tuple[tuple[Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)], ...], ...] | None = None
    # ``drop`` leaves out rows without a value that is needed; ``refuse`` names the first
    missing: Literal["refuse", "drop"] = "refuse"
    ignore: Names = ()  # columns that nobody uses; ``*`` for all others
    # makes contexts of principal components. Otherwise a feature of the spec is the column of its name, and
    # ``column=value`` is 1 where a column has that value and 0 elsewhere.
    project: ProjectionSection | None = None

    @model_validator(mode="after")
    def _has_rewards_for_its_classes(self) -> "CsvSection":
        if self.classes is not None and (len(self.classes) < 2 or len(set(self.classes)) < len(self.classes)):
            raise ValueError("classes: must be two or more distinct values")
        if self.rewards is not None and len({len(row) for row in self.rewards}) != 1:
            raise ValueError("rewards: must have rows of equal length, a number for every arm")
        return self

    def environment(self, spec: ArmsSpec, seed: int) -> Classified:
        """Read the files; errors name row, column and remedy."""
        classes = self.classes or spec.experiment.arms
        rewards = self._rewards(len(classes), spec.arm_count)
        table = DataTable(self.path, field=PATH)
        if self.label not in table.header:
            raise SpecError("no column of the file has this name", field="population.label", remedy="see its header")
        label = Categories(self.label, {name: number for number, name in enumerate(classes)})
        source = Projected(self.project, spec, table.header) if self.project else Named(spec, table.header)
        self._check_columns(table.header, [column.name for column in source.columns])
        table.fill([*source.columns, label], len(spec.features), drop=self.missing == "drop")
        check_all_occur(label, "population.classes" if self.classes else "experiment.arms")
        # Algorithms without context have no column to look at.
        contexts = source.contexts() if spec.features else np.zeros((len(label.values), 0))
        check_features(contexts, spec)
        return Classified(contexts, label.values, rewards, seed)

    def _rewards(self, classes: int, arms: int) -> Array:
        """Return probabilities of reward 1, (classes, arms)."""
        rewards = np.eye(classes) if self.rewards is None else np.array(self.rewards)
        if rewards.shape == (classes, arms):
            return rewards
        if self.rewards is None:
            message, field = f"there are {classes}, and {arms} arms", "population.classes"
            raise SpecError(message, field=field, remedy="give population.rewards, a row by class and a number by arm")
        message = f"must be {classes} rows, one a class, of {arms} numbers, one an arm"
        raise SpecError(message, field="population.rewards", remedy="correct it")

    def _check_columns(self, header: Sequence[str], used: Sequence[str]) -> None:
        """Refuse the label as a feature, and columns that nobody mentions."""
        if self.label in used:
            message = "is a feature too: no device knows its class"
            raise SpecError(message, field="population.label", remedy="remove it from the features")
        rest = [name for name in header if name not in {*used, self.label, *self.ignore}]
        if rest and "*" not in self.ignore:
            remedy = "name it in context.features, or in population.ignore ('*' for all others)"
            raise refused(f"the spec does not mention column {rest[0]!r}", remedy, PATH)


def check_all_occur(label: Categories, field: str) -> None:
    """Refuse a file in which a class never occurs, or which is empty."""
    for name, number in label.names.items():
        if not (label.values == number).any():
            remedy = "correct its spelling, or give population.classes"
            raise SpecError(f"no row of the file is of class {name!r}", field=field, remedy=remedy)


def check_features(contexts: Array, spec: ArmsSpec) -> None:
    """Refuse features that cannot distinguish anybody from anybody else."""
    if not len(contexts):
        raise SpecError("no row is left", field="population", remedy="choose other people")
    for values, (name, feature) in zip(contexts.T, spec.features.items(), strict=True):
        field = f"context.features.{name}"
        numeric = isinstance(feature, Numeric)
        if numeric and (values == values[0]).all():
            raise SpecError("the column is constant: every row has the same value", field=field, remedy="remove it")
        if isinstance(feature, Categorical) and len(feature.levels) == 1:
            continue  # which the spec has so that it has one: nobody is told apart
        columns = feature.encode(values)
        if (columns == columns[0]).all():
            message = "every row is on the same side of low and high" if numeric else "every row counts as the same"
            remedy = "correct the bounds" if numeric else "correct its levels or cut points, or remove it"
            raise SpecError(message, field=field, remedy=remedy)


# fmt: off
# fmt: on


class AdultSection(EnvironmentSection):
    """The UCI Adult census."""

    name: Literal["adult"]
    path: str = Field(min_length=1)  # one or more of its files, plain or gzipped, separated by commas
    # ``offers``: two offers, the first worth .35 to incomes up to 50K and 0 above, the second .1 and 1. ``income``:
    # guess the income's class, reward 1 for the right one (Ma et al. 2025). ``effects``: the reward is an income above
    # 50K, to which the second arm adds what `ADDED` says, by sex and hours.
    task: Literal["offers", "income", "effects"] = "offers"
    # ``all``; or of the rows without missing values, the ``target`` of Ma et al. (41,292 born in the United States) or
    # the ``source`` (3,930 born elsewhere).
    cohort: Literal["all", "target", "source"] = "all"
    # contexts are principal components of the 46 columns that Ma et al. count, instead of columns of the file.
    projected: bool = False

    def environment(self, spec: ArmsSpec, seed: int) -> Classified:
        """Read the files; rows without a value that is needed are left out."""
        if spec.arm_count != 2:
            raise SpecError("population 'adult' has 2", field="experiment.arms", remedy="name two arms")
        table = DataTable(self.path, header=COLUMNS, remark="|", field=PATH)
        source = Projected(PROJECTION, spec, COLUMNS) if self.projected else Named(spec, COLUMNS)
        country, income = Categories("native-country"), Categories("income", _INCOMES)
        parts = self.cohort != "all"
        sex, hours = Categories("sex"), Numbers("hours")
        cells = [sex, hours] if self.task == "effects" else []
        columns = [*source.columns, income, *([country] if parts else []), *cells]
        table.fill(columns, len(spec.features), complete=COLUMNS if parts else (), drop=True)
        check_all_occur(income, "population.path")
        contexts, labels, rewards = source.contexts(), income.values, _REWARDS.get(self.task)
        if rewards is None:
            cell = 3 * (sex.values == sex.names.get("Male", -1)) + np.searchsorted(_HOURS, hours.values, side="right")
            labels, rewards = 2 * cell + labels, _added(cell, labels)
        if parts:
            born_here = country.values == country.names.get(_TARGET, -1)
            chosen = born_here if self.cohort == "target" else ~born_here
            contexts, labels = contexts[chosen], labels[chosen]
        check_features(contexts, spec)
        return Classified(contexts, labels, rewards, seed)


def _added(cell: NDArray[np.integer], labels: NDArray[np.integer]) -> Array:
    """Return the mean rewards of both arms, (12, 2), for classes of 2 * cell + label.

    An effect takes a reward from as many of those who have one, or gives it to as many of those who have none.
    """
    rewards = np.tile([[0.0, 0.0], [1.0, 1.0]], (6, 1))
    for place, effect in enumerate(ADDED.ravel().tolist()):
        rate = float(labels[cell == place].mean()) if (cell == place).any() else 0.5
        if effect < 0 < rate:
            rewards[2 * place + 1, 1] = max(0.0, 1 + effect / rate)
        elif effect > 0 and rate < 1:
            rewards[2 * place, 1] = min(1.0, effect / (1 - rate))
    return np.asarray(rewards)
