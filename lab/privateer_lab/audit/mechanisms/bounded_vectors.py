"""Attacks on bounded vectors, under every trust model."""

import math

import numpy as np

from privateer_core.accounting.amplification import amplified_local_epsilon
from privateer_core.mechanisms import VectorMechanism
from privateer_core.mechanisms.vector_bits import BitVectors
from privateer_core.mechanisms.vector_noise import CentralVectors, GaussianVectors
from privateer_core.mechanisms.vector_symbol import VectorSymbol
from privateer_core.primitives.clipping import Ball
from privateer_core.primitives.contributions import BoundedVectors
from privateer_lab.audit.case import Case
from privateer_lab.audit.views import Coins, Maker, Target, batches, mechanism_case, releases, reports

BALL, BOX = Ball("l2", 1.0, 4), Ball("max", 1.0, 4)
DELTA = 1e-6
PEOPLE = 60
"""Honest people of a shuffled batch."""
_OF_TWO = 1.74
"""The local epsilon of each of two messages that keeps (1, .05) in such a batch, rounded down."""
_BEYOND = 9.0
"""Vectors are so much longer than the ball: protection must not depend on what an application hands over."""


def vector_cases(samples: int) -> list[Case]:
    """Return all attacks on mechanisms of vectors."""
    cases = [case for ball in (BALL, BOX) for case in _normal_cases(ball, samples)]
    for epsilon, ball, count in ((1.0, BALL, samples), (4.0, BALL, samples // 4), (1.0, BOX, samples // 4)):
        symbol = VectorSymbol.calibrated(ball, epsilon, 11)
        name = f"{2 * symbol.directions} symbols in {ball.norm}"
        cases.append(mechanism_case(name, reports, target(symbol), (epsilon, 0.0), count))
    return [*cases, *_shuffled_cases(samples)]


def target(mechanism: VectorMechanism) -> Target:
    """Return two people at opposite ends of a diagonal, as far apart as any; everybody else is in the middle."""
    ball = mechanism.ball
    end = _BEYOND * ball.bound / (1.0 if ball.norm == "max" else math.sqrt(ball.coordinates))
    return Target(mechanism, (_maker(ball, end), _maker(ball, -end)), _maker(ball, 0.0), PEOPLE)


def _maker(ball: Ball, value: float) -> Maker:
    def make(coins: Coins) -> BoundedVectors:
        return BoundedVectors(coins, np.full((len(coins), ball.coordinates), value))

    return make


def _normal_cases(ball: Ball, samples: int) -> list[Case]:
    """Normal noise of devices and of a curator."""
    claim = (1.0, DELTA)
    device, curator = (target(kind.calibrated(ball, *claim)) for kind in (GaussianVectors, CentralVectors))
    return [
        mechanism_case(f"vectors in {ball.norm}", reports, device, claim, 4 * samples),
        mechanism_case(f"release in {ball.norm}", releases, curator, claim, max(2000, samples // 4)),
    ]


def _shuffled_cases(samples: int) -> list[Case]:
    bits = BitVectors.calibrated(BOX, 1.0, 0.01, PEOPLE)
    direction = VectorSymbol(BALL, amplified_local_epsilon(1.0, 0.01, 16 / 3, PEOPLE, 8.0), 8, 3, 11)
    several = VectorSymbol(BALL, _OF_TWO, 8, 3, 11, repeats=2)
    count = max(2000, samples // 20)
    return [
        mechanism_case("permuted batch", batches, target(direction), (1.0, 0.01), 2 * count),
        mechanism_case("permuted batch, two messages", batches, target(several), (1.0, 0.05), count),
        mechanism_case("summed batch", batches, target(bits), (1.0, 0.01), count),
    ]
