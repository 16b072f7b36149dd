"""Attacks on bounded vectors, under every trust model."""

import math

import numpy as np

from privateer.contributions import BoundedVectors
from privateer.mechanisms import BitVectors, CentralVectors, GaussianVectors, VectorSymbol
from privateer.vectors import Ball
from privateer_lab.audit.case import Case
from privateer_lab.audit.views import Coins, Maker, Target, batches, releases, reports

_BALL, _BOX = Ball("l2", 1.0, 4), Ball("max", 1.0, 4)
_DELTA = 1e-6
_PEOPLE = 60
"""Honest people of a shuffled batch."""
_BEYOND = 9.0
"""Vectors are so much longer than the ball: protection must not depend on what an application hands over."""


def vector_cases(samples: int) -> list[Case]:
    """Return all attacks on mechanisms of vectors."""
    cases = [case for ball in (_BALL, _BOX) for case in _normal_cases(ball, samples)]
    for epsilon, ball, count in ((1.0, _BALL, samples), (4.0, _BALL, samples // 4), (1.0, _BOX, samples // 4)):
        symbol = VectorSymbol.calibrated(ball, epsilon, 11)
        name, sample = f"{2 * symbol.directions} symbols in {ball.norm}", reports(_target(symbol, ball))
        cases.append(Case(name, "VectorSymbol", "local", "tight", epsilon, 0.0, symbol.alone, sample, count))
    return [*cases, *_shuffled_cases(samples)]


def _target(mechanism: VectorSymbol | GaussianVectors | CentralVectors | BitVectors, ball: Ball) -> Target:
    """Two people at opposite ends of a diagonal, which are as far apart as any; everybody else is in the middle."""
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
        count = max(2000, samples // (2 if calibration == "tight" else 10))
        gaussian = GaussianVectors.calibrated(ball, epsilon, _DELTA, calibration)
        central = CentralVectors.calibrated(ball, epsilon, _DELTA, calibration)
        attacks = (
            ("vectors", "local", gaussian, gaussian.alone, reports, 4 * samples),
            ("release", "central", central, central.released, releases, count),
        )
        for what, model, mechanism, event, attack, observations in attacks:
            name, sample, kind = f"{what} in {ball.norm}", attack(_target(mechanism, ball)), type(mechanism).__name__
            assert event is not None
            cases.append(Case(name, kind, model, calibration, epsilon, _DELTA, event, sample, observations))
    return cases


def _shuffled_cases(samples: int) -> list[Case]:
    cases = []
    for calibration, epsilon, make in (("tight", 1.0, BitVectors.calibrated), ("published", 10.0, BitVectors.published)):
        mechanism = make(_BOX, epsilon, 0.01, _PEOPLE)
        sample, event = batches(_target(mechanism, mechanism.ball)), mechanism.shuffled(_PEOPLE)
        count = max(2000, samples // 20)
        cases.append(Case("summed batch", "BitVectors", "shuffle", calibration, epsilon, 0.01, event, sample, count))
    return cases
