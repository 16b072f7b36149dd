"""Simulated people for learners: rounds of an experiment in one process, their rewards, and arbitrary releases."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms import algorithm, parse_spec
from privateer_core.codec import decode, encode
from privateer_core.policies.gain_policy import check_policy, decode_policy
from privateer_core.policies.policy import Plays, Points
from privateer_core.primitives.contributions import KeyedSums
from privateer_core.spec.adjustment import learned_names
from privateer_core.spec.reward import append_numbers
from privateer_core.spec.spec import Spec
from privateer_lab.simulation.simulation import Simulation
from privateer_server.rounds.schedule import Schedule, Step

Means = Callable[[NDArray[np.float64]], NDArray[np.float64]]


@dataclass(frozen=True)
class Round:
    """A closed round: its policy, its release, the learner's state after it, and its first step."""

    policy: Any
    release: Any
    state: Any
    step: Step


def rounds(
    spec: Spec, means: Means | None = None, seed: int = 1, sample: Callable[..., NDArray[np.float64]] | None = None
) -> Iterator[Round]:
    """Play an experiment of any algorithm to its end.

    Contexts are uniform, or drawn by ``sample(rng, n)``. Rewards of arms are 0 or 1, with ``means`` or those of
    `bumps`; averages of actions vary around a mean of each action. State and policy pass through the codec between
    rounds, as they do on disk and on the wire.
    """
    rng = np.random.default_rng(seed)
    schedule, kind = Schedule(spec), algorithm(spec.algorithm.name).policy
    step = schedule.open(int(rng.integers(2**63)))
    while step.batch_size:
        state = decode(encode(step.state), schedule.learner.state_type)
        policy = decode_policy(encode(step.policy), kind)
        check_policy(policy, spec)
        contexts = sample(rng, step.batch_size) if sample else rng.random((step.batch_size, spec.dimension))
        coins = rng.integers(0, 2**32, step.batch_size, dtype=np.uint32)
        decisions: Any = policy.decide(contexts, coins)
        rewards = draw_observations(spec, contexts, decisions, means or bumps(len(spec.options)), rng)
        mechanism: Any = policy.terms.mechanism
        release = mechanism.simulate(policy.contribute(contexts, coins, decisions, rewards), rng)
        opened = replace(step, state=state, policy=policy)
        step = schedule.advance(opened, release, int(rng.integers(2**63)))
        yield Round(policy, release, step.state, opened)


def draw_observations(
    spec: Spec, contexts: NDArray[np.float64], decisions: Any, means: Means, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Draw what participants observe of their arms; and covariates, where slopes are learned."""
    if isinstance(decisions, Plays):
        around = spec.reward.middle + 0.5 * spec.reward.half_range * np.cos(decisions.actions)
        return around + rng.normal(0, 0.2 * spec.reward.half_range, (len(contexts), len(around)))
    if isinstance(decisions, Points):
        rewards = (
            0.9 - np.square(decisions.points - 0.3).sum(axis=2) / 4 + rng.normal(0, 0.02, decisions.points.shape[:2])
        )
        return rewards[:, 0] if rewards.shape[1] == 1 else rewards
    likely = np.broadcast_to(means(contexts), (len(contexts), len(spec.options)))
    rewards = (rng.random(len(contexts)) < likely[np.arange(len(contexts)), decisions.arms]).astype(float)
    if not (count := len(learned_names(spec.reward.covariates))):
        return rewards
    return append_numbers(rewards, 0.3 * rewards[:, None] + 0.7 * rng.random((len(rewards), count)))


def bumps(arms: int) -> Means:
    """Arm k is best around k / (arms - 1) along the first feature, if there is one; Lipschitz with constant 1."""
    places = np.arange(arms) / (arms - 1)
    return lambda contexts: 1.0 - np.abs((contexts[:, :1] if contexts.size else 0.3) - places)


def mean_reward(tables: Mapping[str, Any], seeds: Iterable[int]) -> float:
    """Return the mean reward of a person, in the reward's unit, averaged over runs of a spec with these seeds."""
    rewards = []
    for seed in seeds:
        simulation = Simulation(parse_spec(tables), seed)
        while simulation.step.batch_size:
            simulation.close_round()
        simulation.finish()
        rewards.append(simulation.build_run().reward)
    return sum(rewards) / len(rewards)


def wild_release(policy, rng, scale):
    """Any release of the right shape, wild ones included."""
    keys, arms = policy.mechanism.layout.keys, policy.mechanism.layout.groups
    reports = policy.terms.batch_size
    counts = rng.multinomial(reports, np.ones(arms) / arms, keys) if keys else np.zeros((0, arms), np.int64)
    sums = np.rint(counts * np.clip(rng.normal(0, scale, (keys, arms)), -1, 1)).astype(np.int64)
    hits = np.minimum(reports, np.abs(sums).sum(axis=1) + rng.integers(0, reports + 1, keys))
    response = policy.mechanism.response
    p = response.truth + response.other
    return KeyedSums(reports, sums, counts, hits.astype(float), response.gain, p, p / 2, 0.0, p / 3)
