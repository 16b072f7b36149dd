"""Attacks on bounded vectors, under every trust model."""

import math

import numpy as np

from privateer_core.accounting.amplification import amplified_local_epsilon
from privateer_core.contributions import BoundedVectors
from privateer_core.mechanisms import VectorMechanism
from privateer_core.mechanisms.vector_bits import BitVectors
from privateer_core.mechanisms.vector_noise import CentralVectors, GaussianVectors
from privateer_core.mechanisms.vector_symbol import VectorSymbol
from privateer_core.vectors import Ball
from privateer_lab.audit.case import Case
from privateer_lab.audit.views import Coins, Maker, Target, batches, mechanism_case, releases, reports

_BALL, _BOX = Ball("l2", 1.0, 4), Ball("max", 1.0, 4)
_DELTA = 1e-6
_PEOPLE = 60
"""Honest people of a shuffled batch."""
_OF_TWO = 1.74
"""The local epsilon of each of two messages that keeps (1, .05) in such a batch, rounded down."""
_BEYOND = 9.0
"""Vectors are so much longer than the ball: protection must not depend on what an application hands over."""


def vector_cases(samples: int) -> list[Case]:
    """Return all attacks on mechanisms of vectors."""
    cases = [case for ball in (_BALL, _BOX) for case in _normal_cases(ball, samples)]
    for epsilon, ball, count in ((1.0, _BALL, samples), (4.0, _BALL, samples // 4), (1.0, _BOX, samples // 4)):
        symbol = VectorSymbol.calibrated(ball, epsilon, 11)
        name = f"{2 * symbol.directions} symbols in {ball.norm}"
        cases.append(mechanism_case(name, reports, _target(symbol), (epsilon, 0.0), count))
    return [*cases, *_shuffled_cases(samples)]


def _target(mechanism: VectorMechanism) -> Target:
    """Two people at opposite ends of a diagonal, which are as far apart as any; everybody else is in the middle."""
    ball = mechanism.ball
    end = _BEYOND * ball.bound / (1.0 if ball.norm == "max" else math.sqrt(ball.coordinates))
    return Target(mechanism, (_maker(ball, end), _maker(ball, -end)), _maker(ball, 0.0), _PEOPLE)


def _maker(ball: Ball, value: float) -> Maker:
    def make(coins: Coins) -> BoundedVectors:
        return BoundedVectors(coins, np.full((len(coins), ball.coordinates), value))

    return make


def _normal_cases(ball: Ball, samples: int) -> list[Case]:
    """Normal noise of devices and of a curator; the published calibration is private below epsilon 1 alone."""
    cases = []
    for calibration, epsilon in (("tight", 1.0), ("published", 0.9)):
        promise = (ball, epsilon, _DELTA, calibration)
        device, curator = _target(GaussianVectors.calibrated(*promise)), _target(CentralVectors.calibrated(*promise))
        count = max(2000, samples // (4 if calibration == "tight" else 10))
        claim = (epsilon, _DELTA)
        cases += [
            mechanism_case(f"vectors in {ball.norm}", reports, device, claim, 4 * samples, calibration),
            mechanism_case(f"release in {ball.norm}", releases, curator, claim, count, calibration),
        ]
    return cases


def _shuffled_cases(samples: int) -> list[Case]:
    tight, published = BitVectors.calibrated(_BOX, 1.0, 0.01, _PEOPLE), BitVectors.published(_BOX, 10.0, 0.01, _PEOPLE)
    direction = VectorSymbol(_BALL, amplified_local_epsilon(1.0, 0.01, 16 / 3, _PEOPLE, 8.0), 8, 3, 11)
    several = VectorSymbol(_BALL, _OF_TWO, 8, 3, 11, repeats=2)
    count = max(2000, samples // 20)
    return [
        mechanism_case("permuted batch", batches, _target(direction), (1.0, 0.01), 2 * count),
        mechanism_case("permuted batch, two messages", batches, _target(several), (1.0, 0.05), count),
        mechanism_case("summed batch", batches, _target(tight), (1.0, 0.01), count),
        mechanism_case("summed batch", batches, _target(published), (10.0, 0.01), count, "published"),
    ]
