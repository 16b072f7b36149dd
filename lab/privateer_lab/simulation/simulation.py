"""Simulation of an experiment in one process: participants choose and report round by round."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Final, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from privateer_core.answer.people import HeldReports, People
from privateer_core.errors import SpecError
from privateer_core.mechanisms.tiered_symbol import TieredSymbol
from privateer_core.policies.past_arms import recall_arms, select_reporting_arms
from privateer_core.policies.policy import Arms, Decisions, Plays, message_size
from privateer_core.primitives.bounded_vectors import BoundedVectors
from privateer_core.primitives.contributions import merge_releases
from privateer_core.privacy.terms import Terms
from privateer_core.privacy.trust import TRUST, Crowd, NoiseOrigin
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.context import COLUMNS_MAX
from privateer_core.spec.spec import Spec
from privateer_lab.environments import Environment, PlayedRewards, environment_for
from privateer_lab.simulation import scores
from privateer_server.rounds.schedule import PolicyMix, Schedule, Step, count_participants

_MAX_BLOCK_PARTICIPANTS: Final = 1 << 18
"""Most participants of a block."""
_MAX_BLOCK_NUMBERS: Final = 1 << 21
"""Most numbers of a block's contexts with many columns, so that memory is reused."""
FIGURES: Final = ("regret", "uniform_regret", "best_constant_regret", "reward", "people", "rounds")
COST_FIGURES: Final = ("messages", "bytes", "bits")


@dataclass(frozen=True)
class Costs:
    """The costs of reports: participants who reported, their messages, and the bytes and bits before sealing."""

    people: int = 0
    messages: int = 0
    bytes: int = 0
    bits: int = 0


@dataclass(frozen=True)
class Run:
    """The result of a seed. Regrets are sums of expected reward lost against the best option, over all choices."""

    seed: int
    # regret, uniform_regret, best_constant_regret: the regret of the learned policy, of random options, and of the
    # single option that is best overall
    regret: float
    uniform_regret: float
    best_constant_regret: float
    reward: float  # mean reward of a choice, in its own units; expected if a choice is for all participants
    # people, rounds: participants who chose, or reported on a choice for all participants; and closed rounds
    people: int
    rounds: int
    account: People  # of all planned participants
    # facts, costs: final figures of learner and environment, by name; and the costs of reports
    facts: dict[str, float]
    costs: Costs
    path: tuple[scores.Point, ...]  # after each round of the experiment's own participants, and at the end
    # the terms of the rounds of the experiment's own participants, one for each event
    terms: tuple[Terms, ...] = field(default=(), compare=False, repr=False)

    @property
    def choices(self) -> int:
        """The number of choices."""
        return self.path[-1][0]

    def figures(self) -> dict[str, float]:
        """Return all figures by name, without the path; the names are those of `list_figures`."""
        costs = {name: getattr(self.costs, name) for name in COST_FIGURES}
        return {name: getattr(self, name) for name in FIGURES} | self.facts | costs


class Simulation:
    """A run in progress; ``step`` is the open round, or the end. The default population is the spec's."""

    def __init__(self, spec: Spec, seed: int, environment: Environment | None = None) -> None:
        self.spec, self.seed = spec, seed
        self.environment = environment or environment_for(spec, seed)
        self.sources = {past.name: (past, environment_for(spec, seed, past.population)) for past in spec.sources}
        self.rng = np.random.default_rng([seed, 1])
        self.schedule = Schedule(spec)
        self.step = self.schedule.open(self._seed())
        self.people = self.rounds = 0
        self.choices = spec.experiment.horizon
        self.score, self.costs = scores.Score(), Costs()
        self.terms: dict[Any, Terms] = {}
        self.path: list[scores.Point] = []
        self.carried_total: tuple[Any, Any] = (self.step.policy.terms.mechanism, None)
        self.judgement = scores.Judgement(spec, self.environment) if scores.is_comparing(self.step.policy) else None

    def _seed(self) -> int:
        return int(self.rng.integers(2**63))

    def close_round(self) -> None:
        """Simulate the reports of the open round, and open the next round."""
        step, terms = self.step, self.step.policy.terms
        release, decided = self.release(step), self.find_deciding_policies(step)
        self.rounds += 1
        self._add_costs(step.batch_size, terms)
        if not step.policy.cohort:
            self.terms.setdefault((terms.event, terms.epsilon, terms.delta), terms)
            self.path.append(self.score.point)
        self.step = self.schedule.advance(step, release, self._seed(), decided=decided)
        if self.judgement and scores.is_comparing(self.step.policy):
            self.judgement.add_answer(self.step.policy, self.schedule.answer(self.step))

    def find_deciding_policies(self, _step: Step) -> PolicyMix:
        """Return the policies that decided a round's reports, if they are not the round's own."""
        return ()

    def _add_costs(self, n_participants: int, terms: Terms) -> None:
        """Add what a round of people sends to the costs, in messages, bytes and bits."""
        messages, mechanism, costs = n_participants * terms.messages, terms.mechanism, self.costs
        age_bytes = message_size(self.step.policy) - mechanism.report_size
        message_bytes, bits = mechanism.sent_size + age_bytes, mechanism.message_bits + 8 * age_bytes
        sizes = (costs.bytes + messages * message_bytes, costs.bits + messages * bits)
        self.costs = Costs(costs.people + n_participants, costs.messages + messages, *sizes)

    def release(self, step: Step) -> Any:
        """Draw the release of a round."""
        policy, mechanism = step.policy, cast(Any, step.policy.terms.mechanism)
        if policy.draw is not None:
            # Participants and noise have separate streams in each round, so that trust models share participants.
            people_rng, noise_rng = (np.random.default_rng([self.seed, stream, self.rounds + 1]) for stream in (2, 3))
            return mechanism.simulate(self.play(policy, step.batch_size, people_rng), noise_rng)
        # Blocks bound the memory, whatever the number of participants.
        contribute = self.simulate_past_arms if policy.cohort else self.play
        blocks = _split_into_blocks(step.batch_size, self.spec.dimension)
        contributed = (contribute(policy, count, self.rng, step.n_reported + start) for start, count in blocks)
        # A curator adds its noise once, to all blocks.
        additive = TRUST[policy.terms.model].noise is NoiseOrigin.DEVICES or len(blocks) == 1
        # If coins select the arms that a source's participants report on, contributions depend on coins.
        independent = not (policy.cohort and cast(Any, policy).has_coin_asked_arms)
        if additive and independent and hasattr(mechanism, "least"):  # no smaller crowd is released
            return mechanism.simulate(_join_vectors(contributed), self.rng)
        if additive and independent and not mechanism.continues:
            return reduce(merge_releases, (mechanism.simulate(block, self.rng) for block in contributed))
        seeded, total = scores.SeededNoise(self.rng), mechanism.start_total_after(*self.carried_total)
        for block in contributed:
            total = mechanism.add(total, mechanism.randomize(block, seeded))
        return self.release_total(mechanism, total, seeded)

    def release_total(self, mechanism: Any, total: Any, seeded: scores.SeededNoise) -> Any:
        """Release a total, and keep its remainder for the next round."""
        release, carried = mechanism.release_and_carry(total, seeded)
        self.carried_total = (mechanism, carried)
        return release

    def simulate_past_arms(self, policy: Any, n_participants: int, rng: np.random.Generator, n_previous: int) -> Any:
        """Simulate the contributions of a source's next participants about their past arms."""
        source, environment = self.sources[policy.cohort]
        raw = environment.contexts(n_previous, n_participants, rng)
        arms, propensities = scores.draw_past(source, environment, raw, len(self.spec.options), rng)
        rewards = scores.scale_rewards(environment.rewards(raw, Arms(arms), rng), self.spec)
        arms = select_reporting_arms(source, arms, propensities, rng)
        contexts, coins = scores.encode_contexts(raw, self.spec), draw_coins(rng, n_participants)
        return recall_arms(policy, contexts, coins, arms, rewards)

    def play(self, policy: Any, n_participants: int, rng: np.random.Generator, _n_previous: int = 0) -> Any:
        """Simulate participants: add their rewards to the score, and return their contributions."""
        return self.simulate_choices(policy, self.environment.contexts(self.people, n_participants, rng), rng)

    def simulate_choices(
        self, policy: Any, raw: NDArray[np.float64], rng: np.random.Generator, reporting: Any = slice(None)
    ) -> Any:
        """Simulate choices of participants with these contexts; return the contributions of those who report."""
        contexts, coins = scores.encode_contexts(raw, self.spec), draw_coins(rng, len(raw))
        return self.simulate_rewards(policy, raw, coins, policy.decide(contexts, coins), rng, reporting)

    def simulate_rewards(
        self,
        policy: Any,
        raw: NDArray[np.float64],
        coins: NDArray[np.uint32],
        decisions: Any,
        rng: np.random.Generator,
        reporting: Any = slice(None),
    ) -> Any:
        """Simulate rewards of decisions; return the contributions of those who report, or None without reports."""
        n_participants, contexts = len(raw), scores.encode_contexts(raw, self.spec)
        rewards = self.environment.rewards(raw, decisions, rng)
        self._count(n_participants, decisions, self.environment.play(decisions, raw), rewards)
        if isinstance(decisions, Plays):
            return policy.contribute(contexts, coins, decisions, rewards)
        if policy.has_fresh_coins:  # the coins that chose the arm would reveal it
            coins = draw_coins(rng, n_participants)
        before = self.environment.before(raw, tuple(self.spec.reward.covariates))
        if reporting is None:  # a policy without reports may have no terms for them
            return None
        inputs = (contexts, coins, decisions.arms, scores.scale_rewards(rewards, self.spec, before))
        contexts, coins, arms, rewards = (values[reporting] for values in inputs)
        return draw_tiers_if_any(policy, policy.contribute(contexts, coins, Arms(arms), rewards), rng)

    def choose(self, policy: Any, n_participants: int) -> None:
        """Simulate choices of participants without reports."""
        self.simulate_choices(policy, self.environment.contexts(self.people, n_participants, self.rng), self.rng, None)

    def _count(self, n_new: int, decisions: Decisions, played: PlayedRewards, rewards: NDArray[np.float64]) -> None:
        self.people += n_new
        self.score.add(
            played, played.expected if isinstance(decisions, Plays) else scores.sum_rewards(rewards, self.spec)
        )

    def finish(self) -> bool:
        """Simulate the last policy to the horizon; return whether choices remained."""
        policy, n_before = self.step.policy, self.score.played.times
        no_contexts = self.environment.contexts(self.people, 0, self.rng)
        decisions = policy.decide(scores.encode_contexts(no_contexts, self.spec), np.zeros(0, np.uint32))
        n_remaining = self.choices - self.people
        if isinstance(decisions, Plays):
            self._count(0, decisions, self.environment.play(decisions, no_contexts), no_contexts)
        else:
            for _, n_block in _split_into_blocks(n_remaining, self.spec.dimension):
                self.choose(policy, n_block)
        if has_choices := self.score.played.times > n_before:
            self.path.append(self.score.point)
        return has_choices

    def account(self) -> People:
        """Return the account of all planned participants."""
        held_reports = HeldReports(needed=self.step.batch_size)
        return count_participants(self.schedule, self.step, self.costs.people, held_reports, self.count_refused())

    def count_refused(self) -> dict[str, int]:
        """Return the number of reports that no round accepted, by reason."""
        return {}

    def facts(self) -> dict[str, float]:
        """Return figures of learner, environment and intervals for the current state."""
        judged_facts = self.judgement.facts() if self.judgement else {}
        return self.schedule.learner.figures(self.step.state) | self.environment.facts(self.step.policy) | judged_facts

    def build_run(self) -> Run:
        """Build the record of the run so far: its regret, rewards and account of participants."""
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


def draw_tiers_if_any(policy: Any, contributions: Any, rng: np.random.Generator) -> Any:
    """Return contributions of participants who take tiers by their expected shares, if the round has tiers."""
    mechanism = policy.terms.mechanism
    if not isinstance(mechanism, TieredSymbol):
        return contributions
    return msgspec.structs.replace(contributions, tiers=mechanism.draw_tiers(len(contributions), rng))


def draw_coins(rng: np.random.Generator, n_participants: int) -> NDArray[np.uint32]:
    """Draw the coins of participants."""
    return rng.integers(0, 2**32, n_participants, dtype=np.uint32)


def _join_vectors(blocks: Iterator[BoundedVectors]) -> BoundedVectors:
    pairs = [(block.coins, block.values) for block in blocks]
    coins, values = (np.concatenate(arrays) for arrays in zip(*pairs, strict=True))
    return BoundedVectors(coins, values)


def _split_into_blocks(n_participants: int, columns: int) -> list[tuple[int, int]]:
    """Return the index of the first participant and the size of each block."""
    block_size = _MAX_BLOCK_PARTICIPANTS if columns <= COLUMNS_MAX else max(1, _MAX_BLOCK_NUMBERS // columns)
    return [(start, min(block_size, n_participants - start)) for start in range(0, n_participants, block_size)]


class ReturningSimulation(Simulation):
    """A simulation of returning participants, who visit in turn, all of them in every period.

    So no participant is in a round twice. Their number makes the reports of the horizon, and is no smaller than the
    largest round. If a device reports on one of several visits, it draws the visit in advance, and the experiment
    ends after the last visit of all participants.
    """

    def __init__(self, spec: ArmsSpec, seed: int, environment: Environment | None = None) -> None:
        for key in ("delay", "drift"):
            if (spec.population or {}).get(key):
                detail = "must not be given with experiment.reports_per_person above 1: nobody simulates both"
                raise SpecError(detail, field=f"population.{key}", remedy="remove one of them")
        super().__init__(spec, seed, environment=environment)
        n_visits, horizon = spec.experiment.reports_per_person, spec.experiment.horizon
        draws_visit = spec.privacy.trust.crowd is Crowd.NOBODY
        n_participants = horizon if draws_visit else max(-(-horizon // n_visits), spec.largest_batch())
        self.choices = horizon * n_visits // spec.reports
        self._contexts = self.environment.contexts(0, n_participants, self.rng)
        self._report_visits = self.rng.integers(0, n_visits, n_participants) if draws_visit else None

    def play(self, policy: Any, n_reports: int, rng: np.random.Generator, _n_previous: int = 0) -> Any:
        """Simulate visits until ``n_reports`` participants report; return their contributions."""
        is_reporting = self._is_reporting(self.people + np.arange(self._count_visits(n_reports)))
        return self.simulate_choices(policy, self._next_contexts(len(is_reporting)), rng, is_reporting)

    def choose(self, policy: Any, n_participants: int) -> None:
        """Simulate choices of participants without reports."""
        self.simulate_choices(policy, self._next_contexts(n_participants), self.rng, np.zeros(n_participants, bool))

    def _next_contexts(self, n_participants: int) -> NDArray[np.float64]:
        return np.asarray(self._contexts[(self.people + np.arange(n_participants)) % len(self._contexts)])

    def _is_reporting(self, visits: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Tell which visits are those at which their participants report."""
        if self._report_visits is None:
            return np.ones(len(visits), bool)
        visit_numbers, participants = np.divmod(visits, len(self._contexts))
        return np.asarray(self._report_visits[participants] == visit_numbers)

    def _count_visits(self, n_reports: int) -> int:
        """Return how many visits make this number of reports."""
        if self._report_visits is None:
            return n_reports
        is_reporting = self._is_reporting(np.arange(self.people, self.choices))
        return int(np.flatnonzero(is_reporting)[n_reports - 1]) + 1
