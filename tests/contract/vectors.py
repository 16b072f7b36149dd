"""The vector mechanisms of the battery, and people with vectors."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from privateer.contributions import BoundedVectors
from privateer.mechanisms.vector_bits import BinomialPlan, BitVectors
from privateer.mechanisms.vector_gaussian import CentralVectors, GaussianVectors
from privateer.mechanisms.vector_laplace import LaplaceVectors
from privateer.mechanisms.vector_shares import ShareVectors
from privateer.mechanisms.vector_symbol import VectorSymbol
from privateer.vectors import Ball, rounding_variance

Array = NDArray[np.float64]
BOX = Ball("max", 2.0, 3)
SPHERE = Ball("l2", 0.5, 4)
FAIR = BinomialPlan(BOX, 7, 70, 0.5, 20)
UNFAIR = BinomialPlan(BOX, 5, 1, 0.2, 20)

VECTORS: dict[type, dict[str, Any]] = {
    GaussianVectors: {
        "gaussian-max": GaussianVectors(BOX, 40_000.0),
        "gaussian-l2": GaussianVectors(SPHERE, 20_000.0),
    },
    CentralVectors: {
        "curated-max": CentralVectors(BOX, 30_000.0),
        "curated-l2": CentralVectors(SPHERE, 9_000.0),
        "curated-none": CentralVectors(SPHERE, 0.0),
    },
    VectorSymbol: {
        "symbol-1": VectorSymbol(SPHERE, 1.0, 1, 1, 5),
        "symbol-1-of-16": VectorSymbol(SPHERE, 4.0, 16, 1, 6),
        "symbol-7-of-12": VectorSymbol(SPHERE, 2.0, 12, 7, 6),
        "symbol-2-of-4-max": VectorSymbol(BOX, 3.0, 4, 2, 7),
    },
    LaplaceVectors: {"laplace-max": LaplaceVectors(BOX, 4.0), "laplace-l2": LaplaceVectors(SPHERE, 8.0)},
    BitVectors: {"bits-fair": BitVectors(FAIR), "bits-unfair": BitVectors(UNFAIR)},
    ShareVectors: {"shares-fair": ShareVectors(FAIR, 5), "shares-unfair": ShareVectors(UNFAIR, 3)},
}
CASES: dict[str, Any] = {name: one for entries in VECTORS.values() for name, one in entries.items()}
PEOPLE = 60


def ball_of(mechanism: Any) -> Ball:
    plan = getattr(mechanism, "plan", None)
    return plan.ball if plan else mechanism.ball


def people(mechanism: Any, rng: np.random.Generator) -> BoundedVectors:
    """The same vectors every time, some beyond the ball, with fresh slots."""
    ball = ball_of(mechanism)
    angles = np.arange(PEOPLE)[:, None] * (1 + np.arange(ball.coordinates))[None, :]
    lengths = np.linspace(0, 1.6, PEOPLE)[:, None]
    return BoundedVectors(
        rng.integers(0, 2**32, PEOPLE, dtype=np.uint32), ball.bound * lengths * (0.3 + np.cos(angles))
    )


def truth(mechanism: Any) -> Array:
    """The sum of clipped vectors."""
    return ball_of(mechanism).clip(people(mechanism, np.random.default_rng(0)).values).sum(axis=0)


def spread(mechanism: Any) -> Array:
    """Variance of the released sum's coordinates, noise and rounding; or their average, where only that is known."""
    told = people(mechanism, np.random.default_rng(0)).values
    ball = ball_of(mechanism)
    if isinstance(mechanism, VectorSymbol):
        lengths = np.linalg.norm(ball.clip(told), axis=1) / ball.radius
        return np.array([sum(mechanism.variance(float(one)) for one in lengths) / ball.coordinates])
    if isinstance(mechanism, BitVectors | ShareVectors):
        unit = mechanism.plan.unit
        share = ((ball.clip(told) + ball.bound) / unit) % 1.0
        trials = PEOPLE * mechanism.plan.bits * mechanism.plan.probability * (1 - mechanism.plan.probability)
        return np.asarray((share * (1 - share)).sum(axis=0) * unit**2 + trials * unit**2)
    if isinstance(mechanism, LaplaceVectors):
        share = (ball.clip(told) / ball.bound * 256) % 1.0
        ratio = np.exp(-1 / mechanism.scale)
        noise = PEOPLE * 2 * ratio / (1 - ratio) ** 2
        return np.asarray(((share * (1 - share)).sum(axis=0) + noise) * (ball.bound / 256) ** 2)
    draws = PEOPLE if isinstance(mechanism, GaussianVectors) else 1
    noise = draws * (mechanism.standard_deviation**2 + 1 / 12) if mechanism.standard_deviation else 0.0
    return rounding_variance(told, ball) + noise * ball.step**2
