"""Libraries that others wrote, and Privateer's own algorithms, beside an experiment: the same people for all."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.errors import SpecError
from privateer_core.policies.decisions import Arms
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.spec import Spec
from privateer_lab.baselines.base import Baseline, Visitors
from privateer_lab.baselines.boosting import BoostedTrees, PrivateBoosting
from privateer_lab.baselines.libraries import MabWiser, VowpalWabbit, library
from privateer_lab.baselines.run import BaselinePeople, Constant, Uniform, play_together
from privateer_lab.simulation.devices import SeededNoise
from privateer_lab.simulation.summary import regret_figures
from privateer_server.rounds.loop import Schedule

_LIBRARIES: Final = {"Vowpal Wabbit": "vowpalwabbit", "mabwiser": "mabwiser.mab", "DP-EBM": "interpret.privacy"}
_EXPLORERS: Final = {"epsilon-greedy": "--epsilon 0.05", "SquareCB": "--squarecb", "cover": "--cover 5"}
_PAIRS: Final = {"SquareCB, pairs": "--squarecb -q ff"}
Maker = Callable[[ArmsSpec, int], Baseline]
CHANCE = "at random"
BEST_ARM = "best constant arm"


class Own(Baseline):
    """The experiment itself: its policy decides, devices randomize, and its learner learns from the release."""

    def __init__(self, spec: ArmsSpec, seed: int) -> None:
        super().__init__(spec, seed)
        self.noise, self.schedule = SeededNoise(self.rng), Schedule(spec)
        self.step = self.schedule.open(self._seed())
        self.coins: NDArray[np.uint32] = np.zeros(0, np.uint32)
        self.total: Any = None

    def _seed(self) -> int:
        return int(self.rng.integers(2**63))

    def _drawn(self, people: int) -> NDArray[np.uint32]:
        return self.rng.integers(0, 2**32, people, dtype=np.uint32)

    def open(self, batch: int) -> None:
        """Begin a round."""
        mechanism: Any = self.step.policy.terms.mechanism
        self.total = mechanism.empty() if batch and self.step.batch else None

    def choose(self, visitors: Visitors) -> NDArray[np.int64]:
        """Return the policy's arms, (n,)."""
        self.coins = self._drawn(len(visitors))
        policy: Any = self.step.policy
        return np.asarray(policy.decide(self._known(visitors), self.coins).arms)

    def _known(self, visitors: Visitors) -> NDArray[np.float64]:
        """Return the columns of contexts that the experiment looks at: all of them, or none."""
        return visitors.contexts[:, : self.spec.dimension]

    def learn(self, visitors: Visitors, arms: NDArray[np.int64], values: NDArray[np.float64]) -> None:
        """Randomize and add up reports, unless the experiment has stopped by itself."""
        if self.total is None:
            return
        policy: Any = self.step.policy
        coins = self._drawn(len(arms)) if policy.fresh_coins else self.coins
        contributed = policy.contribute(self._known(visitors), coins, Arms(arms), values)
        mechanism = policy.terms.mechanism
        self.total = mechanism.add(self.total, mechanism.randomize(contributed, self.noise))

    def close(self) -> None:
        """Release the round's sums, and learn."""
        if self.total is not None:
            mechanism: Any = self.step.policy.terms.mechanism
            self.step = self.schedule.close(self.step, mechanism.release(self.total, self.noise), self._seed())


class Clocked(Baseline):
    """A baseline, and the seconds of processor time that it takes.

    deciding, learning: seconds.
    """

    def __init__(self, made: Baseline) -> None:
        self.made, self.deciding, self.learning = made, 0.0, 0.0
        self.at_once = made.at_once

    def open(self, batch: int) -> None:
        """Begin a round."""
        self._learns(self.made.open, batch)

    def choose(self, visitors: Visitors) -> NDArray[np.int64]:
        """Return the arms that are chosen, (n,)."""
        started = time.process_time()
        arms = self.made.choose(visitors)
        self.deciding += time.process_time() - started
        return arms

    def learn(self, visitors: Visitors, arms: NDArray[np.int64], values: NDArray[np.float64]) -> None:
        """Learn."""
        self._learns(self.made.learn, visitors, arms, values)

    def close(self) -> None:
        """End the round."""
        self._learns(self.made.close)

    def _learns(self, part: Callable[..., None], *arguments: Any) -> None:
        started = time.process_time()
        part(*arguments)
        self.learning += time.process_time() - started


@dataclass(frozen=True)
class Contestant:
    """A policy to compare."""

    spec: ArmsSpec  # its rounds, and what it knows of arms and features
    make: Maker  # makes it, for a spec and a seed


def contestants(spec: Spec, others: Sequence[Spec] = (), peers: Sequence[str] = ()) -> dict[str, Contestant]:
    """Return the policies to compare, by name: the experiment's own is the first, and random arms are the last.

    others: the same experiment with other algorithms.
    peers: parts of the names of those who are wanted beside Privateer; all of them by default.
    """
    own = {f"Privateer, {one.algorithm.name}": Contestant(_played(one), Own) for one in (spec, *others)}
    known = _played(spec)
    beside = _chosen(peers, {**peers_of(known), BEST_ARM: Constant, CHANCE: Uniform})
    _check_installed(beside)
    return own | {name: Contestant(known, make) for name, make in beside.items()}


def _played(spec: Spec) -> ArmsSpec:
    if not isinstance(spec, ArmsSpec):
        raise SpecError("peers choose an arm for each person", field="SPEC", remedy="choose a spec with arms")
    if spec.sources:
        raise SpecError("peers learn from the experiment's own people alone", field="sources", remedy="remove them")
    return spec


def _chosen(peers: Sequence[str], makers: dict[str, Maker]) -> dict[str, Maker]:
    for part in peers:
        if not any(part.lower() in name.lower() for name in makers):
            known = "; ".join(makers)
            raise SpecError(
                f"no peer of this experiment has {part!r} in its name", field="--peer", remedy=f"choose from {known}"
            )
    return {
        name: make for name, make in makers.items() if not peers or any(part.lower() in name.lower() for part in peers)
    }


def peers_of(spec: ArmsSpec) -> dict[str, Maker]:
    """Return what makes each peer, by name, whether or not its library is installed.

    Those that look at contexts play where there are any, and DP-EBM where a curator promises an epsilon and a delta.
    """
    explorers = _EXPLORERS | (_PAIRS if spec.dimension else {})
    found: dict[str, Maker] = {
        f"Vowpal Wabbit, {name}": partial(VowpalWabbit, options) for name, options in explorers.items()
    }
    policies = ("LinTS", "LinUCB") if spec.dimension else ("ThompsonSampling", "UCB1")
    found |= {f"mabwiser, {name}": partial(MabWiser, partial(_made, name)) for name in policies}
    if spec.dimension:
        found["boosted trees"] = BoostedTrees
    trust = spec.privacy.trust
    if spec.dimension and trust.curated and trust.promises and spec.privacy.delta:
        found["DP-EBM"] = PrivateBoosting
    return found


def _made(name: str, policies: Any) -> Any:
    return getattr(policies, name)()


def _check_installed(beside: dict[str, Maker]) -> None:
    """Refuse a missing library before the first of the others plays."""
    for start, module in _LIBRARIES.items():
        if any(name.startswith(start) for name in beside):
            library(module)


def compare(entered: dict[str, Contestant], people: ArmsSpec, seeds: range) -> Iterator[dict[str, Any]]:
    """Play each policy with the people of each seed, one after the other, and give a row for each run.

    people: the spec that has the people, with all features that anybody looks at.
    """
    for seed in seeds:
        for name, one in entered.items():
            clocked = Clocked(one.make(one.spec, seed))
            (run,) = play_together(one.spec, {name: clocked}, seed, BaselinePeople(people, seed))
            figures = {"regret": run.regret, "reward": run.reward}
            yield {"policy": name, "seed": seed, **figures, "deciding": clocked.deciding, "learning": clocked.learning}


def side_by_side(rows: Sequence[dict[str, Any]], people: int) -> dict[str, dict[str, Any]]:
    """Return the figures of each policy over its runs: rewards, regret, and people a second of processor time."""
    found = {}
    for name in dict.fromkeys(row["policy"] for row in rows):
        own = [row for row in rows if row["policy"] == name]
        deciding, learning = (sum(row[part] for row in own) for part in ("deciding", "learning"))
        rewards = np.array([row["reward"] for row in own])
        found[name] = {
            "reward_mean": float(rewards.mean()),
            "reward_error": float(rewards.std(ddof=1) / len(own) ** 0.5) if len(own) > 1 else None,
            "rewards": rewards.tolist(),
            **regret_figures([row["regret"] for row in own]),
            "decisions_per_second": len(own) * people / deciding,
            "people_per_second": len(own) * people / (deciding + learning),
        }
    return found
