"""Simulated people for learners: rounds of an experiment in one process, through the real policies and mechanisms."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privateer.algorithms.partition import PartitionPolicy
from privateer.codec import decode, encode
from privateer.contributions import CellSums, KeyedSums
from privateer.experiment import Spec, next_turn
from privateer_server.algorithms import learner_for

Means = Callable[[NDArray[np.float64]], NDArray[np.float64]]


@dataclass(frozen=True)
class Round:
    """A closed round: what was published, what was released, what the learner knew afterwards."""

    policy: PartitionPolicy
    release: KeyedSums | CellSums
    state: Any


def rounds(
    spec: Spec, means: Means, seed: int, sample: Callable[..., NDArray[np.float64]] | None = None
) -> Iterator[Round]:
    """Play an experiment to its horizon; contexts are uniform, or drawn by ``sample(rng, n)``; rewards are 0 or 1.

    State and policy pass through the codec between rounds, as they do on disk and on the wire.
    """
    rng = np.random.default_rng(seed)
    learner = learner_for(spec)
    state, turn, version = learner.start(), next_turn(spec, None), 0
    while batch := turn.batch:
        version += 1
        state = decode(encode(state), learner.state_type)
        policy = decode(encode(learner.policy(state, version, batch, int(rng.integers(2**63)))), PartitionPolicy)
        policy.check(spec.arm_count)
        contexts = sample(rng, batch) if sample else rng.random((batch, spec.dimension))
        slots = rng.integers(0, 2**32, batch, dtype=np.uint32)
        arms = policy.choose(contexts, slots)
        rewards = (rng.random(batch) < means(contexts)[np.arange(batch), arms]).astype(float)
        mechanism = policy.mechanism
        release = mechanism.simulate(policy.contribute(contexts, slots, arms, rewards), rng)
        state = learner.learn(state, policy, release)
        turn = next_turn(spec, turn)
        yield Round(policy, release, state)


def bumps(arms: int) -> Means:
    """Arm k is best around k / (arms - 1) along the first feature; Lipschitz with constant 1."""
    places = np.arange(arms) / (arms - 1)
    return lambda contexts: 1.0 - np.abs(contexts[:, :1] - places)
