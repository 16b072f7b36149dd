"""Environment of a file's rows, with a column of expected rewards for each arm."""

import math
from hashlib import sha256
from typing import Annotated, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from privateer_core.errors import SpecError
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.reward import Reward
from privateer_core.spec.sections import Section
from privateer_lab.environments.environment import Array, Environment, EnvironmentSection
from privateer_lab.environments.files import PATH_FIELD, NamedColumns, Names, check_features
from privateer_lab.tables.data_column import Categories, Numbers
from privateer_lab.tables.data_table import DataTable, check_columns_exist
from privateer_lab.tables.table_files import find_files

OF_ARM: Final = " of "
"""Separator of the reward's and the arm's name, in the names of columns of expected rewards."""
_MAX_GROUPS: Final = 20
_MIN_GROUP_SIZE: Final = 50
"""Smallest group of rows among whose rewards a reward is drawn; a group is a twentieth of the rows or larger."""


class ObservedSection(Section):
    """The columns of observed rewards, from which simulated rewards are drawn."""

    # got, expected: the reward that each row's person got, and what could be expected of the option that they had
    got: Annotated[str, Field(min_length=1)]
    expected: Annotated[str, Field(min_length=1)]


class RowsSection(EnvironmentSection):
    """The rows of CSV or Parquet files, drawn with replacement; a feature of the spec is the column of its name."""

    name: Literal["rows"]
    path: str = Field(min_length=1)  # the file; several, with the same columns, are separated by commas
    # columns of expected rewards, one an option in the spec's order, in the reward's own unit; by default those of the
    # options' names. Rewards of yes or no come with this probability; numbers are what the column has.
    rewards: Names | None = None
    # standard deviation of a normal number that is added to rewards that are numbers
    noise: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    # numbers are drawn among rewards that people got of whom as much could be expected, instead
    observed: ObservedSection | None = None
    # ``drop`` leaves out rows without a value that is needed; ``refuse`` names the first
    missing: Literal["refuse", "drop"] = "refuse"
    # the column of people, if some have several rows: the first says who they are, and the mean what to expect
    person: str | None = Field(default=None, min_length=1)

    def environment(self, spec: ArmsSpec, _seed: int) -> "RowPeople":
        """Read the files, once for all seeds; errors name row, column and remedy."""
        spec_json = spec.model_dump_json(include={"context", "experiment", "reward"})
        stamps = tuple((file.stat().st_mtime_ns, file.stat().st_size) for file in find_files(self.path))
        key = (self.model_dump_json(), spec_json, stamps)
        if key not in _CACHE:
            environment = self.read(spec)
            _CACHE.clear()
            _CACHE[key] = environment
        return _CACHE[key]

    def read(self, spec: ArmsSpec) -> "RowPeople":
        """Read the files."""
        table = DataTable(self.path, field=PATH_FIELD)
        reward_columns = self.rewards or spec.options
        if len(reward_columns) != spec.arm_count:
            detail = f"must be {spec.arm_count} columns, one for each of experiment.arms"
            raise SpecError(detail, field="population.rewards", remedy="name them in that order")
        source = NamedColumns(spec, table.header)
        means = [_numeric_column(table, name, "population.rewards") for name in reward_columns]
        pair = [self.observed.got, self.observed.expected] if self.observed else []
        observed = [_numeric_column(table, name, "population.observed") for name in pair]
        person_columns = [Categories(self.person, max_names=math.inf)] if self.person else []
        check_columns_exist([column.name for column in person_columns], table.header)
        columns = [*source.columns, *means, *observed, *person_columns]
        table.read_into(columns, len(spec.features), drop=self.missing == "drop")
        contexts = source.contexts(len(means[0].values))
        check_features(contexts, spec)
        expected = np.stack([column.values for column in means], axis=1)
        low, high = spec.reward.low, spec.reward.high
        for name, values in zip(reward_columns, expected.T, strict=True):
            if values.min() < low or values.max() > high:
                detail = f"column {name!r} has rewards outside reward.low = {low:g} and reward.high = {high:g}"
                raise SpecError(detail, field="population.rewards", remedy="correct the bounds or the column")
        law = ObservedRewards(*(column.values for column in observed)) if observed else None
        for column in person_columns:
            _, first_rows, persons = np.unique(column.values, return_index=True, return_inverse=True)
            contexts = contexts[first_rows]
            expected = np.stack([np.bincount(persons, values) / np.bincount(persons) for values in expected.T], axis=1)
        return RowPeople(contexts, expected, spec.reward, law, self.noise)


_CACHE: Final[dict[tuple[Any, ...], "RowPeople"]] = {}
"""The last environment that was read, which plans need in every run, by section, spec and the files' stamps."""


def _numeric_column(table: DataTable, name: str, field: str) -> Numbers:
    """Return the numeric column of this name; refuse a name that the file does not have."""
    if name not in table.header:
        remedy = "name the columns of expected rewards in population.rewards, one for each of experiment.arms"
        raise SpecError(f"no column of the file is named {name!r}", field=field, remedy=remedy)
    return Numbers(name)


class ObservedRewards:
    """Observed rewards, (n,), grouped by expected rewards, (n,).

    A reward with mean m is drawn from one of the two groups whose means surround m, with the probability that makes m
    the mean. So the share of zeros and the tails are those of the data.
    """

    def __init__(self, observed: Array, expected: Array) -> None:
        order = np.argsort(expected, kind="stable")
        groups = np.array_split(observed[order], max(1, min(_MAX_GROUPS, len(observed) // _MIN_GROUP_SIZE)))
        self._groups = _pool_adjacent_violators(groups)
        self._means = np.array([group.mean() for group in self._groups])

    def clip_means(self, means: Array) -> Array:
        """Clip means to the range of the groups' means."""
        return np.clip(means, self._means[0], self._means[-1])

    def draw(self, means: Array, rng: np.random.Generator) -> Array:
        """Draw a reward for each mean, (n,), as returned by `clip_means`."""
        upper = np.clip(np.searchsorted(self._means, means, side="right"), 1, max(1, len(self._means) - 1))
        low, high = self._means[upper - 1], self._means[np.minimum(upper, len(self._means) - 1)]
        upper_probability = np.divide(means - low, high - low, out=np.zeros(len(means)), where=high > low)
        group_indices = upper - 1 + (rng.random(len(means)) < upper_probability)
        rewards = np.empty(len(means))
        for index, group in enumerate(self._groups):
            rows = np.flatnonzero(group_indices == index)
            rewards[rows] = rng.choice(group, len(rows))
        return rewards


def _pool_adjacent_violators(groups: list[Array]) -> list[Array]:
    """Merge neighbouring groups whose means do not rise (pool-adjacent-violators algorithm)."""
    pooled: list[Array] = []
    for group in groups:
        merged = group
        while pooled and pooled[-1].mean() >= merged.mean():
            merged = np.concatenate([pooled.pop(), merged])
        pooled.append(merged)
    return pooled


class RowPeople(Environment):
    """Environment of participants drawn from rows with replacement; numbers are like observed ones, or have noise."""

    def __init__(
        self, contexts: Array, means: Array, reward: Reward, observed: ObservedRewards | None = None, noise: float = 0.0
    ) -> None:
        self._contexts, self._reward, self._noise = contexts, reward, noise
        self._observed = observed if reward.kind == "numeric" else None
        self._means = self._observed.clip_means(means) if self._observed else means

    def __repr__(self) -> str:
        return f"RowPeople({sha256(self._contexts.tobytes() + self._means.tobytes()).hexdigest()[:16]})"

    def contexts(self, _n_previous: int, n_participants: int, rng: np.random.Generator) -> Array:
        """Return features, and last the row; shape (n, features + 1)."""
        rows = rng.integers(0, len(self._contexts), n_participants)
        return np.column_stack([self._contexts[rows], rows])

    def means(self, contexts: Array) -> Array:
        """Return each participant's expected rewards, shape (n, arms)."""
        return np.asarray(self._means[contexts[:, -1].astype(np.int64)])

    def rewards(self, contexts: Array, decisions: Any, rng: np.random.Generator) -> Array:
        """Draw rewards in their own unit, shape (n,)."""
        means: NDArray[np.float64] = self.means(contexts)[np.arange(len(contexts)), decisions.arms]
        low, high = self._reward.low, self._reward.high
        if self._reward.kind == "binary":
            return np.where(rng.random(len(means)) * (high - low) < means - low, high, low)
        if self._observed:
            return self._observed.draw(means, rng)
        return np.asarray(means + self._noise * rng.standard_normal(len(means)) if self._noise else means)
