"""Attacks on bounded vectors, under every trust model."""

import math
import os

import numpy as np

from privateer.contributions import BoundedVectors
from privateer.privacy.events import Gaussian, Pure, ShuffledBits
from privateer.privacy.noise import SecureNoise
from privateer.privatizers.vector_bits import BitVectors, plan
from privateer.privatizers.vector_gaussian import CuratedVectors, GaussianVectors, vector_deviation
from privateer.privatizers.vector_laplace import LaplaceVectors
from privateer.privatizers.vector_shares import ShareVectors
from privateer.privatizers.vector_symbol import VectorSymbol, symbol_vectors
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
    """All attacks on privatizers of vectors."""
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
        deviation = vector_deviation(ball, epsilon, _DELTA, calibration)
        local, curated = GaussianVectors(ball, deviation), CuratedVectors(ball, deviation)
        event, count = Gaussian(deviation, ball.diameter), max(2000, samples // (2 if calibration == "tight" else 10))
        attacks = (
            (f"vectors in {ball.norm}", "GaussianVectors", "local", _linear(local, ball), 4 * samples),
            (f"release in {ball.norm}", "CuratedVectors", "central", _released(curated, ball), count),
        )
        for name, kind, model, sample, observations in attacks:
            cases.append(Case(name, kind, model, calibration, epsilon, _DELTA, event, sample, observations))
    return cases


def _linear(privatizer: GaussianVectors, ball: Ball) -> Sampler:
    ends = _ends(ball)

    def sample(who: int, count: int) -> Scores:
        rows = privatizer.randomize(_alike(ends[who], count), SecureNoise()).tobytes()
        return np.asarray(privatizer.parse(rows).astype(float) @ ends[0])

    return sample


def _released(privatizer: CuratedVectors, ball: Ball) -> Sampler:
    ends = _ends(ball)

    def sample(who: int, count: int) -> Scores:
        rows = privatizer.randomize(_alike(ends[who], 1), SecureNoise()).tobytes()
        total = privatizer.add(privatizer.empty(), privatizer.parse(rows))
        return np.array([privatizer.release(total, SecureNoise()).sums @ ends[0] for _ in range(count)])

    return sample


def _laplace(privatizer: LaplaceVectors) -> Sampler:
    ends = _ends(privatizer.ball)

    def sample(who: int, count: int) -> Scores:
        rows = privatizer.randomize(_alike(ends[who], count), SecureNoise()).tobytes()
        reports = privatizer.parse(rows) / 256 * privatizer.ball.bound
        return np.asarray((np.abs(reports - ends[1]) - np.abs(reports - ends[0])).sum(axis=1))

    return sample


def _symbol(privatizer: VectorSymbol) -> Sampler:
    ends = _ends(privatizer.ball)

    def sample(who: int, count: int) -> Scores:
        rows = privatizer.randomize(_alike(ends[who], count), SecureNoise()).tobytes()
        reports = privatizer.parse(rows)
        sent = reports["symbol"].astype(np.int64)[:, None]
        own, other = (
            (privatizer.own(BoundedVectors(reports["slot"], np.tile(end, (count, 1)))) == sent).any(axis=1)
            for end in ends
        )
        return np.asarray(own.astype(float) - other)

    return sample


def _shuffled_cases(samples: int) -> list[Case]:
    cases = []
    for calibration, epsilon in (("tight", 1.0), ("published", 10.0)):
        made = plan(_BOX, epsilon, 0.01, _PEOPLE, calibration)
        event = ShuffledBits(made.trials, made.chance, made.levels, _BOX.coordinates)
        for privatizer in (BitVectors(made), ShareVectors(made, 5)):
            kind, count = type(privatizer).__name__, max(2000, samples // 20)
            # The published plan sends tens of thousands of bits a person: its sums are drawn from their law.
            sample = _summed(privatizer) if calibration == "tight" else _simulated(privatizer)
            cases.append(Case("summed batch", kind, "shuffle", calibration, epsilon, 0.01, event, sample, count))
    return cases


def _simulated(privatizer: BitVectors | ShareVectors) -> Sampler:
    ends = _ends(_BOX)

    def sample(who: int, count: int) -> Scores:
        people = np.zeros((_PEOPLE, _BOX.coordinates))
        people[0] = 9 * ends[who]
        batch, rng = BoundedVectors(np.zeros(_PEOPLE, np.uint32), people), np.random.default_rng()
        return np.array([privatizer.simulate(batch, rng).sums @ ends[0] for _ in range(count)])

    return sample


def _summed(privatizer: BitVectors | ShareVectors) -> Sampler:
    """The adversary knows everybody else of the batch, and adds up what the shuffler released."""
    ends = _ends(_BOX)

    def batches(who: int, count: int) -> Scores:
        people = np.zeros((count, _PEOPLE, _BOX.coordinates))
        people[:, 0] = 9 * ends[who]
        flat = BoundedVectors(np.zeros(count * _PEOPLE, np.uint32), people.reshape(-1, _BOX.coordinates))
        messages = privatizer.randomize(flat, SecureNoise()).reshape(count, -1)
        sums = [privatizer.add(privatizer.empty(), batch) for batch in messages]
        return np.array([privatizer.release(total, SecureNoise()).sums @ ends[0] for total in sums])

    def sample(who: int, count: int) -> Scores:
        steps = [min(_BATCHES_AT_ONCE, count - start) for start in range(0, count, _BATCHES_AT_ONCE)]
        return np.concatenate([batches(who, step) for step in steps])

    return sample
