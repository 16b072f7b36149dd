"""People who are the rows of a file, with a column for every option of what they may expect of it."""

import math
from hashlib import sha256
from typing import Annotated, Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from privateer_core.errors import SpecError
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.reward import Reward
from privateer_core.spec.sections import Section
from privateer_lab.environments.classified import PATH, check_features
from privateer_lab.environments.environment import Array, Environment, EnvironmentSection
from privateer_lab.environments.file_contexts import Named, Names
from privateer_lab.tables.columns import Categories, Numbers
from privateer_lab.tables.data_table import DataTable, check_named
from privateer_lab.tables.sources import files_of

OF: Final = " of "
"""What stands between the name of rewards and that of an option, in the columns of what may be expected."""
_GROUPS: Final = 20
_GROUP: Final = 50
"""People among whose rewards one is drawn: a twentieth of the rows, and at least so many."""


class ObservedSection(Section):
    """The columns of rewards that people got, among which simulated ones are drawn."""

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
        told = spec.model_dump_json(include={"context", "experiment", "reward"})
        stamps = tuple((one.stat().st_mtime_ns, one.stat().st_size) for one in files_of(self.path))
        return _known(_Asked(self.model_dump_json(), told, stamps), self, spec)

    def read(self, spec: ArmsSpec) -> "RowPeople":
        """Read the files."""
        table = DataTable(self.path, field=PATH)
        wanted = self.rewards or spec.options
        if len(wanted) != spec.arm_count:
            detail = f"must be {spec.arm_count} columns, one for each of experiment.arms"
            raise SpecError(detail, field="population.rewards", remedy="name them in that order")
        source = Named(spec, table.header)
        means = [_column(table, name, "population.rewards") for name in wanted]
        pair = [self.observed.got, self.observed.expected] if self.observed else []
        observed = [_column(table, name, "population.observed") for name in pair]
        people = [Categories(self.person, most=math.inf)] if self.person else []
        check_named([one.name for one in people], table.header)
        columns = [*source.columns, *means, *observed, *people]
        table.fill(columns, len(spec.features), drop=self.missing == "drop")
        # Algorithms without context have no column to look at.
        contexts = source.contexts() if spec.features else np.zeros((len(means[0].values), 0))
        check_features(contexts, spec)
        expected = np.stack([one.values for one in means], axis=1)
        _check_within(expected, spec.reward, wanted)
        law = ObservedRewards(*(one.values for one in observed)) if observed else None
        for column in people:
            _, first, of = np.unique(column.values, return_index=True, return_inverse=True)
            contexts = contexts[first]
            expected = np.stack([np.bincount(of, values) / np.bincount(of) for values in expected.T], axis=1)
        return RowPeople(contexts, expected, spec.reward, law, self.noise)


class _Asked(NamedTuple):
    """What decides which people are read; the section and the spec themselves are not compared."""

    section: str
    spec: str
    stamps: tuple[tuple[int, int], ...]


_LAST: Final[dict[_Asked, "RowPeople"]] = {}


def _known(asked: _Asked, section: RowsSection, spec: ArmsSpec) -> "RowPeople":
    """Return the people who were read last, if they are these: plans read them for every run."""
    if asked not in _LAST:
        people = section.read(spec)
        _LAST.clear()
        _LAST[asked] = people
    return _LAST[asked]


def _column(table: DataTable, name: str, field: str) -> Numbers:
    if name not in table.header:
        remedy = "name the columns of expected rewards in population.rewards, one for each of experiment.arms"
        raise SpecError(f"no column of the file is named {name!r}", field=field, remedy=remedy)
    return Numbers(name)


def _check_within(expected: Array, reward: Reward, names: Names) -> None:
    for name, values in zip(names, expected.T, strict=True):
        if values.min() < reward.low or values.max() > reward.high:
            detail = (
                f"column {name!r} has rewards outside reward.low = {reward.low:g} and reward.high = {reward.high:g}"
            )
            raise SpecError(detail, field="population.rewards", remedy="correct the bounds or the column")


class ObservedRewards:
    """Numbers that people got, by what could be expected of them.

    Whoever may expect m gets a number that somebody got whose group has a mean next to m: of the two groups around it
    the one is taken with the probability that makes m the mean. So zeros stay zeros, and tails are those of the data.

    got, expected (n,): each.
    """

    def __init__(self, got: Array, expected: Array) -> None:
        order = np.argsort(expected, kind="stable")
        groups = np.array_split(got[order], max(1, min(_GROUPS, len(got) // _GROUP)))
        self._groups = _rising(groups)
        self._means = np.array([group.mean() for group in self._groups])

    def possible(self, means: Array) -> Array:
        """Return means, cut to those that groups have."""
        return np.clip(means, self._means[0], self._means[-1])

    def draw(self, means: Array, rng: np.random.Generator) -> Array:
        """Draw a reward for each of these means, (n,), which are `possible`."""
        above = np.clip(np.searchsorted(self._means, means, side="right"), 1, max(1, len(self._means) - 1))
        low, high = self._means[above - 1], self._means[np.minimum(above, len(self._means) - 1)]
        share = np.divide(means - low, high - low, out=np.zeros(len(means)), where=high > low)
        chosen = above - 1 + (rng.random(len(means)) < share)
        drawn = np.empty(len(means))
        for place, group in enumerate(self._groups):
            here = np.flatnonzero(chosen == place)
            drawn[here] = rng.choice(group, len(here))
        return drawn


def _rising(groups: list[Array]) -> list[Array]:
    """Return groups whose means rise: neighbours that do not are put together."""
    found: list[Array] = []
    for group in groups:
        joined = group
        while found and found[-1].mean() >= joined.mean():
            joined = np.concatenate([found.pop(), joined])
        found.append(joined)
    return found


class RowPeople(Environment):
    """People drawn from rows with replacement.

    contexts (n, features): as devices read them.
    means: expected rewards, (n, arms), in the reward's own unit.
    reward: the spec's.
    observed: the law of rewards that are numbers; None: the mean itself, with noise.
    noise: standard deviation of what is added to numbers.
    """

    def __init__(
        self,
        contexts: Array,
        means: Array,
        reward: Reward,
        observed: ObservedRewards | None = None,
        noise: float = 0.0,
    ) -> None:
        self._contexts, self._reward, self._noise = contexts, reward, noise
        self._observed = observed if reward.kind == "numeric" else None
        self._means = self._observed.possible(means) if self._observed else means

    def __repr__(self) -> str:
        told = sha256(self._contexts.tobytes() + self._means.tobytes()).hexdigest()[:16]
        return f"RowPeople({told})"

    def contexts(self, _seen: int, people: int, rng: np.random.Generator) -> Array:
        """Return features, and last the row; shape (n, features + 1)."""
        rows = rng.integers(0, len(self._contexts), people)
        return np.column_stack([self._contexts[rows], rows])

    def means(self, contexts: Array) -> Array:
        """Return what each person may expect, shape (n, arms)."""
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
