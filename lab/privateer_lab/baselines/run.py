"""Baselines through an experiment's rounds: one pass over the people of a seed for all of them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.policies.decisions import Arms
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.spec import Spec
from privateer_lab.baselines.base import BASELINES, GROUP, Baseline, Visitors, with_arms
from privateer_lab.environments import environment_for
from privateer_lab.simulation.devices import scaled, scaled_rewards
from privateer_lab.simulation.parallel import Backend, each
from privateer_lab.simulation.summary import regret_figures

_PEOPLE: Final = 1 << 20
"""BaselinePeople whose expected rewards decide; with more of them the best arm is clear or does not matter."""


class BaselinePeople:
    """Contexts in order, and rewards with common random numbers: two baselines that play one arm get one reward.

    Parameters
    ----------
    spec
        A spec with a ``population``.
    seed
        Seeds the environment, as in the experiment's own run, and contexts and rewards.
    """

    def __init__(self, spec: ArmsSpec, seed: int) -> None:
        self._spec, self._seed = spec, seed
        self._environment = environment_for(spec, seed)
        self._rng = np.random.default_rng([seed, 3])
        self._groups = self._seen = 0

    def next(self, people: int) -> Visitors:
        """Return the next people, at most `GROUP`."""
        raw = self._environment.contexts(self._seen, people, self._rng)
        self._seen += people
        self._groups += 1
        return Visitors(self._groups - 1, raw, scaled(raw, self._spec), self._environment.means(raw))

    def rewards(self, visitors: Visitors, arms: NDArray[np.int64]) -> NDArray[np.float64]:
        """Draw the rewards of the arms played, shape (n,), in their own units."""
        rng = np.random.default_rng([self._seed, 4, visitors.number, visitors.first])
        return self._environment.rewards(visitors.raw, Arms(arms), rng)


@dataclass(frozen=True)
class BaselineRun:
    """The outcome of one seed of one baseline."""

    name: str
    seed: int
    regret: float  # sum, over people, of expected reward lost against the best arm
    reward: float  # mean reward of a person, in the reward's own units


def play_once(spec: Spec, names: list[str], seed: int) -> list[BaselineRun]:
    """Play all these baselines with the people of one seed, from the first round to the horizon.

    Parameters
    ----------
    spec
        A spec with arms and a ``population``.
    names
        As `privateer_lab.baselines.base.chosen` returns them.
    seed
        Seeds people, rewards and what baselines draw: the same seed gives the same runs, whatever the other names.
    """
    spec = with_arms(spec)
    return play_together(spec, {name: BASELINES[name](spec, seed) for name in names}, seed)


def play_together(
    spec: ArmsSpec, playing: dict[str, Baseline], seed: int, people: BaselinePeople | None = None
) -> list[BaselineRun]:
    """Play baselines that were made for a spec and a seed, as `play_once` does; ``people`` if others are meant."""
    people = people or BaselinePeople(spec, seed)
    regret, received = dict.fromkeys(playing, 0.0), dict.fromkeys(playing, 0.0)
    for batch, size in _rounds(spec):
        for baseline in playing.values():
            baseline.open(batch)
        for start in range(0, size, GROUP):
            visitors = people.next(min(GROUP, size - start))
            for name, baseline in playing.items():
                for some in visitors.parts(baseline.at_once):
                    arms = baseline.choose(some)
                    rewards = people.rewards(some, arms)
                    played = np.take_along_axis(some.means, arms[:, None], axis=1)[:, 0]
                    regret[name] += float((some.means.max(axis=1) - played).sum())
                    received[name] += float(rewards.sum())
                    if batch:
                        baseline.learn(some, arms, scaled_rewards(rewards, spec))
        for baseline in playing.values() if batch else ():
            baseline.close()
    horizon = spec.experiment.horizon
    return [BaselineRun(name, seed, regret[name], received[name] / horizon) for name in playing]


def _rounds(spec: ArmsSpec) -> Iterator[tuple[int, int]]:
    """Yield how many people report in each round and how many play; those who are left in the end report nothing."""
    batches = [turn.batch for turn in spec.planned_rounds() if not turn.cohort]
    yield from ((batch, batch) for batch in batches)
    if left := spec.experiment.horizon - sum(batches):
        yield 0, left


def play(
    spec: Spec, names: list[str], seeds: int, jobs: int | None = None, backend: Backend = "processes"
) -> Iterator[list[BaselineRun]]:
    """Give the runs of seeds 0..seeds-1 as they finish, on ``jobs`` processes (default: one a core)."""
    return each(play_once, [(spec, names, seed) for seed in range(seeds)], jobs, backend)


def summaries(played: list[list[BaselineRun]]) -> dict[str, dict[str, Any]]:
    """Return figures of each baseline over seeds; regret intervals are 95 % for the mean (`interval`)."""
    found: dict[str, dict[str, Any]] = {}
    for name in (run.name for run in played[0]):
        runs = [run for some in played for run in some if run.name == name]
        found[name] = {
            **regret_figures([run.regret for run in runs]),
            "reward_mean": float(np.mean([run.reward for run in runs])),
            "leaks": BASELINES[name].leaks,
        }
    return found


class Uniform(Baseline):
    """Every arm with the same probability: what an experiment earns before anything is learned."""

    def choose(self, visitors: Visitors) -> NDArray[np.int64]:
        """Return random arms, shape (n,)."""
        return self.rng.integers(0, self.spec.arm_count, len(visitors))


class Constant(Baseline):
    """Gives everybody the arm with the largest mean of expected rewards over the run's own first million people."""

    def __init__(self, spec: ArmsSpec, seed: int) -> None:
        super().__init__(spec, seed)
        people, left = BaselinePeople(spec, seed), min(spec.experiment.horizon, _PEOPLE)
        total = np.zeros(spec.arm_count)
        while left:
            size = min(left, GROUP)
            total += people.next(size).means.sum(axis=0)
            left -= size
        self.arm = int(np.argmax(total))

    def choose(self, visitors: Visitors) -> NDArray[np.int64]:
        """Return the one arm for everybody, shape (n,)."""
        return np.full(len(visitors), self.arm)


class Oracle(Baseline):
    """The best arm for everyone: its regret is 0, and its reward the most that any policy can hope for."""

    def choose(self, visitors: Visitors) -> NDArray[np.int64]:
        """Return everybody's best arm, shape (n,)."""
        return np.asarray(visitors.means.argmax(axis=1))
