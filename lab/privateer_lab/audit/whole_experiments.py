"""Attacks on whole experiments of every algorithm, by an adversary who knows all participants but the target."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.accounting.events import Event, Gaussian, Parallel
from privateer_core.algorithms import ALGORITHMS, algorithm
from privateer_core.answer.policy_view import PolicyView
from privateer_core.mechanisms import GroupedBit
from privateer_core.policies.gain_policy import N_KEYS, GainPolicy
from privateer_core.policies.policy import Arms, ArmsPolicy, Plays, Points, Policy
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.questions import KeyedHits
from privateer_core.privacy.terms import Terms, calibrate
from privateer_core.privacy.trust import NoiseOrigin
from privateer_core.spec.adjustment import learned_names
from privateer_core.spec.privacy import Privacy
from privateer_core.spec.reward import append_numbers
from privateer_core.spec.spec import Spec
from privateer_lab.audit import views
from privateer_lab.audit.case import Case, Sampler
from privateer_lab.audit.law import Scores
from privateer_server.rounds.schedule import Schedule

_SEED: Final = 7
_REWARD_BOUNDS: Final = 9.0
"""Rewards of the target in units of their bound: protection must not depend on the size of rewards."""
_TARGET_CONTEXT, _OTHER_CONTEXT = 0.1, 0.9
"""Value of every feature of the target, and of other participants."""


class Neighbour(NamedTuple):
    """A participant with the same value of all features, and rewards of ``reward_factor * _REWARD_BOUNDS`` bounds."""

    context: float
    reward_factor: float


OPPOSITE_REWARDS: Final = Neighbour(_TARGET_CONTEXT, 1.0), Neighbour(_TARGET_CONTEXT, -1.0)
_NEIGHBOUR_PAIRS: Final = {
    "opposite rewards": OPPOSITE_REWARDS,
    "another context": (Neighbour(_TARGET_CONTEXT, 1.0), Neighbour(_OTHER_CONTEXT, 1.0)),
}
OTHER_PARTICIPANT: Final = Neighbour(_OTHER_CONTEXT, -1.0)
_MIN_OBSERVATIONS, _FULL_SAMPLE_BYTES = 1000, 40
"""Smallest number of observations of an attack, and the largest observation for which all samples are drawn."""
_BITS_PER_BYTE_TIME: Final = 20.0
"""Number of one-bit messages that take as much time as a byte of other messages."""


def experiment_cases(samples: int, algorithms: set[str] | None = None) -> list[Case]:
    """Build attacks on all or the chosen algorithms, under every trust model and calibration with a claim.

    Rounds that hand out records have no release to attack; plug-ins attack these algorithms.
    """
    return [case for claim in iterate_claims(algorithms) for case in _instance_cases(*claim[:3], samples)]


def claiming_algorithms() -> set[str]:
    """Return the names of all algorithms with a privacy claim."""
    return {name for name, *_ in iterate_claims()}


def iterate_claims(algorithms: set[str] | None = None) -> Iterator[tuple[str, str, Spec, Terms]]:
    """Yield algorithm, instance, spec and first terms of each privacy claim of all or the chosen algorithms."""
    for name in (name for name in ALGORITHMS if algorithms is None or name in algorithms):
        for instance, spec in algorithm(name).spec.instances().items():
            if spec.privacy.trust.promises and (terms := spec.first_terms("")) and terms.event:
                yield name, instance, spec, terms


def iterate_tight_claims(algorithms: set[str] | None) -> Iterator[tuple[str, str, Spec, Terms]]:
    """Yield the claims that are calibrated as tightly as their proof allows."""
    return (claim for claim in iterate_claims(algorithms) if not claim[2].privacy.trust.is_simulated)


def _instance_cases(name: str, instance: str, spec: Spec, samples: int) -> Iterator[Case]:
    """Make the cases of one algorithm, a pair of neighbours each; pairs that differ by context need features."""
    rounds = _select_target_rounds(list(simulate_rounds(spec)))
    claim = (spec.privacy.model, spec.privacy.trust.calibration, spec.privacy.bound, spec.privacy.delta)
    for pair, neighbours in _NEIGHBOUR_PAIRS.items():
        if neighbours[0].context == neighbours[1].context or spec.dimension:
            sample = _summed_sampler(spec, rounds, neighbours)
            yield Case(f"{instance}, {pair}", name, *claim, _claimed_event(rounds), sample, _n_samples(rounds, samples))


def _select_target_rounds(policies: list[Policy]) -> list[Policy]:
    """Return the policies of the rounds that invite the most often invited participant.

    If rounds invite all participants, and each reports once, it is the last round, when the adversary knows most.
    """
    draws = [policy.draw for policy in policies]
    if draws[0] is None:
        return policies[-1:]
    is_invited = np.array([np.isin(np.arange(draw.people), draw.select_participants()) for draw in draws if draw])
    target = int(np.argmax(is_invited.sum(axis=0)))
    return [policy for policy, is_asked in zip(policies, is_invited[:, target], strict=True) if is_asked]


def _claimed_event(policies: list[Policy]) -> Event:
    """Return the claimed event of a participant in one of these rounds."""
    events = tuple(event for policy in policies if (event := policy.terms.event))
    normal = [event for event in events if isinstance(event, Gaussian)]
    if len(normal) == len(events):
        return max(normal, key=lambda event: event.sensitivity / event.standard_deviation)
    return Parallel(events)


def _n_samples(policies: list[Policy], samples: int) -> int:
    """Return the number of observations, which is smaller if observations are large."""
    size = 0.0
    for terms in (policy.terms for policy in policies):
        message_size = 1 / _BITS_PER_BYTE_TIME if terms.mechanism.message_bits == 1 else terms.mechanism.report_size
        participant_size = terms.messages * message_size
        size += max(1, terms.honest) * participant_size
    return min(samples // 8, max(_MIN_OBSERVATIONS, int(samples * _FULL_SAMPLE_BYTES / size)))


def _summed_sampler(spec: Spec, policies: list[Policy], neighbours: tuple[Neighbour, Neighbour]) -> Sampler:
    """Return a sampler of the sum of the target's scores over these rounds."""
    attack = views.select_attack(spec.privacy.trust)
    samplers = [attack(build_target(spec, policy, neighbours)) for policy in policies]

    def sample(neighbour: int, count: int) -> Scores:
        return np.asarray(np.sum([sampler(neighbour, count) for sampler in samplers], axis=0))

    return sample


def build_target(spec: Spec, policy: Policy, neighbours: tuple[Neighbour, Neighbour]) -> views.Target:
    """Build the target of attacks on a round: two neighbours among the round's honest participants."""
    mechanism, people = policy.terms.mechanism, (*neighbours, OTHER_PARTICIPANT)
    left, right, others = (partial(_contribute, spec, policy, person) for person in people)
    # If arms are seen, the arm with the largest share is attacked, since other arms may be empty.
    arm = int(np.argmax(mechanism.layout.shares[0])) if isinstance(mechanism, GroupedBit) else 0
    return views.Target(mechanism, (left, right), others, policy.terms.honest, arm)


def _contribute(spec: Spec, policy: Policy, person: Neighbour, coins: views.Coins) -> Any:
    return policy.contribute(*observe_choices(spec, policy, person, coins))


def observe_choices(spec: Spec, policy: Policy, person: Neighbour, coins: views.Coins) -> tuple[Any, ...]:
    """Return contexts, coins, decisions and rewards of copies of a person with these coins (n,)."""
    contexts = np.full((len(coins), spec.dimension), person.context)
    reward_factor = _REWARD_BOUNDS * person.reward_factor
    return contexts, coins, *build_decisions_and_rewards(spec, policy, contexts, coins, reward_factor)


def simulate_rounds(spec: Spec) -> Iterator[Policy]:
    """Simulate an experiment whose participants all observe the middle reward; yield the policies of its rounds."""
    schedule, rng = Schedule(spec), np.random.default_rng(_SEED)
    step = schedule.open(_SEED)
    while step.batch_size:
        yield step.policy
        contexts = rng.random((step.batch_size, spec.dimension))
        reports = make_contributions(
            spec, step.policy, contexts, rng.integers(0, 2**32, step.batch_size, dtype=np.uint32), 0.0
        )
        step = schedule.advance(step, step.policy.terms.mechanism.simulate(reports, rng), _SEED)


def make_contributions(
    spec: Spec, policy: Policy, contexts: NDArray[np.float64], coins: views.Coins, reward_factor: float
) -> Any:
    """Return the contributions of n participants with the outcomes of `build_decisions_and_rewards`."""
    return policy.contribute(
        contexts, coins, *build_decisions_and_rewards(spec, policy, contexts, coins, reward_factor)
    )


def build_decisions_and_rewards(
    spec: Spec, policy: Policy, contexts: NDArray[np.float64], coins: views.Coins, reward_factor: float
) -> tuple[Any, NDArray[np.float64]]:
    """Return decisions for n participants, and rewards ``reward_factor`` half-ranges from the middle.

    If reports have coins of their own, all choices have the same coins, since the adversary sees the arms.
    """
    decisions = policy.decide(contexts, np.zeros_like(coins) if policy.has_fresh_coins else coins)
    reward = spec.reward.middle + reward_factor * spec.reward.half_range
    if isinstance(decisions, Plays):
        rewards: NDArray[np.float64] = np.full((len(coins), len(decisions.actions)), reward)
    elif isinstance(decisions, Points) and isinstance(points := decisions.first_points, dict):
        # A report on two points tells the difference of their rewards, which is largest at opposite ends.
        ends = (reward, 2 * spec.reward.middle - reward)
        rewards = np.repeat(policy.read(spec, dict(zip(points, ends, strict=True)))[0], len(coins), axis=0)
    else:
        rewards = np.repeat(policy.read(spec, reward)[0], len(coins))
    if n_extra := len(learned_names(spec.reward.covariates)):
        # Numbers from before lie at the ends of their bounds, as rewards do.
        rewards = append_numbers(rewards, np.full((len(coins), n_extra), np.clip((1 + reward_factor) / 2, 0.0, 1.0)))
    return decisions, rewards


_N_ARMS, _SEEN_ARM, _SINGLE_ARM, _GAIN_SEED = 3, 0, 1, 0x5EED
_BATCH: Final = 100
_SINGLE_ARM_CONTEXT: Final = 0.9
"""Context in which the policy gives the single arm; at `_TARGET_CONTEXT` it gives the seen arm."""


@dataclass(frozen=True)
class Halves(ArmsPolicy):
    """A policy that gives one arm below the middle of a feature, and another arm above it."""

    version: int
    terms: Terms

    @override
    def decide(self, contexts: NDArray[np.float64], coins: views.Coins) -> Arms:
        return Arms(np.where(contexts[:, 0] < (_TARGET_CONTEXT + _SINGLE_ARM_CONTEXT) / 2, _SEEN_ARM, _SINGLE_ARM))

    @override
    def contribute(
        self, contexts: NDArray[np.float64], coins: views.Coins, decisions: Any, rewards: NDArray[np.float64]
    ) -> KeyedValues:
        raise NotImplementedError("it asks nobody")

    @override
    def view(self, spec: Any) -> PolicyView:
        raise NotImplementedError("nobody reads it")


def gain_policy(privacy: Privacy) -> GainPolicy[Halves]:
    """Build the policy of a small round as a learner does."""
    rate = None if privacy.trust.noise is NoiseOrigin.DEVICES else 0.5
    terms = calibrate(privacy, _BATCH, KeyedHits.from_keys(N_KEYS, _GAIN_SEED, rate))
    return GainPolicy(1, _SINGLE_ARM, _GAIN_SEED, np.ones(_N_ARMS, np.bool_), Halves(1, terms), terms)


def gain_contributor(
    policy: GainPolicy[Halves], context: float, reward: float, arm: int = _SEEN_ARM
) -> views.Contributor:
    """Build the contributor of a participant who was seen with an arm."""

    def contribute(coins: views.Coins) -> KeyedValues:
        people = len(coins)
        contexts, rewards = np.full((people, 1), context), np.full(people, reward)
        return policy.contribute(contexts, coins, Arms(np.full(people, arm)), rewards)

    return contribute


def gain_cases(samples: int, factor: float = 1.0) -> list[Case]:
    """Build attacks on neighbours with the same seen arm, and unequal records; ``factor`` divides the noise."""
    batched: Any = {"delta": 0.1, "min_batch": _BATCH, "honest_fraction": 1.0, "local_epsilon_max": 12.0}
    promises = {
        views.attack_reports: ({"delta": 0.0}, samples),
        views.attack_batches: (batched, max(2000, samples // 4)),
        views.attack_releases: ({"delta": 0.0}, samples),
    }
    cases = []
    for attack, (promise, count) in promises.items():
        privacy = Privacy.model_validate({"model": views.model_for(attack), "epsilon": 1.0, **promise})
        policy = gain_policy(privacy)
        mechanism = policy.terms.mechanism if factor == 1.0 else policy.terms.mechanism.with_less_noise(factor)
        others = gain_contributor(policy, _SINGLE_ARM_CONTEXT, 0.0, _SINGLE_ARM)
        for label, context in (("opposite rewards", _TARGET_CONTEXT), ("another context, too", _SINGLE_ARM_CONTEXT)):
            pair = (gain_contributor(policy, _TARGET_CONTEXT, 1.0), gain_contributor(policy, context, 0.0))
            target = views.Target(mechanism, pair, others, _BATCH)
            claim = (privacy.bound, privacy.delta)
            cases.append(views.mechanism_case(f"gain, seen arm, {label}", attack, target, claim, count))
    return cases
