"""An experiment in one process: the same policies, mechanisms and learners, and simulated people."""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import reduce
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privateer.algorithms.partition import PartitionPolicy
from privateer.contributions import KeyedValues, merged
from privateer.errors import SpecError
from privateer.experiment import Source, Spec, Turn, next_turn
from privateer_lab.cells import BinLaw, Cells, can_aggregate
from privateer_lab.environments import Population, population_for
from privateer_lab.interval import interval
from privateer_lab.noise import SeededNoise
from privateer_lab.parallel import Backend, each
from privateer_server.algorithms import Learner, learner_for

_BY_BINS: Final = 2000
"""Smaller rounds are drawn faster one by one."""
_BLOCK: Final = 1 << 18
"""Most people drawn one by one at a time."""


@dataclass(frozen=True)
class Run:
    """One seed's outcome. Regrets are sums, over people, of expected reward lost against the best arm.

    Attributes
    ----------
    regret, uniform_regret, best_constant_regret
        Of the learned policy, of uniformly random arms, and of the single arm that is best on the whole.
    reward
        Mean reward received by a person, in the reward's own units.
    people, rounds, bins
        People simulated, rounds closed, and bins at the end.
    path
        After each round of the experiment's own people, and at the end: people so far, and regret, best constant
        regret, uniform regret so far.
    """

    seed: int
    regret: float
    uniform_regret: float
    best_constant_regret: float
    reward: float
    people: int
    rounds: int
    bins: int
    path: tuple[tuple[int, float, float, float], ...]


def simulate_once(
    spec: Spec, seed: int, one_by_one: bool = False, watch: Callable[[PartitionPolicy], object] | None = None
) -> Run:
    """Simulate an experiment from its first round to its horizon.

    Parameters
    ----------
    spec
        With a ``population``.
    seed
        Of contexts, rewards, slots and privacy noise: the same seed gives the same run.
    one_by_one
        Draw people one by one where their sums by bin could be drawn, whose law is the same.
    watch
        Is called with the policy of every round.
    """
    run = _Running(spec, seed, one_by_one, watch or (lambda _: None))
    turn = next_turn(spec, None)
    while turn.batch:
        run.close_round(turn)
        turn = next_turn(spec, turn)
    left = spec.experiment.horizon - run.people
    if left:
        run.finish(left)
    return run.outcome()


class _Running:
    """A run under way: learner state and sums."""

    def __init__(self, spec: Spec, seed: int, one_by_one: bool, watch: Callable[[PartitionPolicy], object]) -> None:
        self.spec, self.seed, self.watch = spec, seed, watch
        self.population: Population = population_for(spec, seed)
        self.cells: Cells | None = None
        if not one_by_one and can_aggregate(self.population, spec):
            self.cells = Cells(self.population)
        self.rng = np.random.default_rng([seed, 1])
        self.learner: Learner = learner_for(spec)
        self.state = self.learner.start()
        self.sources = {source.name: population_for(_of_source(spec, source), seed) for source in spec.sources}
        self.people = self.rounds = 0
        self.expected = self.best = self.received = 0.0
        self.by_arm = np.zeros(spec.arm_count)
        self.path: list[tuple[int, float, float, float]] = []

    def policy(self, batch: int, cohort: str = "") -> PartitionPolicy:
        return self.learner.policy(self.state, self.rounds + 1, batch, int(self.rng.integers(2**63)), cohort)

    def close_round(self, turn: Turn) -> None:
        policy = self.policy(turn.batch, turn.cohort)
        self.watch(policy)
        mechanism = policy.mechanism
        if self.cells and turn.batch >= _BY_BINS and not turn.cohort:
            release = mechanism.simulate_counts(*self.play_bins(policy, turn.batch, self.cells), self.rng)
        else:
            release = self.release(policy, mechanism, turn)
        self.state = self.learner.learn(self.state, policy, release)
        self.rounds += 1
        if not turn.cohort:
            self.mark()

    def mark(self) -> None:
        """Note where the run stands."""
        constant, uniform = self.best - float(np.max(self.by_arm)), self.best - float(self.by_arm.mean())
        self.path.append((self.people, self.best - self.expected, constant, uniform))

    def release(self, policy: PartitionPolicy, mechanism: Any, turn: Turn) -> Any:
        """The release of people drawn one by one, in blocks, so that memory does not grow with their number."""
        starts = range(0, turn.batch, _BLOCK)
        told = (self.tell(policy, turn, start, min(_BLOCK, turn.batch - start)) for start in starts)
        sampled = policy.terms.mechanism in ("laplace", "signed-symbol") or len(starts) == 1
        # Where slots ask about arms, slots and what people tell of the past are not independent.
        independent = policy.terms.arm_in_key or policy.terms.mechanism == "laplace" or not turn.cohort
        if sampled and independent:
            return reduce(merged, (mechanism.simulate(block, self.rng) for block in told))
        noise, total = SeededNoise(self.rng), mechanism.empty()
        for block in told:
            total = mechanism.add(total, mechanism.randomize(block, noise))
        return mechanism.release(total, noise)

    def tell(self, policy: PartitionPolicy, turn: Turn, start: int, people: int) -> KeyedValues:
        return self.recorded(policy, turn.seen + start, people) if turn.cohort else self.play(policy, people)

    def recorded(self, policy: PartitionPolicy, seen: int, people: int) -> KeyedValues:
        """What the next people of a source have to tell of arms that they played before."""
        source, population = self.spec.source(policy.cohort), self.sources[policy.cohort]
        raw = population.contexts(seen, people, self.rng)
        shares = None if source is None or source.shares == "unknown" else np.array(source.shares)
        arms = self.rng.choice(self.spec.arm_count, people, p=shares)
        rewards = self.scaled_rewards(population.rewards(raw, arms, self.rng))
        slots = self.rng.integers(0, 2**32, people, dtype=np.uint32)
        return policy.contribute_recorded(scaled(raw, self.spec), slots, arms, rewards)

    def finish(self, people: int) -> None:
        """Let the people who are left play the final policy."""
        policy = self.policy(0)
        if self.cells and people >= _BY_BINS:
            self.play_bins(policy, people, self.cells)
        else:
            for start in range(0, people, _BLOCK):
                self.play(policy, min(_BLOCK, people - start))
        self.mark()

    def play_bins(self, policy: PartitionPolicy, people: int, cells: Cells) -> tuple[NDArray[np.int64], int]:
        """As `play` for ``people`` drawn by bins: counts by key, arm and reward, and people without a key.

        Expected rewards are those of the bins, so regret has the same mean and less spread by chance.
        """
        phases = cells.population.phases(self.people, people)
        keyed = sum(self._play_phase(policy, some, cells.law(policy, phase)) for phase, some in phases)
        return policy.by_key(np.asarray(keyed)), people - int(np.sum(keyed))

    def _play_phase(self, policy: PartitionPolicy, people: int, law: BinLaw) -> NDArray[np.int64]:
        """Counts by key, arm and reward of ``people`` of one phase."""
        visitors = self.rng.multinomial(people, law.masses)
        played = visitors[:, None] * (np.arange(law.means.shape[1]) == policy.active.argmax(axis=1)[:, None])
        played[policy.bins] = self.rng.multinomial(visitors[policy.bins], policy.layout.shares)
        wins = self.rng.binomial(played, np.clip(law.means, 0.0, 1.0))
        self.people += people
        self.received += float(wins.sum())
        self.expected += float((played * law.means).sum())
        self.best += float(visitors @ law.best)
        self.by_arm += visitors @ law.means
        return np.asarray(np.stack([played - wins, wins], axis=-1)[policy.bins])

    def play(self, policy: PartitionPolicy, people: int) -> KeyedValues:
        """Let ``people`` play, bring the sums up to date, and return what they have to tell."""
        raw = self.population.contexts(self.people, people, self.rng)
        slots = self.rng.integers(0, 2**32, people, dtype=np.uint32)
        contexts = scaled(raw, self.spec)
        arms = policy.choose(contexts, slots)
        means = self.population.means(raw)
        rewards = self.population.rewards(raw, arms, self.rng)
        self.people += people
        self.received += float(rewards.sum())
        self.expected += float(means[np.arange(people), arms].sum())
        self.best += float(np.amax(means, axis=1).sum())
        self.by_arm += means.sum(axis=0)
        return policy.contribute(contexts, self.report_slots(policy, slots), arms, self.scaled_rewards(rewards))

    def report_slots(self, policy: PartitionPolicy, slots: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Slots of the reports of people whose choices had these."""
        return self.rng.integers(0, 2**32, len(slots), dtype=np.uint32) if policy.terms.arm_in_key else slots

    def scaled_rewards(self, rewards: NDArray[np.float64]) -> NDArray[np.float64]:
        low, high = self.spec.reward.low, self.spec.reward.high
        return np.clip((rewards - low) / (high - low), 0.0, 1.0)

    def outcome(self) -> Run:
        _, regret, constant, uniform = self.path[-1]
        return Run(
            seed=self.seed,
            regret=regret,
            uniform_regret=uniform,
            best_constant_regret=constant,
            reward=self.received / self.people,
            people=self.people,
            rounds=self.rounds,
            bins=len(self.state.depths),
            path=tuple(self.path),
        )


def _of_source(spec: Spec, source: Source) -> Spec:
    return spec.model_copy(update={"population": source.population or spec.population})


def scaled(raw: NDArray[np.float64], spec: Spec) -> NDArray[np.float64]:
    """Features of raw contexts, (n, d), clipped to the spec's bounds and scaled to [0, 1], as a device does."""
    bounds = [(feature.low, feature.high) for feature in spec.context.features.values()]
    low, high = np.array(bounds).T
    return np.asarray(np.clip((raw[:, : len(low)] - low) / (high - low), 0.0, 1.0))


def simulate(spec: Spec, seeds: int, jobs: int | None = None, backend: Backend = "processes") -> Iterator[Run]:
    """Runs of seeds 0..seeds-1 as they finish, on ``jobs`` processes (default: one a core); without their paths.

    Raises
    ------
    SpecError
        If the spec has no population.
    """
    if spec.population is None:
        raise SpecError("missing", field="population", remedy="add [population] name = 'peaks' to the spec")
    return each(simulate_in_short, [(spec, seed) for seed in range(seeds)], jobs, backend)


def simulate_in_short(spec: Spec, seed: int) -> Run:
    """As `simulate_once`, without the path: as long as the rounds are many, and runs may be many as well."""
    return replace(simulate_once(spec, seed), path=())


def summary(runs: list[Run], started: float) -> dict[str, Any]:
    """Figures over runs; regret intervals are 95 % for the mean (`interval`)."""
    regret = np.array([run.regret for run in runs])
    wall = time.perf_counter() - started
    people = sum(run.people for run in runs)
    return {
        "regret_mean": float(regret.mean()),
        "regret_ci95": interval(regret),
        "regret_worst": float(regret.max()),
        "uniform_regret": float(np.mean([run.uniform_regret for run in runs])),
        "best_constant_regret": float(np.mean([run.best_constant_regret for run in runs])),
        "reward_mean": float(np.mean([run.reward for run in runs])),
        "users": runs[0].people,
        "seeds": len(runs),
        "users_per_second": people / wall,
        "wall_seconds": wall,
        "runs": [_row(run) for run in sorted(runs, key=lambda run: run.seed)],
    }


def _row(run: Run) -> dict[str, Any]:
    return {name: value for name, value in asdict(run).items() if name != "path"}
