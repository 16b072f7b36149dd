"""Baseline policies, which play the same participants as an experiment's own policy, and their runs."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.errors import SpecError
from privateer_core.plugins import Plugins
from privateer_core.policies.policy import Arms
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.context import COLUMNS_MAX
from privateer_core.spec.spec import Spec
from privateer_lab.environments import environment_for
from privateer_lab.simulation.parallel import Backend, run_tasks
from privateer_lab.simulation.scores import encode_contexts, scale_rewards
from privateer_lab.simulation.simulate import regret_figures

MAX_GROUP_SIZE: Final = 1 << 16
"""Largest number of participants at a time, which bounds memory."""


@dataclass(frozen=True)
class Visitors:
    """A group of a round's participants, in order.

    Attributes
    ----------
    number
        The index of this group.
    raw
        Shape (n, d + more): contexts in their own units.
    contexts
        Shape (n, columns), in [0, 1]: features as a device encodes them.
    means
        Shape (n, arms): expected rewards, the truth. Only the oracle among baselines looks at it.
    """

    number: int
    raw: NDArray[np.float64]
    contexts: NDArray[np.float64]
    means: NDArray[np.float64]
    first: int = 0  # the index of the first participant in the group, if these are a part of it

    def __len__(self) -> int:
        return len(self.contexts)

    def split(self, max_size: int) -> Iterator["Visitors"]:
        """Yield chunks of at most ``max_size`` participants, in order."""
        for start in range(0, len(self), max_size):
            chunk = slice(start, start + max_size)
            yield Visitors(self.number, self.raw[chunk], self.contexts[chunk], self.means[chunk], self.first + start)


class Baseline:
    """A policy to compare with. Rounds are opened, played by groups of participants, and closed.

    Parameters
    ----------
    spec
        The experiment's spec: arms, features, horizon and epsilon.
    seed
        Seeds everything that the baseline draws.
    """

    private: ClassVar[bool] = False
    """Whether the policy has local privacy, so that the spec must promise an epsilon."""
    leaks: ClassVar[bool] = False
    """Whether the policy breaks its promise."""
    columns_max: ClassVar[int] = COLUMNS_MAX
    """Largest number of columns of an encoded context."""
    chunk_size: int = MAX_GROUP_SIZE
    """Largest number of participants who get arms before their rewards are passed to `learn`."""

    def __init__(self, spec: ArmsSpec, seed: int) -> None:
        self.spec = spec
        self.rng = np.random.default_rng([seed, 5])

    def open(self, batch: int) -> None:
        """Begin a round of ``batch`` participants; 0: no further participants report."""

    def choose(self, visitors: Visitors) -> NDArray[np.int64]:
        """Return the arms of the next participants of the round, shape (n,)."""
        raise NotImplementedError

    def learn(self, visitors: Visitors, arms: NDArray[np.int64], values: NDArray[np.float64]) -> None:
        """Learn from the rewards of the last `choose`, scaled to [0, 1], shape (n,)."""

    def close(self) -> None:
        """End the round: the policy may change."""


def as_arms_spec(spec: Spec) -> ArmsSpec:
    """Return the spec of an experiment that chooses arms; refuse one that does not."""
    if not isinstance(spec, ArmsSpec):
        detail = "baselines choose an arm for each person, and this experiment has no arms"
        raise SpecError(detail, field="--baseline", remedy="leave it out")
    return spec


BASELINES: Final = Plugins[type[Baseline]]("privateer.baselines", "distribution that brings it", "--baseline")
"""The installed subclasses of `Baseline` by name."""


def select_baselines(names: list[str], spec: Spec) -> list[str]:
    """Return the requested baselines without repetition; ``all`` stands for all that the spec allows.

    Refuses experiments without arms, unknown names, local privacy where no epsilon is promised, and features that make
    more columns than a baseline can take.
    """
    if names:
        as_arms_spec(spec)
    possible = [name for name, kind in BASELINES.items() if spec.privacy.epsilon is not None or not kind.private]
    for name in (name for name in names if name != "all"):
        if name not in BASELINES:
            installed = ", ".join(BASELINES)
            raise SpecError(f"no baseline {name!r}", field="--baseline", remedy=f"choose from all, {installed}")
        if name not in possible:
            detail = f"{name} needs an epsilon, and the spec promises none"
            remedy = "set privacy.model and privacy.epsilon, or leave it out"
            raise SpecError(detail, field="--baseline", remedy=remedy)
        if not _is_applicable(name, spec):
            limit = f"1 to {BASELINES[name].columns_max} columns of features"
            detail = f"{name} takes {limit}, and there are {spec.dimension}"
            raise SpecError(detail, field="--baseline", remedy="leave it out")
    return [name for name in possible if _is_applicable(name, spec) and (name in names or "all" in names)]


def _is_applicable(name: str, spec: Spec) -> bool:
    """Whether a baseline accepts the spec's number of columns; baselines that learn need at least one."""
    kind = BASELINES[name]
    return (kind.learn is not Baseline.learn) <= spec.dimension <= kind.columns_max


Array = NDArray[np.float64]
Ints = NDArray[np.int64]


class PlainColumns:
    """Numeric and categorical columns of a spec's contexts, decoded from the columns that devices encode."""

    def __init__(self, spec: ArmsSpec) -> None:
        blocks = [(index, block) for index, feature in enumerate(spec.features.values()) for block in feature.blocks]
        starts = np.cumsum([0, *(block.columns for _, block in blocks)]).tolist()
        placed = [(start, index, block) for start, (index, block) in zip(starts, blocks, strict=False)]
        coded = [(start, index, block) for start, index, block in placed if block.codes and not block.flags]
        # shape (numbers,): encoded columns that are numbers, or flags of missing values
        self.numbers: Ints = np.array([start for start, _, block in placed if block.flags or not block.codes], np.int64)
        # shape (features with levels,): number of levels of each
        self.levels: Ints = np.array([len(block.codes) for _, _, block in coded], np.int64)
        self._names = [f"a{index}_" for _, index, _ in coded]
        self._coded = [(start, block) for start, _, block in coded]

    def level_numbers(self, contexts: Array) -> Ints:
        """Return the level of each feature with levels, (n, features), from 0."""
        levels = np.zeros((len(contexts), len(self._coded)), np.int64)
        for index, (start, block) in enumerate(self._coded):
            powers = 1 << np.arange(block.columns - 1, -1, -1)
            codes = np.rint(contexts[:, start : start + block.columns]) @ powers
            levels[:, index] = np.searchsorted(block.codes, codes)
        return levels

    def table(self, contexts: Array) -> Array:
        """Return numbers and flags in [0, 1], followed by levels as integers, (n, columns)."""
        return np.concatenate([contexts[:, self.numbers], self.level_numbers(contexts)], axis=1)

    def one_hot(self, contexts: Array) -> Array:
        """Return a constant, numbers and flags in [-1, 1], and one-hot levels."""
        encoded = np.zeros((len(contexts), 1 + len(self.numbers) + int(self.levels.sum())))
        encoded[:, 0] = 1.0
        encoded[:, 1 : 1 + len(self.numbers)] = 2 * contexts[:, self.numbers] - 1
        starts = 1 + len(self.numbers) + np.cumsum(self.levels) - self.levels
        np.put_along_axis(encoded, self.level_numbers(contexts) + starts, 1.0, axis=1)
        return encoded

    def texts(self, contexts: Array) -> list[str]:
        """Return names and values as Vowpal Wabbit reads them: ``x0:0.5`` for a number, ``a3_12`` for a level."""
        names = [f"x{index}" for index in range(len(self.numbers))]
        numbers = (2 * contexts[:, self.numbers] - 1).tolist()
        number_tokens = (map("{}:{:.6g}".format, names, row) for row in numbers)
        level_tokens = (map("{}{}".format, self._names, row) for row in self.level_numbers(contexts).tolist())
        return [" ".join(chain(*tokens)) for tokens in zip(number_tokens, level_tokens, strict=True)]


_MAX_PARTICIPANTS: Final = 1 << 20
"""Number of participants whose expected rewards decide the best constant arm."""


class BaselinePeople:
    """Participants of a run, with common random numbers: baselines that play the same arm get the same reward."""

    def __init__(self, spec: ArmsSpec, seed: int) -> None:
        self._spec, self._seed = spec, seed
        self._environment = environment_for(spec, seed)
        self._rng = np.random.default_rng([seed, 3])
        self._n_groups = self._n_seen = 0

    def next_visitors(self, n_participants: int) -> Visitors:
        """Return the next ``n_participants``, which callers keep within `MAX_GROUP_SIZE`."""
        raw = self._environment.contexts(self._n_seen, n_participants, self._rng)
        self._n_seen += n_participants
        self._n_groups += 1
        return Visitors(self._n_groups - 1, raw, encode_contexts(raw, self._spec), self._environment.means(raw))

    def rewards(self, visitors: Visitors, arms: NDArray[np.int64]) -> NDArray[np.float64]:
        """Draw the rewards of the arms played, shape (n,), in their own units."""
        rng = np.random.default_rng([self._seed, 4, visitors.number, visitors.first])
        return self._environment.rewards(visitors.raw, Arms(arms), rng)


@dataclass(frozen=True)
class BaselineRun:
    """Regret and mean reward of a baseline's run with a seed."""

    name: str
    seed: int
    regret: float  # sum over participants of the expected loss against the best arm
    reward: float  # mean reward of a participant, in the reward's own units
    path: tuple[tuple[int, float], ...] = ()  # after each round: participants, and the sum of their rewards


def play_once(spec: Spec, names: list[str], seed: int) -> list[BaselineRun]:
    """Play baselines with a seed's people to the horizon; a baseline's run does not depend on the others."""
    spec = as_arms_spec(spec)
    return play_together(spec, {name: BASELINES[name](spec, seed) for name in names}, seed)


def play_together(
    spec: ArmsSpec, baselines: dict[str, Baseline], seed: int, participants: BaselinePeople | None = None
) -> list[BaselineRun]:
    """Play baselines of a spec and a seed, as `play_once` does, with ``participants`` or the spec's own."""
    participants = participants or BaselinePeople(spec, seed)
    regret, received, n_played = dict.fromkeys(baselines, 0.0), dict.fromkeys(baselines, 0.0), 0
    paths: dict[str, list[tuple[int, float]]] = {name: [] for name in baselines}
    for batch, size in _iterate_rounds(spec):
        for baseline in baselines.values():
            baseline.open(batch)
        for start in range(0, size, MAX_GROUP_SIZE):
            visitors = participants.next_visitors(min(MAX_GROUP_SIZE, size - start))
            for name, baseline in baselines.items():
                for chunk in visitors.split(baseline.chunk_size):
                    arms = baseline.choose(chunk)
                    rewards = participants.rewards(chunk, arms)
                    arm_means = np.take_along_axis(chunk.means, arms[:, None], axis=1)[:, 0]
                    regret[name] += float((chunk.means.max(axis=1) - arm_means).sum())
                    received[name] += float(rewards.sum())
                    if batch:
                        baseline.learn(chunk, arms, scale_rewards(rewards, spec))
        n_played += size
        for name, baseline in baselines.items():
            paths[name].append((n_played, received[name]))
            if batch:
                baseline.close()
    return [
        BaselineRun(name, seed, regret[name], received[name] / n_played, tuple(path)) for name, path in paths.items()
    ]


def _iterate_rounds(spec: ArmsSpec) -> Iterator[tuple[int, int]]:
    """Yield the numbers of reports and of participants of each round; the last participants do not report."""
    batches = [turn.batch_size for turn in spec.planned_rounds() if not turn.cohort]
    yield from ((batch, batch) for batch in batches)
    if n_remaining := spec.experiment.horizon - sum(batches):
        yield 0, n_remaining


def run_baselines(
    spec: Spec, names: list[str], seeds: int, jobs: int | None = None, backend: Backend = "processes"
) -> Iterator[list[BaselineRun]]:
    """Yield the runs of seeds 0..seeds-1 as they finish, on ``jobs`` processes (default: one a core)."""
    return run_tasks(play_once, [(spec, names, seed) for seed in range(seeds)], jobs, backend)


def summarize_runs(runs_by_seed: list[list[BaselineRun]]) -> dict[str, dict[str, Any]]:
    """Return each baseline's figures over seeds, with 95 % confidence intervals of mean regret (`interval`)."""
    figures: dict[str, dict[str, Any]] = {}
    for name in (run.name for run in runs_by_seed[0]):
        runs = [run for seed_runs in runs_by_seed for run in seed_runs if run.name == name]
        figures[name] = {
            **regret_figures([run.regret for run in runs]),
            "reward_mean": float(np.mean([run.reward for run in runs])),
            "leaks": BASELINES[name].leaks,
        }
    return figures


class Uniform(Baseline):
    """A policy that draws every arm with the same probability."""

    def choose(self, visitors: Visitors) -> NDArray[np.int64]:
        """Return random arms, shape (n,)."""
        return self.rng.integers(0, self.spec.arm_count, len(visitors))


class Constant(Baseline):
    """A policy with the arm that has the largest mean expected reward over the run's first million participants."""

    def __init__(self, spec: ArmsSpec, seed: int) -> None:
        super().__init__(spec, seed)
        participants, n_participants = BaselinePeople(spec, seed), min(spec.experiment.horizon, _MAX_PARTICIPANTS)
        total = np.zeros(spec.arm_count)
        for start in range(0, n_participants, MAX_GROUP_SIZE):
            total += participants.next_visitors(min(MAX_GROUP_SIZE, n_participants - start)).means.sum(axis=0)
        self.arm = int(np.argmax(total))

    def choose(self, visitors: Visitors) -> NDArray[np.int64]:
        """Return the constant arm, shape (n,)."""
        return np.full(len(visitors), self.arm)


class Oracle(Baseline):
    """A policy that knows each participant's best arm: its regret is 0."""

    def choose(self, visitors: Visitors) -> NDArray[np.int64]:
        """Return each participant's best arm, shape (n,)."""
        return np.asarray(visitors.means.argmax(axis=1))
