"""Comparison of an experiment with other algorithms and libraries on the same participants."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import methodcaller
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.errors import SpecError
from privateer_core.policies.policy import Arms
from privateer_core.privacy.trust import NoiseOrigin
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.spec import Spec
from privateer_lab.baselines.libraries import BoostedTrees, MabWiser, PrivateBoosting, VowpalWabbit, import_library
from privateer_lab.baselines.run import Baseline, BaselinePeople, Constant, Uniform, Visitors, play_together
from privateer_lab.simulation.scores import SeededNoise
from privateer_lab.simulation.simulate import regret_figures
from privateer_lab.simulation.simulation import draw_coins
from privateer_server.rounds.schedule import Schedule

_LIBRARIES: Final = {"Vowpal Wabbit": "vowpalwabbit", "mabwiser": "mabwiser.mab", "DP-EBM": "interpret.privacy"}
_EXPLORERS: Final = {"epsilon-greedy": "--epsilon 0.05", "SquareCB": "--squarecb", "cover": "--cover 5"}
_PAIR_EXPLORERS: Final = {"SquareCB, pairs": "--squarecb -q ff"}
BaselineFactory = Callable[[ArmsSpec, int], Baseline]
RANDOM_ARMS = "at random"
BEST_ARM = "best constant arm"


class OwnPolicy(Baseline):
    """The experiment itself: its policy chooses arms, devices randomize, and its learner learns from the release."""

    def __init__(self, spec: ArmsSpec, seed: int) -> None:
        super().__init__(spec, seed)
        self.noise, self.schedule = SeededNoise(self.rng), Schedule(spec)
        self.step = self.schedule.open(self._seed())
        self.coins: NDArray[np.uint32] = np.zeros(0, np.uint32)
        self.total: Any = None

    def _seed(self) -> int:
        return int(self.rng.integers(2**63))

    def open(self, batch: int) -> None:
        """Begin a round."""
        mechanism: Any = self.step.policy.terms.mechanism
        self.total = mechanism.empty() if batch and self.step.batch_size else None

    def choose(self, visitors: Visitors) -> NDArray[np.int64]:
        """Return the policy's arms, (n,)."""
        self.coins = draw_coins(self.rng, len(visitors))
        policy: Any = self.step.policy
        return np.asarray(policy.decide(self._policy_contexts(visitors), self.coins).arms)

    def _policy_contexts(self, visitors: Visitors) -> NDArray[np.float64]:
        """Return the columns of contexts that the experiment uses: all or none."""
        return visitors.contexts[:, : self.spec.dimension]

    def learn(self, visitors: Visitors, arms: NDArray[np.int64], values: NDArray[np.float64]) -> None:
        """Randomize and add up reports, unless the experiment has stopped."""
        if self.total is None:
            return
        policy: Any = self.step.policy
        coins = draw_coins(self.rng, len(arms)) if policy.has_fresh_coins else self.coins
        contributions = policy.contribute(self._policy_contexts(visitors), coins, Arms(arms), values)
        mechanism = policy.terms.mechanism
        self.total = mechanism.add(self.total, mechanism.randomize(contributions, self.noise))

    def close(self) -> None:
        """Release the round's sums, and learn."""
        if self.total is not None:
            mechanism: Any = self.step.policy.terms.mechanism
            self.step = self.schedule.advance(self.step, mechanism.release(self.total, self.noise), self._seed())


class TimedBaseline(Baseline):
    """A baseline whose seconds of processor time are measured, for deciding and for learning."""

    def __init__(self, baseline: Baseline) -> None:
        self.baseline, self.deciding, self.learning = baseline, 0.0, 0.0
        self.chunk_size = baseline.chunk_size

    def open(self, batch: int) -> None:
        """Begin a round."""
        self._time_learning(self.baseline.open, batch)

    def choose(self, visitors: Visitors) -> NDArray[np.int64]:
        """Return the baseline's arms, (n,)."""
        started = time.process_time()
        arms = self.baseline.choose(visitors)
        self.deciding += time.process_time() - started
        return arms

    def learn(self, visitors: Visitors, arms: NDArray[np.int64], values: NDArray[np.float64]) -> None:
        """Pass rewards to the baseline."""
        self._time_learning(self.baseline.learn, visitors, arms, values)

    def close(self) -> None:
        """End the round."""
        self._time_learning(self.baseline.close)

    def _time_learning(self, method: Callable[..., None], *arguments: Any) -> None:
        started = time.process_time()
        method(*arguments)
        self.learning += time.process_time() - started


@dataclass(frozen=True)
class Contestant:
    """A policy to compare."""

    spec: ArmsSpec  # rounds, arms and features that the policy knows
    make: BaselineFactory  # factory from a spec and a seed


def select_policies(spec: Spec, others: Sequence[Spec] = (), peers: Sequence[str] = ()) -> dict[str, Contestant]:
    """Return the policies to compare by name: the experiment's own, other algorithms', selected peers', random arms."""
    specs = [_check_arms_spec(variant) for variant in (spec, *others)]
    entrants = {f"Privateer, {variant.algorithm.name}": Contestant(variant, OwnPolicy) for variant in specs}
    arms_spec = specs[0]
    peer_makers = _select_peers(peers, {**find_peers(arms_spec), BEST_ARM: Constant, RANDOM_ARMS: Uniform})
    for start, module in _LIBRARIES.items():
        if any(name.startswith(start) for name in peer_makers):
            import_library(module)  # refuses a missing library before any policy plays
    return entrants | {name: Contestant(arms_spec, make) for name, make in peer_makers.items()}


def _check_arms_spec(spec: Spec) -> ArmsSpec:
    """Return the spec if it has arms and no sources; refuse others."""
    if not isinstance(spec, ArmsSpec):
        raise SpecError("peers choose an arm for each person", field="SPEC", remedy="choose a spec with arms")
    if spec.sources:
        raise SpecError("peers learn from the experiment's own people alone", field="sources", remedy="remove them")
    return spec


def _select_peers(peers: Sequence[str], makers: dict[str, BaselineFactory]) -> dict[str, BaselineFactory]:
    """Select the peers whose names hold a text of ``peers``, by default all; refuse a text that no name holds."""
    matches = {text: [name for name in makers if text.lower() in name.lower()] for text in peers}
    for text, names in matches.items():
        if not names:
            detail, remedy = f"no peer of this experiment has {text!r} in its name", f"choose from {'; '.join(makers)}"
            raise SpecError(detail, field="--peer", remedy=remedy)
    selected = {name for names in matches.values() for name in names} if peers else set(makers)
    return {name: make for name, make in makers.items() if name in selected}


def find_peers(spec: ArmsSpec) -> dict[str, BaselineFactory]:
    """Return the factory of each peer by name, whether or not its library is installed.

    Contextual peers need features, and DP-EBM needs central trust with an epsilon and a delta.
    """
    explorers = _EXPLORERS | (_PAIR_EXPLORERS if spec.dimension else {})
    policies = ("LinTS", "LinUCB") if spec.dimension else ("ThompsonSampling", "UCB1")
    makers: dict[str, BaselineFactory] = {}
    makers |= {f"Vowpal Wabbit, {name}": partial(VowpalWabbit, options) for name, options in explorers.items()}
    makers |= {f"mabwiser, {name}": partial(MabWiser, methodcaller(name)) for name in policies}
    if spec.dimension:
        makers["boosted trees"] = BoostedTrees
    if spec.dimension and spec.privacy.trust.noise is NoiseOrigin.CURATOR and spec.privacy.delta:
        makers["DP-EBM"] = PrivateBoosting
    return makers


def compare_policies(
    entrants: dict[str, Contestant], population_spec: ArmsSpec, seeds: range
) -> Iterator[dict[str, Any]]:
    """Play each policy with each seed's participants, who have all features that any policy uses; yield runs' rows."""
    for seed in seeds:
        for name, contestant in entrants.items():
            clocked = TimedBaseline(contestant.make(contestant.spec, seed))
            (run,) = play_together(contestant.spec, {name: clocked}, seed, BaselinePeople(population_spec, seed))
            figures = {"regret": run.regret, "reward": run.reward}
            yield {"policy": name, "seed": seed, **figures, "deciding": clocked.deciding, "learning": clocked.learning}


def summarize_by_policy(rows: Sequence[dict[str, Any]], n_participants: int) -> dict[str, dict[str, Any]]:
    """Return each policy's figures over its runs: rewards, regret, and participants per second of processor time."""
    figures = {}
    for name in dict.fromkeys(row["policy"] for row in rows):
        policy_rows = [row for row in rows if row["policy"] == name]
        deciding, learning = (sum(row[phase] for row in policy_rows) for phase in ("deciding", "learning"))
        rewards = np.array([row["reward"] for row in policy_rows])
        figures[name] = {
            "reward_mean": float(rewards.mean()),
            "reward_error": float(rewards.std(ddof=1) / len(policy_rows) ** 0.5) if len(policy_rows) > 1 else None,
            "rewards": rewards.tolist(),
            **regret_figures([row["regret"] for row in policy_rows]),
            "decisions_per_second": len(policy_rows) * n_participants / deciding,
            "people_per_second": len(policy_rows) * n_participants / (deciding + learning),
        }
    return figures
