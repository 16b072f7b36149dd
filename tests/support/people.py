"""Simulated people for learners: rounds of an experiment in one process, through the real policies and mechanisms."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privateer.algorithms.partition import PartitionPolicy, PartitionSpec
from privateer.codec import decode, encode
from privateer.contributions import CellSums, KeyedSums
from privateer_server.schedule import Schedule

Means = Callable[[NDArray[np.float64]], NDArray[np.float64]]


@dataclass(frozen=True)
class Round:
    """A closed round: what was published, what was released, what the learner knew afterwards."""

    policy: PartitionPolicy
    release: KeyedSums | CellSums
    state: Any


def rounds(
    spec: PartitionSpec, means: Means, seed: int, sample: Callable[..., NDArray[np.float64]] | None = None
) -> Iterator[Round]:
    """Play an experiment to its horizon; contexts are uniform, or drawn by ``sample(rng, n)``; rewards are 0 or 1.

    State and policy pass through the codec between rounds, as they do on disk and on the wire.
    """
    rng = np.random.default_rng(seed)
    schedule = Schedule(spec)
    step = schedule.open(int(rng.integers(2**63)))
    while step.batch:
        state = decode(encode(step.state), schedule.learner.state_type)
        policy = decode(encode(step.policy), PartitionPolicy)
        policy.check(spec)
        contexts = sample(rng, step.batch) if sample else rng.random((step.batch, spec.dimension))
        coins = rng.integers(0, 2**32, step.batch, dtype=np.uint32)
        decisions = policy.decide(contexts, coins)
        rewards = (rng.random(step.batch) < means(contexts)[np.arange(step.batch), decisions.arms]).astype(float)
        release = policy.mechanism.simulate(policy.contribute(contexts, coins, decisions, rewards), rng)
        step = schedule.close(replace(step, state=state, policy=policy), release, int(rng.integers(2**63)))
        yield Round(policy, release, step.state)


def bumps(arms: int) -> Means:
    """Arm k is best around k / (arms - 1) along the first feature; Lipschitz with constant 1."""
    places = np.arange(arms) / (arms - 1)
    return lambda contexts: 1.0 - np.abs(contexts[:, :1] - places)
