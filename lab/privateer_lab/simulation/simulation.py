"""An experiment in one process: simulated people choose and report round by round."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Final, TypeGuard, cast

import numpy as np
from numpy.typing import NDArray

from privateer_core.answer.people import HeldReports, People
from privateer_core.errors import SpecError
from privateer_core.policies.decisions import Arms, Decisions, Plays, message_size
from privateer_core.policies.policy import Boxes
from privateer_core.primitives.bounded_vectors import BoundedVectors
from privateer_core.primitives.contributions import merged
from privateer_core.privacy.terms import Terms
from privateer_core.privacy.trust import TRUST
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.context import COLUMNS_MAX
from privateer_core.spec.spec import Spec
from privateer_lab.environments import Environment, PlayedRewards, environment_for
from privateer_lab.simulation.aggregation import BoxPeople, EnvironmentBoxes, can_aggregate
from privateer_lab.simulation.devices import SeededNoise, arms_before, received, scaled, scaled_rewards
from privateer_lab.simulation.scores import Judgement, Point, Score, compares
from privateer_server.rounds.account import account_of
from privateer_server.rounds.loop import Decided, Schedule, Step

_BY_BOXES: Final = 2000
"""Smaller rounds are drawn faster one by one."""
_BLOCK: Final = 1 << 18
"""Most people drawn one by one at a time."""
_NUMBERS: Final = 1 << 21
"""Most numbers at a time of contexts with many columns: memory that is used again costs no time."""
FIGURES: Final = ("regret", "uniform_regret", "best_constant_regret", "reward", "people", "rounds")
SENT: Final = ("messages", "bytes", "bits")


@dataclass(frozen=True)
class Costs:
    """The costs of reports: how many people reported, their messages, and the bytes and bits in them before sealing."""

    people: int = 0
    messages: int = 0
    bytes: int = 0
    bits: int = 0


@dataclass(frozen=True)
class Run:
    """The outcome of one seed. Regrets are sums of expected reward lost against the best option, over all choices."""

    seed: int
    # regret, uniform_regret, best_constant_regret: the regret of the learned policy, of options at random, and of the
    # single option that is best on the whole
    regret: float
    uniform_regret: float
    best_constant_regret: float
    reward: float  # mean reward of a choice, in the reward's own units; expected where a choice is made for everybody
    # people, rounds: people who chose, or reported on what was chosen for everybody; and rounds that were closed
    people: int
    rounds: int
    account: People  # what became of each of those who were planned
    # facts, costs: what the learner and the environment say of the end, by name; and what people sent
    facts: dict[str, float]
    costs: Costs
    path: tuple[Point, ...]  # where the run stands after each round of the experiment's own people, and at the end
    # the terms of the rounds of the experiment's own people, one for each event
    terms: tuple[Terms, ...] = field(default=(), compare=False, repr=False)

    @property
    def choices(self) -> int:
        """How often anything was chosen."""
        return self.path[-1][0]

    def figures(self) -> dict[str, float]:
        """Return all figures by name, without the path; the names are those of `figures_of`."""
        sent = {name: getattr(self.costs, name) for name in SENT}
        return {name: getattr(self, name) for name in FIGURES} | self.facts | sent


class Simulation:
    """A run under way; ``step`` is the open round, or the end. By default its people are the spec's population."""

    def __init__(self, spec: Spec, seed: int, one_by_one: bool = False, environment: Environment | None = None) -> None:
        self.spec, self.seed = spec, seed
        self.environment = environment or environment_for(spec, seed)
        self.sources = {one.name: (one, environment_for(spec, seed, one.population)) for one in spec.sources}
        self.rng = np.random.default_rng([seed, 1])
        self.schedule = Schedule(spec)
        self.step = self.schedule.open(self._seed())
        self.cells: EnvironmentBoxes | None = None
        if not one_by_one and _has_boxes(self.step.policy) and can_aggregate(self.environment, spec):
            self.cells = EnvironmentBoxes(self.environment)
        self.people = self.rounds = 0
        self.choices = spec.experiment.horizon
        self.score, self.costs = Score(), Costs()
        self.terms: dict[Any, Terms] = {}
        self.path: list[Point] = []
        self.left: tuple[Any, Any] = (self.step.policy.terms.mechanism, None)
        self.judgement = Judgement(spec, self.environment) if compares(self.step.policy) else None

    def _seed(self) -> int:
        return int(self.rng.integers(2**63))

    def close_round(self) -> None:
        """Have the people of the open round report, and open the next one."""
        step, terms = self.step, self.step.policy.terms
        release, decided = self.release(step), self.decided(step)
        self.rounds += 1
        self._pay(step.batch, terms)
        if not step.policy.cohort:
            self.terms.setdefault((terms.event, terms.epsilon, terms.delta), terms)
            self.path.append(self.score.point)
        self.step = self.schedule.close(step, release, self._seed(), decided=decided)
        if self.judgement and compares(self.step.policy):
            self.judgement.see(self.step.policy, self.schedule.answer(self.step))

    def decided(self, _step: Step) -> Decided:
        """Return which policies decided what a round's reports were about, as far as the learner knows: its own."""
        return ()

    def _pay(self, people: int, terms: Terms) -> None:
        messages, mechanism, paid = people * terms.messages, terms.mechanism, self.costs
        size = message_size(self.step.policy)
        bits = mechanism.message_bits + 8 * (size - mechanism.report_size)
        sizes = (paid.bytes + messages * size, paid.bits + messages * bits)
        self.costs = Costs(paid.people + people, paid.messages + messages, *sizes)

    def release(self, step: Step) -> Any:
        """Draw the release of a round."""
        policy, mechanism = step.policy, cast(Any, step.policy.terms.mechanism)
        if policy.draw is not None:
            # People and noise are drawn apart, round by round, so that trust models are compared on the same people.
            people, noise = (np.random.default_rng([self.seed, stream, self.rounds + 1]) for stream in (2, 3))
            return mechanism.simulate(self.play(policy, step.batch, people), noise)
        if self.cells and step.batch >= _BY_BOXES and not policy.cohort and _has_boxes(policy):
            return mechanism.simulate_counts(*self.play_boxes(policy, step.batch, self.cells), self.rng)
        # One by one in blocks, so that memory does not grow with the number of people.
        contribute = self.recall if policy.cohort else self.play
        blocks = _blocks(step.batch, self.spec.dimension)
        contributed = (contribute(policy, people, self.rng, step.seen + start) for start, people in blocks)
        # A curator adds its noise once, to all blocks.
        additive = not TRUST[policy.terms.model].curated or len(blocks) == 1
        # Where coins ask people of a source about arms, they say something about what these people contribute.
        independent = not (policy.cohort and cast(Any, policy).coins_ask)
        if additive and independent and hasattr(mechanism, "least"):  # no smaller crowd is released
            return mechanism.simulate(_joined(contributed), self.rng)
        if additive and independent and not mechanism.continues:
            return reduce(merged, (mechanism.simulate(block, self.rng) for block in contributed))
        seeded, total = SeededNoise(self.rng), mechanism.resume(*self.left)
        for block in contributed:
            total = mechanism.add(total, mechanism.randomize(block, seeded))
        return self.settle(mechanism, total, seeded)

    def settle(self, mechanism: Any, total: Any, seeded: SeededNoise) -> Any:
        """Release a total, and keep what is left of it for the next round."""
        release, left = mechanism.settle(total, seeded)
        self.left = (mechanism, left)
        return release

    def recall(self, policy: Any, people: int, rng: np.random.Generator, seen: int) -> Any:
        """Return what the next people of a source contribute about arms that they played before."""
        source, environment = self.sources[policy.cohort]
        raw = environment.contexts(seen, people, rng)
        arms = arms_before(source, len(self.spec.options), people, rng)
        rewards = scaled_rewards(environment.rewards(raw, Arms(arms), rng), self.spec)
        coins = drawn_coins(rng, people)
        return policy.recall(scaled(raw, self.spec), coins, arms, rewards)

    def play(self, policy: Any, people: int, rng: np.random.Generator, _seen: int = 0) -> Any:
        """Have ``people`` take part: count what is played and return what they contribute."""
        return self.played(policy, self.environment.contexts(self.people, people, rng), rng)

    def played(
        self, policy: Any, raw: NDArray[np.float64], rng: np.random.Generator, reporting: Any = slice(None)
    ) -> Any:
        """Have people with these contexts choose; return what those who report contribute."""
        contexts, coins = scaled(raw, self.spec), drawn_coins(rng, len(raw))
        return self.rewarded(policy, raw, coins, policy.decide(contexts, coins), rng, reporting)

    def rewarded(
        self,
        policy: Any,
        raw: NDArray[np.float64],
        coins: NDArray[np.uint32],
        decisions: Any,
        rng: np.random.Generator,
        reporting: Any = slice(None),
    ) -> Any:
        """Reward people for what their coins decided; return what those who report contribute, None: nobody does."""
        people, contexts = len(raw), scaled(raw, self.spec)
        rewards = self.environment.rewards(raw, decisions, rng)
        self._count(people, decisions, self.environment.play(decisions, raw), rewards)
        if isinstance(decisions, Plays):
            return policy.contribute(contexts, coins, decisions, rewards)
        if policy.fresh_coins:  # the coins that chose the arm would tell something about it
            coins = drawn_coins(rng, people)
        before = self.environment.before(raw, tuple(self.spec.reward.adjust))
        if reporting is None:  # a policy that asks nobody may have no terms for what it would ask
            return None
        parts = (contexts, coins, decisions.arms, scaled_rewards(rewards, self.spec, before))
        contexts, coins, arms, rewards = (part[reporting] for part in parts)
        return policy.contribute(contexts, coins, Arms(arms), rewards)

    def choose(self, policy: Any, people: int) -> None:
        """Have so many people choose, of whom nobody reports."""
        self.played(policy, self.environment.contexts(self.people, people, self.rng), self.rng, None)

    def _count(self, people: int, decisions: Decisions, played: PlayedRewards, rewards: NDArray[np.float64]) -> None:
        self.people += people
        self.score.add(played, played.expected if isinstance(decisions, Plays) else received(rewards, self.spec))

    def finish(self) -> bool:
        """Play the last policy to the horizon; tell whether anything was left to choose."""
        policy, before = self.step.policy, self.score.played.times
        nobody = self.environment.contexts(self.people, 0, self.rng)
        decisions = policy.decide(scaled(nobody, self.spec), np.zeros(0, np.uint32))
        left = self.choices - self.people
        if isinstance(decisions, Plays):
            self._count(0, decisions, self.environment.play(decisions, nobody), nobody)
        elif self.cells and left >= _BY_BOXES and _has_boxes(policy):
            self.play_boxes(policy, left, self.cells)
        else:
            for _, people in _blocks(left, self.spec.dimension):
                self.choose(policy, people)
        if more := self.score.played.times > before:
            self.path.append(self.score.point)
        return more

    def play_boxes(self, policy: Boxes, people: int, cells: EnvironmentBoxes) -> tuple[NDArray[np.int64], int]:
        """Have ``people`` take part, drawn box by box; return their counts as ``simulate_counts`` takes them.

        Expected rewards are those of the boxes, so regret has the same mean and a smaller variance.
        """
        phases = cells.environment.phases(self.people, people)
        played = sum(self._play_phase(some, policy, cells.people_of(policy, phase)) for phase, some in phases)
        return policy.count(np.asarray(played))

    def _play_phase(self, people: int, policy: Boxes, here: BoxPeople) -> NDArray[np.int64]:
        """Count ``people`` of one phase by box, arm and reward 0 or 1."""
        visitors, shares, mixed = self.rng.multinomial(people, here.masses), policy.shares, policy.undecided
        chosen = visitors[:, None] * (np.arange(shares.shape[1]) == shares.argmax(axis=1)[:, None])
        chosen[mixed] = self.rng.multinomial(visitors[mixed], shares[mixed])
        wins = self.rng.binomial(chosen, np.clip(here.means, 0.0, 1.0))
        expected, best = float((chosen * here.means).sum()), float(visitors @ here.best)
        self.people += people
        self.score.add(PlayedRewards(people, expected, best, visitors @ here.means), float(wins.sum()))
        return np.stack([chosen - wins, wins], axis=-1)

    def account(self) -> People:
        """Return what has become of each of those who were planned."""
        held = HeldReports(needed=self.step.batch)
        return account_of(self.schedule, self.step, self.costs.people, held, self.refused())

    def refused(self) -> dict[str, int]:
        """Return how many reports no round took, by reason."""
        return {}

    def facts(self) -> dict[str, float]:
        """Return what the learner and the environment say of where the run stands."""
        judged = self.judgement.facts() if self.judgement else {}
        return self.schedule.learner.figures(self.step.state) | self.environment.facts(self.step.policy) | judged

    def outcome(self) -> Run:
        """Return the record of the run."""
        score = self.score
        return Run(
            seed=self.seed,
            regret=score.regret,
            uniform_regret=score.uniform_regret,
            best_constant_regret=score.best_constant_regret,
            reward=score.reward / score.played.times,
            people=self.people,
            rounds=self.rounds,
            account=self.account(),
            facts=self.facts(),
            costs=self.costs,
            path=tuple(self.path),
            terms=tuple(self.terms.values()),
        )


def drawn_coins(rng: np.random.Generator, people: int) -> NDArray[np.uint32]:
    """Draw the coins of so many people."""
    return rng.integers(0, 2**32, people, dtype=np.uint32)


def _has_boxes(policy: Any) -> TypeGuard[Boxes]:
    return hasattr(type(policy), "edges") and hasattr(type(policy), "count")


def _joined(blocks: Iterator[BoundedVectors]) -> BoundedVectors:
    parts = [(block.coins, block.values) for block in blocks]
    coins, values = (np.concatenate(some) for some in zip(*parts, strict=True))
    return BoundedVectors(coins, values)


def _blocks(people: int, columns: int) -> list[tuple[int, int]]:
    """Yield the first person and the size of each block."""
    size = _BLOCK if columns <= COLUMNS_MAX else max(1, _NUMBERS // columns)
    return [(start, min(size, people - start)) for start in range(0, people, size)]


class ReturningSimulation(Simulation):
    """A simulation in which people come in turn, all of them in every period, and report as their devices do.

    So nobody is in one round twice. There are as many people as make the reports of the horizon, and no fewer than the
    largest round has. Where a device reports one time of several, it draws in advance which one, and the experiment
    ends when all people have come each time.
    """

    def __init__(self, spec: ArmsSpec, seed: int, environment: Environment | None = None) -> None:
        for key in ("delay", "drift"):
            if (spec.population or {}).get(key):
                detail = "must not be given with experiment.reports_per_person above 1: nobody simulates both"
                raise SpecError(detail, field=f"population.{key}", remedy="remove one of them")
        super().__init__(spec, seed, one_by_one=True, environment=environment)
        times, horizon = spec.experiment.reports_per_person, spec.experiment.horizon
        people = horizon if spec.privacy.trust.draws_one else max(-(-horizon // times), spec.largest_batch())
        self.choices = horizon * times // spec.reports
        self._people = self.environment.contexts(0, people, self.rng)
        self._drawn = self.rng.integers(0, times, people) if spec.privacy.trust.draws_one else None

    def play(self, policy: Any, people: int, rng: np.random.Generator, _seen: int = 0) -> Any:
        """Have people come until so many report; return what these contribute."""
        here = self._reporting(self.people + np.arange(self._until(people)))
        return self.played(policy, self._coming(len(here)), rng, here)

    def choose(self, policy: Any, people: int) -> None:
        """Have so many people choose, of whom nobody reports."""
        self.played(policy, self._coming(people), self.rng, np.zeros(people, bool))

    def _coming(self, people: int) -> NDArray[np.float64]:
        return np.asarray(self._people[(self.people + np.arange(people)) % len(self._people)])

    def _reporting(self, visits: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Tell in which of these visits a person reports."""
        if self._drawn is None:
            return np.ones(len(visits), bool)
        times, people = np.divmod(visits, len(self._people))
        return np.asarray(self._drawn[people] == times)

    def _until(self, reports: int) -> int:
        """Return how many people have to come until so many have reported."""
        if self._drawn is None:
            return reports
        left = self._reporting(np.arange(self.people, self.choices))
        return int(np.flatnonzero(left)[reports - 1]) + 1
