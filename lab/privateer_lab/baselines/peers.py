"""Libraries that others wrote, without privacy, beside an experiment: Vowpal Wabbit and mabwiser."""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.errors import SpecError
from privateer_core.policies.decisions import Arms
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.spec import Spec
from privateer_lab.baselines.base import Baseline, Visitors
from privateer_lab.baselines.descent import centred
from privateer_lab.baselines.run import Uniform, play_together
from privateer_lab.simulation.devices import SeededNoise
from privateer_lab.simulation.summary import regret_figures
from privateer_server.rounds.loop import Schedule

Array = NDArray[np.float64]
ArmIndices = NDArray[np.int64]
_LIBRARIES: Final = ("vowpalwabbit", "mabwiser.mab")
_EXPLORERS: Final = {"epsilon-greedy": "--epsilon 0.05", "SquareCB": "--squarecb", "cover": "--cover 5"}
Maker = Callable[[ArmsSpec, int], Baseline]
CHANCE = "at random"


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        detail, remedy = f"{name.partition('.')[0]} is not installed", "install privateer-lab[benchmark]"
        raise SpecError(detail, field="peers", remedy=remedy) from None


class VowpalWabbit(Baseline):
    """A linear model of every arm's cost, which is the reward with its sign changed, and an explorer of Vowpal Wabbit.

    Notes
    -----
    Privacy: none.
    """

    def __init__(self, explorer: str, spec: ArmsSpec, seed: int) -> None:
        super().__init__(spec, seed)
        options = f"--cb_explore {spec.arm_count} {explorer} --quiet --random_seed {seed + 1}"
        self.model = _library(_LIBRARIES[0]).Workspace(options)
        self.texts: list[str] = []
        self.shares: Array = np.zeros(0)

    def choose(self, visitors: Visitors) -> ArmIndices:
        """Return arms (n,) drawn by the explorer's shares."""
        names = [f"x{place}" for place in range(self.spec.dimension)]
        rows = centred(visitors.contexts)[:, 1:].tolist()
        self.texts = ["|f " + " ".join(map("{}:{:.6g}".format, names, row)) for row in rows]
        shares = np.array([self.model.predict(text) for text in self.texts]).reshape(len(rows), -1)
        ends = np.cumsum(shares, axis=1)
        arms = (self.rng.random((len(rows), 1)) * ends[:, -1:] > ends).sum(axis=1)
        self.shares = np.take_along_axis(shares, arms[:, None], axis=1)[:, 0]
        return np.asarray(arms)

    def learn(self, _visitors: Visitors, arms: ArmIndices, values: Array) -> None:
        """Learn from these people, one after the other."""
        outcomes = zip(arms.tolist(), values.tolist(), self.shares.tolist(), self.texts, strict=True)
        for arm, value, share, text in outcomes:
            self.model.learn(f"{arm + 1}:{-value:.6g}:{share:.6g} {text}")


class MabWiser(Baseline):
    """A learning policy of mabwiser, with a constant before the features if there are any.

    Notes
    -----
    Privacy: none.
    """

    def __init__(self, policy: Callable[[Any], Any], spec: ArmsSpec, seed: int) -> None:
        super().__init__(spec, seed)
        library = _library(_LIBRARIES[1])
        self.model = library.MAB(list(range(spec.arm_count)), policy(library.LearningPolicy), seed=seed)
        self.knows = False

    def choose(self, visitors: Visitors) -> ArmIndices:
        """Return the policy's arms, (n,); arms by lot before anybody has reported."""
        if not self.knows:
            return self.rng.integers(0, self.spec.arm_count, len(visitors))
        if self.spec.dimension:
            found = self.model.predict(centred(visitors.contexts))
            return np.atleast_1d(np.asarray(found, np.int64))
        return np.array([self.model.predict() for _ in range(len(visitors))], np.int64)

    def learn(self, visitors: Visitors, arms: ArmIndices, values: Array) -> None:
        """Learn from these people at once."""
        learn = self.model.partial_fit if self.knows else self.model.fit
        learn(arms, values, *([centred(visitors.contexts)] if self.spec.dimension else []))
        self.knows = True


def peers_of(spec: ArmsSpec) -> dict[str, Callable[[ArmsSpec, int], Baseline]]:
    """Return what makes each peer, by name: the policies of mabwiser are those for contexts, if there are any.

    Raises
    ------
    SpecError
        If a library is not installed.
    """
    for library in _LIBRARIES:
        _library(library)
    found: dict[str, Callable[[ArmsSpec, int], Baseline]] = {
        f"Vowpal Wabbit, {name}": partial(VowpalWabbit, options) for name, options in _EXPLORERS.items()
    }
    policies = ("LinTS", "LinUCB") if spec.dimension else ("ThompsonSampling", "UCB1")
    return found | {f"mabwiser, {name}": partial(MabWiser, partial(_made, name)) for name in policies}


def _made(name: str, policies: Any) -> Any:
    return getattr(policies, name)()


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
        return np.asarray(policy.decide(visitors.contexts, self.coins).arms)

    def learn(self, visitors: Visitors, arms: NDArray[np.int64], values: NDArray[np.float64]) -> None:
        """Randomize and add up reports, unless the experiment has stopped by itself."""
        if self.total is None:
            return
        policy: Any = self.step.policy
        coins = self._drawn(len(arms)) if policy.fresh_coins else self.coins
        contributed = policy.contribute(visitors.contexts, coins, Arms(arms), values)
        mechanism = policy.terms.mechanism
        self.total = mechanism.add(self.total, mechanism.randomize(contributed, self.noise))

    def close(self) -> None:
        """Release the round's sums, and learn."""
        if self.total is not None:
            mechanism: Any = self.step.policy.terms.mechanism
            self.step = self.schedule.close(self.step, mechanism.release(self.total, self.noise), self._seed())


class Clocked(Baseline):
    """A baseline, and the seconds of processor time that it takes.

    Attributes
    ----------
    deciding, learning
        Seconds.
    """

    def __init__(self, made: Baseline) -> None:
        self.made, self.deciding, self.learning = made, 0.0, 0.0

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


def contestants(spec: Spec) -> dict[str, Maker]:
    """Return what makes each policy, by name: the experiment's own is the first, and random arms are the last.

    Raises
    ------
    SpecError
        If the experiment has no arms, or sources, which peers cannot learn from.
    """
    if not isinstance(spec, ArmsSpec):
        raise SpecError("peers choose an arm for each person", field="SPEC", remedy="choose a spec with arms")
    if spec.sources:
        raise SpecError("peers learn from the experiment's own people alone", field="sources", remedy="remove them")
    return {spec.name: Own, **peers_of(spec), CHANCE: Uniform}


def compare(spec: ArmsSpec, makers: dict[str, Maker], seeds: int) -> Iterator[dict[str, Any]]:
    """Play each policy with the people of each seed, one after the other, and give a row for each run."""
    for seed in range(seeds):
        for name, make in makers.items():
            clocked = Clocked(make(spec, seed))
            (run,) = play_together(spec, {name: clocked}, seed)
            yield {"policy": name, "regret": run.regret, "deciding": clocked.deciding, "learning": clocked.learning}


def side_by_side(rows: Sequence[dict[str, Any]], people: int) -> dict[str, dict[str, Any]]:
    """Return the figures of each policy over its runs: regret, and people a second of processor time."""
    found = {}
    for name in dict.fromkeys(row["policy"] for row in rows):
        own = [row for row in rows if row["policy"] == name]
        deciding, learning = (sum(row[part] for row in own) for part in ("deciding", "learning"))
        found[name] = {
            **regret_figures([row["regret"] for row in own]),
            "decisions_per_second": len(own) * people / deciding,
            "people_per_second": len(own) * people / (deciding + learning),
        }
    return found
