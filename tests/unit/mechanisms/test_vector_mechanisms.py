"""Calibration of the vector mechanisms: what they promise is accounted, and how much noise that takes."""

import math

import numpy as np
import pytest

from privateer_core.accounting.accountant import account
from privateer_core.accounting.events import Gaussian, ShuffledBits
from privateer_core.accounting.gaussian import gaussian_standard_deviation
from privateer_core.errors import BatchRefused, SpecError
from privateer_core.mechanisms.vectors.vector_bits import BIT, BitVectors
from privateer_core.mechanisms.vectors.vector_noise import CentralVectors, GaussianVectors, vector_standard_deviation
from privateer_core.mechanisms.vectors.vector_symbol import VectorSymbol
from privateer_core.primitives.bounded_vectors import BoundedVectors
from privateer_core.primitives.clipping import Ball, VectorTotal
from privateer_core.primitives.questions import VectorSum
from privateer_core.privacy.terms import calibrate
from privateer_core.spec.privacy import Privacy
from privateer_lab.simulation.devices import SeededNoise
from privateer_papers.paper_5.bits import published_vectors
from privateer_papers.published_trust import classic_noise


@pytest.mark.parametrize("norm", ["l2", "max"])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-6), (1.0, 1e-9), (10.0, 0.25)])
def test_normal_noise_keeps_its_promise_and_wastes_little(norm, epsilon, delta):
    ball = Ball(norm, 1.0, 20)
    standard_deviation = vector_standard_deviation(ball, epsilon, delta)
    assert account(Gaussian(standard_deviation, ball.diameter)).delta(epsilon) <= delta
    ideal = gaussian_standard_deviation(epsilon, delta, 2 * ball.radius / ball.step)
    assert 1 <= standard_deviation / ideal < 1.001


def test_published_normal_noise_is_short_above_epsilon_one():
    ball = Ball("l2", 1.0, 20)
    standard_deviation = classic_noise(ball, 10, 0.25)
    assert account(Gaussian(standard_deviation, ball.diameter)).delta(10) == pytest.approx(0.789, abs=0.001)


def test_a_promise_below_what_the_sampler_is_certified_for_is_refused():
    with pytest.raises(SpecError):
        vector_standard_deviation(Ball("l2", 1.0, 60_000), 1.0, 1e-11)
    with pytest.raises(SpecError):
        vector_standard_deviation(Ball("l2", 1.0, 2), 1.0, 0.0)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: vector_standard_deviation(Ball("l2", 1.0, 2), 10_000.0, 1e-6), "epsilon"),
        (lambda: BitVectors(Ball("l2", 1.0, 2), 6, 10, 0.5, 5), "norm"),
        (lambda: BitVectors(Ball("max", 1.0, 70_000), 6, 10, 0.5, 5), "norm"),
        (lambda: BitVectors(Ball("max", 1.0, 2), 0, 10, 0.5, 5), "levels"),
        (lambda: VectorSymbol(Ball("l2", 1.0, 2), 1.0, 4, 5, 1), "chosen"),
        (lambda: VectorSymbol(Ball("l2", 1.0, 2), 1e-300, 4, 1, 1), "epsilon"),
    ],
)
def test_what_no_calibration_gives_is_refused(make, field):
    with pytest.raises(SpecError) as refusal:
        make()
    assert refusal.value.field == field


PROMISES = [(1, 1e-6, 1000), (5, 1e-6, 1000), (1, 0.25, 500), (10, 0.25, 1024), (1, 1e-6, 10**5), (1, 1e-6, 10**6)]


def trials(made: BitVectors) -> int:
    return made.least * made.bits


def relative_noise(made: BitVectors, epsilon: float, delta: float) -> float:
    """Standard deviation of the noise by that of the analytic Gaussian of a curator, with the same promise."""
    standard_deviation = math.sqrt(trials(made) * made.probability * (1 - made.probability)) * made.unit
    return standard_deviation / gaussian_standard_deviation(epsilon, delta, 2 * made.ball.radius)


@pytest.mark.parametrize("coordinates", [20, 40, 60])
@pytest.mark.parametrize(("epsilon", "delta", "least"), PROMISES)
def test_shuffled_noise_keeps_its_promise_and_rounds_finely(epsilon, delta, least, coordinates):
    made = BitVectors.calibrated(Ball("max", 1.0, coordinates), epsilon, delta, least)
    event = ShuffledBits(trials(made), made.probability, made.levels, coordinates)
    assert made.shuffled(least) == event
    assert account(event).delta(epsilon) <= delta
    assert 1 <= relative_noise(made, epsilon, delta) < 1.1
    assert least * made.unit**2 / 4 <= trials(made) / 4 * made.unit**2 / 4


def test_published_bits_are_hundreds_of_times_noisier():
    ball = Ball("max", 1.0, 20)
    published, tight = published_vectors(ball, 1, 1e-6, 1024), BitVectors.calibrated(ball, 1, 1e-6, 1024)

    def standard_deviation(made: BitVectors) -> float:
        return math.sqrt(trials(made) * made.probability * (1 - made.probability)) * made.unit

    # The paper's range of a coordinate is the vector's norm bound, sqrt(20) times ours.
    assert published.ball.bound == pytest.approx(math.sqrt(20))
    assert standard_deviation(published) / standard_deviation(tight) > 250


def test_half_the_noise_is_caught():
    """Planted: half the bits."""
    made = BitVectors.calibrated(Ball("max", 1.0, 20), 1, 1e-6, 1000)
    assert account(ShuffledBits(trials(made) // 2, made.probability, made.levels, 20)).delta(1) > 1e-5


@pytest.mark.parametrize(
    ("epsilon", "delta", "kind"),
    [(1, 1e-6, VectorSymbol), (8, 1e-6, VectorSymbol), (1, 0.25, GaussianVectors), (1, 0, VectorSymbol)],
)
def test_the_local_mechanism_is_the_one_of_the_least_error(epsilon, delta, kind):
    promise = Privacy(model="local", epsilon=epsilon, delta=delta)
    assert type(calibrate(promise, 1000, VectorSum(Ball("l2", 1.0, 20), 1)).mechanism) is kind


def test_central_vectors_out_of_the_ball_are_refused():
    one = CentralVectors(Ball("l2", 1.0, 2), 300.0)
    with pytest.raises(Exception, match="out of the ball"):
        one.parse(np.array([16_384, 16_384], "<i4").tobytes())
    assert BIT.itemsize == 3


def test_central_vectors_may_be_long():
    """600,000 coordinates in one joint block: 2.4 MB a person, released with noise for its one L2 bound."""
    ball = Ball("l2", 1.0, 600_000)
    one = CentralVectors.calibrated(ball, 1.0, 1e-6)
    vectors = BoundedVectors(np.zeros(2, np.uint32), np.full((2, 600_000), 1.0))
    total = one.add(one.empty(), one.parse(one.randomize(vectors, SeededNoise(1)).tobytes()))
    released = one.release(total, SeededNoise(2))
    assert released.sums.std() == pytest.approx(one.standard_deviation * ball.step, rel=0.01)
    assert account(one.released).delta(1.0) + one.sampling <= 1e-6


SIX = BitVectors(Ball("max", 1.0, 2), 6, 10, 0.5, 5)
NOTHING = BoundedVectors(np.zeros(6, np.uint32), np.zeros((6, 2)))


def test_a_missing_bit_counts_as_zero():
    """It moves a sum by a bit at most; only who is missing altogether is not counted."""
    rows = SIX.randomize(NOTHING, SeededNoise(1)).ravel()
    whole = SIX.release(SIX.add(SIX.empty(), rows), SeededNoise(1))
    less = SIX.release(SIX.add(SIX.empty(), rows[:-1]), SeededNoise(1))
    assert whole.reports == less.reports == 6
    assert np.abs(whole.sums - less.sums).max() <= SIX.unit
    assert SIX.release(SIX.add(SIX.empty(), rows[: -SIX.messages]), SeededNoise(1)).reports == 5
    with pytest.raises(BatchRefused):
        SIX.release(SIX.add(SIX.empty(), rows[: -2 * SIX.messages]), SeededNoise(1))
    assert type(SIX.empty()) is VectorTotal
