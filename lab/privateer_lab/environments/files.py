"""Contexts from columns of a file: named by the spec's features, or principal components of many columns."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from privateer_core.errors import SpecError
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.categories import Categorical, Hashed, Ordinal
from privateer_core.spec.features import Numeric, Ranked
from privateer_core.spec.sections import Section
from privateer_core.spec.spec import Spec
from privateer_lab.environments.environment import Array, Environment, EnvironmentSection
from privateer_lab.tables import table_error
from privateer_lab.tables.data_column import Categories, Column, Numbers, Values
from privateer_lab.tables.data_table import DataTable

Names = tuple[Annotated[str, Field(min_length=1, max_length=256)], ...]
_BLOCK_NUMBERS: Final = 1 << 20
"""Numbers in a block of rows."""
_SCALING_QUANTILES: Final = (0.005, 0.995)


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

    def contexts(self) -> Array:
        """Return the contexts of filled columns, shape (n, d)."""
        return np.stack([self._read_feature(name) for name in self._features], axis=1)

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
    table.fill(source.columns, len(spec.features))
    return source.contexts()


class ProjectionSection(Section):
    """Contexts are the leading principal components of these columns, one a feature of the spec."""

    numbers: Names = ()  # numeric columns, standardized to mean 0 and variance 1
    categories: Names = ()  # other columns, one-hot: a column of 0 and 1 for every value that occurs

    @model_validator(mode="after")
    def _has_columns(self) -> "ProjectionSection":
        """Refuse a section that names no column, or one twice."""
        if not self.numbers and not self.categories:
            raise ValueError("name columns in numbers or categories")
        if len(set(self.numbers + self.categories)) < len(self.numbers + self.categories):
            raise ValueError("a column is named twice")
        return self


class Components:
    """Features that are the leading principal components of standardized numeric columns and one-hot categories.

    The directions come from the rows themselves, which is possible for simulated people and not for real devices: a
    real experiment would take them from public data.
    """

    def __init__(self, section: ProjectionSection, spec: ArmsSpec, header: Sequence[str]) -> None:
        for name in (*section.numbers, *section.categories):
            if name not in header:
                raise _project_error(f"no column of the file is named {name!r}", "name it as the file's header does")
        self._numbers = [Numbers(name) for name in section.numbers]
        self._categories = [Categories(name) for name in section.categories]
        self._n_components = len(spec.features)
        for name, feature in spec.features.items():
            if not isinstance(feature, Numeric | Ranked) or feature.missing:
                message, remedy = "must be a number that is never missing: it is a component", "give it low and high"
                raise SpecError(message, field=f"context.features.{name}", remedy=remedy)

    @property
    def columns(self) -> list[Column]:
        """The columns to fill."""
        return [*self._numbers, *self._categories]

    @property
    def width(self) -> int:
        """The number of numeric columns plus that of all values of categories."""
        return len(self._numbers) + sum(len(column.names) for column in self._categories)

    def contexts(self) -> Array:
        """Return components, shape (n, d), scaled so that [0, 1] holds 99 in 100 rows; devices clip the others."""
        for column in self.columns:
            if column.values.min() == column.values.max():
                raise _project_error(f"column {column.name!r} is constant: every row has the same value", "remove it")
        mean = np.sum([block.sum(axis=0) for block in self._iterate_blocks()], axis=0) / len(self.columns[0].values)
        scatter = np.sum([(block - mean).T @ (block - mean) for block in self._iterate_blocks()], axis=0)
        directions = self._leading_eigenvectors(scatter / len(self.columns[0].values))
        scores = np.concatenate([(block - mean) @ directions for block in self._iterate_blocks()])
        low, high = np.quantile(scores, _SCALING_QUANTILES, axis=0)
        low, high = np.where(high > low, (low, high), (scores.min(axis=0), scores.max(axis=0)))
        return np.asarray((scores - low) / (high - low))

    def _leading_eigenvectors(self, covariance: Array) -> Array:
        """Return eigenvectors of the largest variances, (width, d), each with its largest entry positive."""
        variances, directions = np.linalg.eigh(covariance)
        if self.width < self._n_components or variances[-self._n_components] < 1e-9 * variances[-1]:
            remedy = "name more columns in population.project, or fewer features"
            raise SpecError("there are fewer components than features", field="context.features", remedy=remedy)
        leading = directions[:, ::-1][:, : self._n_components]
        return np.asarray(leading * np.sign(leading[np.abs(leading).argmax(axis=0), np.arange(self._n_components)]))

    def _iterate_blocks(self) -> Iterator[Array]:
        """Yield standardized and one-hot columns in blocks of rows."""
        # One-hot, all rows at once would take many times the memory of the file.
        units = [(column.values.mean(), column.values.std()) for column in self._numbers]
        n_rows = max(1, _BLOCK_NUMBERS // self.width)
        for start in range(0, len(self.columns[0].values), n_rows):
            rows = slice(start, start + n_rows)
            scaled = [(column.values[rows, None] - m) / s for column, (m, s) in zip(self._numbers, units, strict=True)]
            one_hot = [column.values[rows, None] == np.arange(len(column.names)) for column in self._categories]
            yield np.concatenate([*scaled, *one_hot], axis=1, dtype=np.float64)


def _project_error(message: str, remedy: str) -> SpecError:
    return SpecError(message, field="population.project", remedy=remedy)


PATH_FIELD: Final = "population.path"
ADULT_COLUMNS: Final = (
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship"),
    *("race", "sex", "capital-gain", "capital-loss", "hours", "native-country", "income"),
)
PROJECTION: Final = ProjectionSection(
    numbers=("age", "education-num", "capital-gain", "capital-loss", "hours"),
    categories=("workclass", "marital-status", "occupation", "relationship", "race", "sex"),
)
"""46 columns once categories are one-hot and incomplete rows are left out: the number in Ma et al. 2025, Table 1."""
ADDED_EFFECTS: Final = np.array([[-0.074, -0.04, 0.01], [0.02, 0.06, 0.11]])
"""Effects on the share of incomes above 50K: for women and for men of below 40, 40, and more hours."""
_HOURS: Final = (40.0, 41.0)
_TASK_REWARDS: Final = {"offers": np.array([[0.35, 0.0], [0.1, 1.0]]), "income": np.eye(2)}
_INCOME_LABELS: Final = {"<=50K": 0, ">50K": 1, "<=50K.": 0, ">50K.": 1}
"""The test file's labels end in a dot."""
_TARGET_COUNTRY: Final = "United-States"


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
    """The rows of CSV files with a header: each row once, in the order of the run's seed, and then again."""

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
        """Refuse fewer than two or equal classes, and rows of rewards of unequal length."""
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
        source = Components(self.project, spec, table.header) if self.project else NamedColumns(spec, table.header)
        self._check_columns(table.header, [column.name for column in source.columns])
        table.fill([*source.columns, label], len(spec.features), drop=self.missing == "drop")
        check_classes_occur(label, "population.classes" if self.classes else "experiment.arms")
        # Algorithms without context have no column to look at.
        contexts = source.contexts() if spec.features else np.zeros((len(label.values), 0))
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
    # ``offers``: two offers, the first worth .35 to incomes up to 50K and 0 above, the second .1 and 1. ``income``:
    # guess the income's class, reward 1 for the right one (Ma et al. 2025). ``effects``: the reward is an income above
    # 50K, to which the second arm adds what `ADDED` says, by sex and hours.
    task: Literal["offers", "income", "effects"] = "offers"
    # ``all``; or of the rows without missing values, the ``target`` of Ma et al. (41,292 born in the United States) or
    # the ``source`` (3,930 born elsewhere).
    cohort: Literal["all", "target", "source"] = "all"
    # contexts are principal components of the 46 columns that Ma et al. count, instead of columns of the file.
    projected: bool = False

    def environment(self, spec: ArmsSpec, seed: int) -> ClassEnvironment:
        """Read the files; rows without a value that is needed are left out."""
        if spec.arm_count != 2:
            raise SpecError("population 'adult' has 2", field="experiment.arms", remedy="name two arms")
        table = DataTable(self.path, header=ADULT_COLUMNS, remark="|", field=PATH_FIELD)
        source = Components(PROJECTION, spec, ADULT_COLUMNS) if self.projected else NamedColumns(spec, ADULT_COLUMNS)
        country, income = Categories("native-country"), Categories("income", _INCOME_LABELS)
        needs_complete_rows = self.cohort != "all"
        sex, hours = Categories("sex"), Numbers("hours")
        cells = [sex, hours] if self.task == "effects" else []
        columns = [*source.columns, income, *([country] if needs_complete_rows else []), *cells]
        table.fill(columns, len(spec.features), complete=ADULT_COLUMNS if needs_complete_rows else (), drop=True)
        check_classes_occur(income, "population.path")
        contexts, labels, rewards = source.contexts(), income.values, _TASK_REWARDS.get(self.task)
        if rewards is None:
            cell = 3 * (sex.values == sex.names.get("Male", -1)) + np.searchsorted(_HOURS, hours.values, side="right")
            labels, rewards = 2 * cell + labels, _mean_rewards_by_class(cell, labels)
        if needs_complete_rows:
            born_here = country.values == country.names.get(_TARGET_COUNTRY, -1)
            chosen = born_here if self.cohort == "target" else ~born_here
            contexts, labels = contexts[chosen], labels[chosen]
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
