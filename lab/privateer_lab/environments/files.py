"""Environments of labelled rows of a file, whose columns the spec's features name."""

from collections.abc import Sequence
from typing import Annotated, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from privateer_core.errors import SpecError
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.categories import Categorical, Hashed, Ordinal
from privateer_core.spec.features import Numeric, Ranked
from privateer_core.spec.spec import Spec
from privateer_lab.environments.environment import Array, Environment, EnvironmentSection
from privateer_lab.tables import table_error
from privateer_lab.tables.data_column import Categories, Column, Numbers, Values
from privateer_lab.tables.data_table import DataTable

Names = tuple[Annotated[str, Field(min_length=1, max_length=256)], ...]


class NamedColumns:
    """Contexts from columns: that of a feature's name; or, for ``column=value``, 1 where the column has the value."""

    def __init__(self, spec: Spec, header: Sequence[str]) -> None:
        self._features = tuple(spec.features)
        self._values: dict[str, Column] = {}
        self._categories: dict[str, Categories] = {}
        for name, feature in spec.features.items():
            column, *value = name.split("=", 1)
            if name in header:
                is_number = isinstance(feature, Numeric | Ranked)
                self._values[name] = Numbers(name, optional=feature.missing) if is_number else Values(name, feature)
            elif value and column in header and not isinstance(feature, Categorical | Hashed | Ordinal):
                self._categories[column] = Categories(column)
            else:
                message, field = "no column of the table has this name", f"context.features.{name}"
                raise SpecError(message, field=field, remedy="name it as the table's header does")

    @property
    def columns(self) -> list[Column]:
        """The columns to fill."""
        return [*self._values.values(), *self._categories.values()]

    def contexts(self, n_rows: int) -> Array:
        """Return the contexts of filled columns, shape (n_rows, d); d is 0 without features."""
        columns = [self._read_feature(name) for name in self._features]
        return np.stack(columns, axis=1) if columns else np.zeros((n_rows, 0))

    def _read_feature(self, name: str) -> Array:
        """Read a numeric column, or 1 and 0 for column=value; refuse a value that no row has."""
        if name in self._values:
            return self._values[name].values
        column, value = name.split("=", 1)
        categories = self._categories[column]
        if value not in categories.names:
            message = f"no row of the file has this value in column {column!r}"
            raise SpecError(message, field=f"context.features.{name}", remedy="correct its spelling or remove it")
        return np.asarray(categories.values == categories.names[value], np.float64)


def read_contexts(table: DataTable, spec: Spec) -> Array:
    """Read the features of a spec, as devices do, from the columns of their names; shape (n, features)."""
    if not spec.features:
        return np.zeros((table.rows, 0))
    source = NamedColumns(spec, table.header)
    table.read_into(source.columns, len(spec.features))
    return source.contexts(table.rows)


PATH_FIELD: Final = "population.path"
ADULT_COLUMNS: Final = (
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship"),
    *("race", "sex", "capital-gain", "capital-loss", "hours", "native-country", "income"),
)
ADDED_EFFECTS: Final = np.array([[-0.074, -0.04, 0.01], [0.02, 0.06, 0.11]])
"""Effects on the share of incomes above 50K: for women and for men of below 40, 40, and more hours."""
_HOURS: Final = (40.0, 41.0)
_OFFERED_REWARDS: Final = np.array([[0.35, 0.0], [0.1, 1.0]])
_INCOME_LABELS: Final = {"<=50K": 0, ">50K": 1, "<=50K.": 0, ">50K.": 1}
"""The test file's labels end in a dot."""


class ClassEnvironment(Environment):
    """Environment of labelled rows: each row once, in the seed's order, and then again.

    Rewards are 1 with a probability by class, (classes, arms). No policy can see the class: regret is against one that
    knows it.
    """

    def __init__(self, contexts: Array, labels: NDArray[np.int32], rewards: Array, seed: int) -> None:
        order = np.random.default_rng([seed, 2]).permutation(len(labels))
        self._contexts, self._labels, self._rewards = contexts[order], labels[order], rewards

    def contexts(self, n_previous: int, n_participants: int, _rng: np.random.Generator) -> Array:
        """Return features, and last the class; shape (n, d + 1)."""
        rows = (n_previous + np.arange(n_participants)) % len(self._labels)
        return np.column_stack([self._contexts[rows], self._labels[rows]])

    def means(self, contexts: Array) -> Array:
        """Return the expected rewards of each participant's class, shape (n, arms)."""
        return np.asarray(self._rewards[contexts[:, -1].astype(np.int64)])


class CsvSection(EnvironmentSection):
    """The rows of CSV files with a header: each row once, in the order of the run's seed, and then again.

    A feature of the spec is the column of its name, and ``column=value`` is 1 where a column has that value and 0
    elsewhere.
    """

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

    @model_validator(mode="after")
    def _check_classes_and_rewards(self) -> "CsvSection":
        """Refuse fewer than two classes, repeated classes, and rows of rewards of unequal length."""
        if self.classes is not None and (len(self.classes) < 2 or len(set(self.classes)) < len(self.classes)):
            raise ValueError("classes: must be two or more distinct values")
        if self.rewards is not None and len({len(row) for row in self.rewards}) != 1:
            raise ValueError("rewards: must have rows of equal length, a number for every arm")
        return self

    def environment(self, spec: ArmsSpec, seed: int) -> ClassEnvironment:
        """Read the files; errors name row, column and remedy."""
        classes = self.classes or spec.experiment.arms
        rewards = self._reward_probabilities(len(classes), spec.arm_count)
        table = DataTable(self.path, field=PATH_FIELD)
        if self.label not in table.header:
            raise SpecError("no column of the file has this name", field="population.label", remedy="see its header")
        label = Categories(self.label, {name: number for number, name in enumerate(classes)})
        source = NamedColumns(spec, table.header)
        self._check_columns(table.header, [column.name for column in source.columns])
        table.read_into([*source.columns, label], len(spec.features), drop=self.missing == "drop")
        check_classes_occur(label, "population.classes" if self.classes else "experiment.arms")
        contexts = source.contexts(len(label.values))
        check_features(contexts, spec)
        return ClassEnvironment(contexts, label.values, rewards, seed)

    def _reward_probabilities(self, classes: int, arms: int) -> Array:
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
        """Refuse the label as a feature, and columns that the spec does not mention."""
        if self.label in used:
            message = "is a feature too: no device knows its class"
            raise SpecError(message, field="population.label", remedy="remove it from the features")
        unmentioned = [name for name in header if name not in {*used, self.label, *self.ignore}]
        if unmentioned and "*" not in self.ignore:
            remedy = "name it in context.features, or in population.ignore ('*' for all others)"
            raise table_error(f"the spec does not mention column {unmentioned[0]!r}", remedy, PATH_FIELD)


def check_classes_occur(label: Categories, field: str) -> None:
    """Refuse a file in which a class never occurs, or which is empty."""
    for name, number in label.names.items():
        if not (label.values == number).any():
            remedy = "correct its spelling, or give population.classes"
            raise SpecError(f"no row of the file is of class {name!r}", field=field, remedy=remedy)


def check_features(contexts: Array, spec: ArmsSpec) -> None:
    """Refuse features with the same value in all rows."""
    if not len(contexts):
        raise SpecError("no row is left", field="population", remedy="choose other people")
    for values, (name, feature) in zip(contexts.T, spec.features.items(), strict=True):
        field = f"context.features.{name}"
        numeric = isinstance(feature, Numeric)
        if numeric and (values == values[0]).all():
            raise SpecError("the column is constant: every row has the same value", field=field, remedy="remove it")
        if isinstance(feature, Categorical) and len(feature.levels) == 1:
            continue  # a constant feature of a spec that distinguishes no participants
        columns = feature.encode(values)
        if (columns == columns[0]).all():
            message = "every row is on the same side of low and high" if numeric else "every row counts as the same"
            remedy = "correct the bounds" if numeric else "correct its levels or cut points, or remove it"
            raise SpecError(message, field=field, remedy=remedy)


class AdultSection(EnvironmentSection):
    """The UCI Adult census."""

    name: Literal["adult"]
    path: str = Field(min_length=1)  # one or more of its files, plain or gzipped, separated by commas
    # ``offers``: two offers, the first worth .35 to incomes up to 50K and .1 above, the second 0 and 1.
    # ``effects``: the reward is an income above 50K, to which the second arm adds `ADDED_EFFECTS` by sex and hours.
    task: Literal["offers", "effects"] = "offers"

    def environment(self, spec: ArmsSpec, seed: int) -> ClassEnvironment:
        """Read the files; rows without a value that is needed are left out."""
        if spec.arm_count != 2:
            raise SpecError("population 'adult' has 2", field="experiment.arms", remedy="name two arms")
        table = DataTable(self.path, header=ADULT_COLUMNS, remark="|", field=PATH_FIELD)
        source = NamedColumns(spec, ADULT_COLUMNS)
        income, sex, hours = Categories("income", _INCOME_LABELS), Categories("sex"), Numbers("hours")
        cells = [sex, hours] if self.task == "effects" else []
        table.read_into([*source.columns, income, *cells], len(spec.features), drop=True)
        check_classes_occur(income, "population.path")
        contexts, labels, rewards = source.contexts(len(income.values)), income.values, _OFFERED_REWARDS
        if cells:
            cell = 3 * (sex.values == sex.names.get("Male", -1)) + np.searchsorted(_HOURS, hours.values, side="right")
            labels, rewards = 2 * cell + labels, _mean_rewards_by_class(cell, labels)
        check_features(contexts, spec)
        return ClassEnvironment(contexts, labels, rewards, seed)


def _mean_rewards_by_class(cell: NDArray[np.integer], labels: NDArray[np.integer]) -> Array:
    """Return the mean rewards of both arms, (12, 2), for classes of 2 * cell + label.

    A negative effect removes rewards from participants with label 1; a positive one adds rewards to those with label 0.
    """
    rewards = np.tile([[0.0, 0.0], [1.0, 1.0]], (6, 1))
    for index, effect in enumerate(ADDED_EFFECTS.ravel().tolist()):
        outcome_rate = float(labels[cell == index].mean()) if (cell == index).any() else 0.5
        if effect < 0 < outcome_rate:
            rewards[2 * index + 1, 1] = max(0.0, 1 + effect / outcome_rate)
        elif effect > 0 and outcome_rate < 1:
            rewards[2 * index, 1] = min(1.0, effect / (1 - outcome_rate))
    return np.asarray(rewards)
