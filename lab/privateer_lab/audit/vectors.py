"""Attacks on bounded vectors, under every trust model."""

import math
import os

import numpy as np

from privateer.accounting.events import Gaussian, Pure, ShuffledBits
from privateer.contributions import BoundedVectors
from privateer.mechanisms.vector_bits import BitVectors, plan
from privateer.mechanisms.vector_gaussian import CentralVectors, GaussianVectors, vector_standard_deviation
from privateer.mechanisms.vector_laplace import LaplaceVectors
from privateer.mechanisms.vector_shares import ShareVectors
from privateer.mechanisms.vector_symbol import VectorSymbol, symbol_vectors
from privateer.sampling.entropy import SecureNoise
from privateer.vectors import Ball
from privateer_lab.audit.case import Case, Sampler
from privateer_lab.audit.evidence import Scores

_BALL = Ball("l2", 1.0, 4)
_BOX = Ball("max", 1.0, 4)
_DELTA = 1e-6
_PEOPLE = 60
"""Honest people of a shuffled batch."""
_BATCHES_AT_ONCE = 200


def _ends(ball: Ball) -> list[Scores]:
    """The two vectors that are farthest apart: opposite ends of a diagonal."""
    corner = np.full(ball.coordinates, ball.bound / (1.0 if ball.norm == "max" else math.sqrt(ball.coordinates)))
    return [corner, -corner]


def _alike(vector: Scores, count: int) -> BoundedVectors:
    slots = np.frombuffer(os.urandom(4 * count), dtype=np.uint32)
    # Far beyond the ball: what protects a person must not depend on what an application hands over.
    return BoundedVectors(slots, np.tile(9 * vector, (count, 1)))


def vector_cases(samples: int) -> list[Case]:
    """All attacks on mechanisms of vectors."""
    cases = []
    for ball in (_BALL, _BOX):
        laplace = LaplaceVectors(ball, 2.0)
        name, sample = f"vectors in {ball.norm}", _laplace(laplace)
        cases += _normal_cases(ball, samples)
        cases.append(Case(name, "LaplaceVectors", "local", "published", 2.0, 0.0, Pure(2.0), sample, samples))
    for epsilon in (1.0, 4.0):
        symbol = symbol_vectors(_BALL, epsilon, 11)
        name, sample = f"{2 * symbol.directions} symbols", _symbol(symbol)
        cases.append(Case(name, "VectorSymbol", "local", "tight", epsilon, 0.0, Pure(epsilon), sample, samples))
    return [*cases, *_shuffled_cases(samples)]


def _normal_cases(ball: Ball, samples: int) -> list[Case]:
    """Normal noise of devices and of a curator; the published calibration is private below epsilon 1 alone."""
    cases = []
    for calibration, epsilon in (("tight", 1.0), ("published", 0.9)):
        standard_deviation = vector_standard_deviation(ball, epsilon, _DELTA, calibration)
        local, curated = GaussianVectors(ball, standard_deviation), CentralVectors(ball, standard_deviation)
        event, count = (
            Gaussian(standard_deviation, ball.diameter),
            max(2000, samples // (2 if calibration == "tight" else 10)),
        )
        attacks = (
            (f"vectors in {ball.norm}", "GaussianVectors", "local", _linear(local, ball), 4 * samples),
            (f"release in {ball.norm}", "CuratedVectors", "central", _released(curated, ball), count),
        )
        for name, kind, model, sample, observations in attacks:
            cases.append(Case(name, kind, model, calibration, epsilon, _DELTA, event, sample, observations))
    return cases


def _linear(mechanism: GaussianVectors, ball: Ball) -> Sampler:
    ends = _ends(ball)

    def sample(who: int, count: int) -> Scores:
        rows = mechanism.randomize(_alike(ends[who], count), SecureNoise()).tobytes()
        return np.asarray(mechanism.parse(rows).astype(float) @ ends[0])

    return sample


def _released(mechanism: CentralVectors, ball: Ball) -> Sampler:
    ends = _ends(ball)

    def sample(who: int, count: int) -> Scores:
        rows = mechanism.randomize(_alike(ends[who], 1), SecureNoise()).tobytes()
        total = mechanism.add(mechanism.empty(), mechanism.parse(rows))
        return np.array([mechanism.release(total, SecureNoise()).sums @ ends[0] for _ in range(count)])

    return sample


def _laplace(mechanism: LaplaceVectors) -> Sampler:
    ends = _ends(mechanism.ball)

    def sample(who: int, count: int) -> Scores:
        rows = mechanism.randomize(_alike(ends[who], count), SecureNoise()).tobytes()
        reports = mechanism.parse(rows) / 256 * mechanism.ball.bound
        return np.asarray((np.abs(reports - ends[1]) - np.abs(reports - ends[0])).sum(axis=1))

    return sample


def _symbol(mechanism: VectorSymbol) -> Sampler:
    ends = _ends(mechanism.ball)

    def sample(who: int, count: int) -> Scores:
        rows = mechanism.randomize(_alike(ends[who], count), SecureNoise()).tobytes()
        reports = mechanism.parse(rows)
        sent = reports["symbol"].astype(np.int64)[:, None]
        own, other = (
            (mechanism.own(BoundedVectors(reports["slot"], np.tile(end, (count, 1)))) == sent).any(axis=1)
            for end in ends
        )
        return np.asarray(own.astype(float) - other)

    return sample


def _shuffled_cases(samples: int) -> list[Case]:
    cases = []
    for calibration, epsilon in (("tight", 1.0), ("published", 10.0)):
        made = plan(_BOX, epsilon, 0.01, _PEOPLE, calibration)
        event = ShuffledBits(made.trials, made.probability, made.levels, _BOX.coordinates)
        for mechanism in (BitVectors(made), ShareVectors(made, 5)):
            kind, count = type(mechanism).__name__, max(2000, samples // 20)
            # The published plan sends tens of thousands of bits a person: its sums are drawn from their law.
            sample = _summed(mechanism) if calibration == "tight" else _simulated(mechanism)
            cases.append(Case("summed batch", kind, "shuffle", calibration, epsilon, 0.01, event, sample, count))
    return cases


def _simulated(mechanism: BitVectors | ShareVectors) -> Sampler:
    ends = _ends(_BOX)

    def sample(who: int, count: int) -> Scores:
        people = np.zeros((_PEOPLE, _BOX.coordinates))
        people[0] = 9 * ends[who]
        batch, rng = BoundedVectors(np.zeros(_PEOPLE, np.uint32), people), np.random.default_rng()
        return np.array([mechanism.simulate(batch, rng).sums @ ends[0] for _ in range(count)])

    return sample


def _summed(mechanism: BitVectors | ShareVectors) -> Sampler:
    """The adversary knows everybody else of the batch, and adds up what the shuffler released."""
    ends = _ends(_BOX)

    def batches(who: int, count: int) -> Scores:
        people = np.zeros((count, _PEOPLE, _BOX.coordinates))
        people[:, 0] = 9 * ends[who]
        flat = BoundedVectors(np.zeros(count * _PEOPLE, np.uint32), people.reshape(-1, _BOX.coordinates))
        messages = mechanism.randomize(flat, SecureNoise()).reshape(count, -1)
        sums = [mechanism.add(mechanism.empty(), batch) for batch in messages]
        return np.array([mechanism.release(total, SecureNoise()).sums @ ends[0] for total in sums])

    def sample(who: int, count: int) -> Scores:
        steps = [min(_BATCHES_AT_ONCE, count - start) for start in range(0, count, _BATCHES_AT_ONCE)]
        return np.concatenate([batches(who, step) for step in steps])

    return sample
