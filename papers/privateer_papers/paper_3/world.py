"""Sparse linear bandits of paper 3 on the people of a spec: all of them in one run, on the same people."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.policies.decisions import Arms
from privateer_core.spec.spec import Spec
from privateer_lab.environments import environment_for
from privateer_papers.paper_3.lasso_bandits import Fliphat, LassoBandit, Peer, Problem, ThresholdedLassoBandit
from privateer_papers.paper_3.privatelasso import LEAF, GaussianTree, PrivateLasso
from privateer_papers.reproduction import Row

FIRST: Final = 2048
"""People at the first point of the figure: before, hardly anybody has learned anything."""
PUBLISHED: Final = "PrivateLASSO, published"
FLIPHAT: Final = "FLIPHAT"
UNPROTECTED: Final = ("LASSO bandit, no privacy", "thresholded LASSO bandit, no privacy")
PEERS: Final[Mapping[str, type[Peer]]] = {
    PUBLISHED: PrivateLasso,
    "PrivateLASSO, normal noise in the tree": GaussianTree,
    FLIPHAT: Fliphat,
    **dict(zip(UNPROTECTED, (LassoBandit, ThresholdedLassoBandit), strict=True)),
}
_NUMBERS: Final = 1 << 22
"""Numbers of contexts drawn at a time."""
_UNIFORM: Final = 1 / 3
"""Mean square of a number that is uniform in [-1, 1]."""


def points(people: int) -> list[int]:
    """Return the numbers of people at which regret is read: powers of two."""
    return [2**k for k in range(FIRST.bit_length() - 1, people.bit_length())]


def played(spec: Any, seed: int, chosen: Mapping[str, type[Peer]] = PEERS) -> list[Row]:
    """Play all ``chosen`` with the same people; return rows of their regret over a uniform choice's at the `points`."""
    people = spec.experiment.horizon
    environment: Any = environment_for(spec, seed)
    peers = {name: made(problem_of(spec, environment.coefficients), seed) for name, made in chosen.items()}
    rng, lost, uniform, rows = np.random.default_rng([seed, 3]), dict.fromkeys(peers, 0.0), 0.0, []
    for start, end in pairwise([0, *_updates(people)]):
        for first, count in _blocks(start, end, spec.arm_count * spec.arm_features):
            raw = environment.contexts(first, count, rng)
            means, contexts = environment.means(raw), _scaled(spec, raw)
            luck, best = int(rng.integers(2**63)), means.max(axis=1)
            uniform += float((best - means.mean(axis=1)).sum())
            for name, peer in peers.items():
                arms = peer.choose(contexts)
                # Two that play the same arm for a person get the same reward.
                rewards = environment.rewards(raw, Arms(arms), np.random.default_rng(luck))
                peer.learn(contexts[np.arange(count), arms], _clipped(spec, rewards))
                lost[name] += float((best - means[np.arange(count), arms]).sum())
        for peer in peers.values():
            peer.update()
        if end in points(people):
            facts = {"d": spec.arm_features, "people": end, "seed": seed, "uniform": uniform}
            rows += [{"policy": name, **facts, "regret": lost[name] / uniform} for name in peers]
    return rows


def problem_of(spec: Any, coefficients: NDArray[np.float64]) -> Problem:
    """Return what everybody knows of a spec's problem."""
    return Problem(
        dimension=spec.arm_features,
        sparsity=spec.algorithm.sparsity,
        reward=spec.reward.half_range,
        length=float(np.linalg.norm(coefficients)),
        variance=_UNIFORM,
        people=spec.experiment.horizon,
        epsilon=spec.privacy.bound,
        delta=spec.privacy.delta,
    )


def _updates(people: int) -> list[int]:
    """Return when anybody may estimate anew: at powers of two and in their midst, and at the ends of leaves."""
    early = {2**k for k in range(6, people.bit_length())} | {3 * 2**k for k in range(5, people.bit_length() - 1)}
    return sorted({*(t for t in early if t <= people), *range(LEAF, people + 1, LEAF), people})


def _blocks(start: int, end: int, size: int) -> list[tuple[int, int]]:
    step = max(1, _NUMBERS // size)
    return [(first, min(step, end - first)) for first in range(start, end, step)]


def _scaled(spec: Any, raw: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return contexts (n, arms, d) in [-1, 1]."""
    low, high = spec.context.low, spec.context.high
    scaled = (raw - low) * (2 / (high - low)) - 1
    return np.asarray(scaled.reshape(len(raw), spec.arm_count, -1), np.float32)


def _clipped(spec: Spec, rewards: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.clip(rewards - spec.reward.middle, -spec.reward.half_range, spec.reward.half_range)
