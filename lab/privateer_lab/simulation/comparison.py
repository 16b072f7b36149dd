"""An experiment beside others' libraries: regret with the same people, and what decisions cost."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privateer_core.errors import SpecError
from privateer_core.policies.decisions import Arms
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.spec import Spec
from privateer_lab.baselines.base import Baseline, Visitors
from privateer_lab.baselines.peers import peers_of
from privateer_lab.baselines.run import play_together
from privateer_lab.baselines.unlearned import Uniform
from privateer_lab.simulation.devices import SeededNoise
from privateer_lab.simulation.summary import regret_figures
from privateer_server.rounds.loop import Schedule

Maker = Callable[[ArmsSpec, int], Baseline]
CHANCE = "at random"


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
        told = policy.contribute(visitors.contexts, coins, Arms(arms), values)
        mechanism = policy.terms.mechanism
        self.total = mechanism.add(self.total, mechanism.randomize(told, self.noise))

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

    def _learns(self, part: Callable[..., None], *told: Any) -> None:
        started = time.process_time()
        part(*told)
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
