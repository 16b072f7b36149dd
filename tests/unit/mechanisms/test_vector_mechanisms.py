"""Calibration of the vector mechanisms: their promises are accounted, and their noise is near the minimum."""

import math

import numpy as np
import pytest

from privateer_core.accounting.accountant import account
from privateer_core.accounting.events import Gaussian, ShuffledBits
from privateer_core.accounting.gaussian import gaussian_standard_deviation
from privateer_core.errors import BatchRefused, SpecError
from privateer_core.mechanisms.mechanism import VectorTotal
from privateer_core.mechanisms.vectors.vector_bits import BIT, BitVectors
from privateer_core.mechanisms.vectors.vector_noise import CentralVectors, GaussianVectors
from privateer_core.mechanisms.vectors.vector_symbol import VectorSymbol
from privateer_core.primitives.bounded_vectors import BoundedVectors
from privateer_core.primitives.clipping import Ball
from privateer_core.primitives.questions import VectorSum
from privateer_core.privacy.terms import calibrate
from privateer_core.spec.privacy import Privacy
from privateer_lab.simulation.scores import SeededNoise
from privateer_papers.published_trust import classic_noise, published_vectors


@pytest.mark.parametrize("norm", ["l2", "max"])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-6), (1.0, 1e-9), (10.0, 0.25)])
def test_normal_noise_keeps_its_promise_and_wastes_little(norm, epsilon, delta):
    ball = Ball(norm, 1.0, 20)
    standard_deviation = CentralVectors.calibrated(ball, epsilon, delta).standard_deviation
    assert account(Gaussian(standard_deviation, ball.sensitivity)).delta(epsilon) <= delta
    ideal = gaussian_standard_deviation(epsilon, delta, 2 * ball.radius / ball.step)
    assert 1 <= standard_deviation / ideal < 1.001


def test_published_normal_noise_is_short_above_epsilon_one():
    ball = Ball("l2", 1.0, 20)
    standard_deviation = classic_noise(ball, 10, 0.25)
    assert account(Gaussian(standard_deviation, ball.sensitivity)).delta(10) == pytest.approx(0.789, abs=0.001)


def test_a_promise_below_what_the_sampler_is_certified_for_is_refused():
    with pytest.raises(SpecError):
        CentralVectors.calibrated(Ball("l2", 1.0, 60_000), 1.0, 1e-11)
    with pytest.raises(SpecError):
        CentralVectors.calibrated(Ball("l2", 1.0, 2), 1.0, 0.0)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: CentralVectors.calibrated(Ball("l2", 1.0, 2), 10_000.0, 1e-6), "epsilon"),
        (lambda: BitVectors(Ball("l2", 1.0, 2), 6, 10, 0.5, 5), "norm"),
        (lambda: BitVectors(Ball("max", 1.0, 70_000), 6, 10, 0.5, 5), "norm"),
        (lambda: BitVectors(Ball("max", 1.0, 2), 0, 10, 0.5, 5), "levels"),
        (lambda: VectorSymbol(Ball("l2", 1.0, 2), 1.0, 4, 5, 1), "chosen"),
        (lambda: VectorSymbol(Ball("l2", 1.0, 2), 1e-300, 4, 1, 1), "epsilon"),
    ],
)
def test_parameters_that_no_calibration_gives_are_refused(make, field):
    with pytest.raises(SpecError) as refusal:
        make()
    assert refusal.value.field == field


PROMISES = [(1, 1e-6, 1000), (5, 1e-6, 1000), (1, 0.25, 500), (10, 0.25, 1024), (1, 1e-6, 10**5), (1, 1e-6, 10**6)]


def trials(vectors: BitVectors) -> int:
    return vectors.least * vectors.bits


def relative_noise(vectors: BitVectors, epsilon: float, delta: float) -> float:
    """Standard deviation of the noise by that of the analytic Gaussian of a curator, with the same promise."""
    standard_deviation = math.sqrt(trials(vectors) * vectors.probability * (1 - vectors.probability)) * vectors.unit
    return standard_deviation / gaussian_standard_deviation(epsilon, delta, 2 * vectors.ball.radius)


@pytest.mark.parametrize("coordinates", [20, 40, 60])
@pytest.mark.parametrize(("epsilon", "delta", "min_participants"), PROMISES)
def test_shuffled_noise_keeps_its_promise_and_rounds_finely(epsilon, delta, min_participants, coordinates):
    vectors = BitVectors.calibrated(Ball("max", 1.0, coordinates), epsilon, delta, min_participants)
    event = ShuffledBits(trials(vectors), vectors.probability, vectors.levels, coordinates)
    assert vectors.batch_event(min_participants) == event
    assert account(event).delta(epsilon) <= delta
    assert 1 <= relative_noise(vectors, epsilon, delta) < 1.1
    assert min_participants * vectors.unit**2 / 4 <= trials(vectors) / 4 * vectors.unit**2 / 4


def test_published_bits_are_hundreds_of_times_noisier():
    ball = Ball("max", 1.0, 20)
    published, tight = published_vectors(ball, 1, 1e-6, 1024), BitVectors.calibrated(ball, 1, 1e-6, 1024)

    def standard_deviation(vectors: BitVectors) -> float:
        return math.sqrt(trials(vectors) * vectors.probability * (1 - vectors.probability)) * vectors.unit

    # The paper's range of a coordinate is the vector's norm bound, sqrt(20) times ours.
    assert published.ball.bound == pytest.approx(math.sqrt(20))
    assert standard_deviation(published) / standard_deviation(tight) > 250


def test_half_the_noise_is_caught():
    """Planted: half the bits."""
    vectors = BitVectors.calibrated(Ball("max", 1.0, 20), 1, 1e-6, 1000)
    assert account(ShuffledBits(trials(vectors) // 2, vectors.probability, vectors.levels, 20)).delta(1) > 1e-5


@pytest.mark.parametrize(
    ("epsilon", "delta", "kind"),
    [(1, 1e-6, VectorSymbol), (8, 1e-6, VectorSymbol), (1, 0.25, GaussianVectors), (1, 0, VectorSymbol)],
)
def test_the_local_mechanism_is_the_one_of_the_least_error(epsilon, delta, kind):
    promise = Privacy(model="local", epsilon=epsilon, delta=delta)
    assert type(calibrate(promise, 1000, VectorSum(Ball("l2", 1.0, 20), 1)).mechanism) is kind


def test_central_vectors_out_of_the_ball_are_refused():
    central_vectors = CentralVectors(Ball("l2", 1.0, 2), 300.0)
    with pytest.raises(Exception, match="out of the ball"):
        central_vectors.parse(np.array([16_384, 16_384], "<i4").tobytes())
    assert BIT.itemsize == 3


def test_central_vectors_may_be_long():
    """600,000 coordinates in a joint block: 2.4 MB a participant, released with noise for its L2 bound."""
    ball = Ball("l2", 1.0, 600_000)
    central = CentralVectors.calibrated(ball, 1.0, 1e-6)
    vectors = BoundedVectors(np.zeros(2, np.uint32), np.full((2, 600_000), 1.0))
    total = central.add(central.empty(), central.parse(central.randomize(vectors, SeededNoise(1)).tobytes()))
    released = central.release(total, SeededNoise(2))
    assert released.sums.std() == pytest.approx(central.standard_deviation * ball.step, rel=0.01)
    assert account(central.release_event).delta(1.0) + central.sampling <= 1e-6


@pytest.mark.parametrize("place", range(3))
def test_bits_need_at_least_one_level_bit_and_person(place: int) -> None:
    numbers = [1, 1, 1]
    levels, bits, min_participants = numbers
    assert BitVectors(Ball("max", 1.0, 2), levels, bits, 0.5, min_participants).least == 1
    numbers[place] = 0
    levels, bits, min_participants = numbers
    with pytest.raises(SpecError, match="no such randomizer"):
        BitVectors(Ball("max", 1.0, 2), levels, bits, 0.5, min_participants)


SIX = BitVectors(Ball("max", 1.0, 2), 6, 10, 0.5, 5)
NOTHING = BoundedVectors(np.zeros(6, np.uint32), np.zeros((6, 2)))


def test_a_missing_bit_counts_as_zero():
    """It moves a sum by a bit at most; a participant without any message is not counted."""
    rows = SIX.randomize(NOTHING, SeededNoise(1)).ravel()
    whole = SIX.release(SIX.add(SIX.empty(), rows), SeededNoise(1))
    without_bit = SIX.release(SIX.add(SIX.empty(), rows[:-1]), SeededNoise(1))
    assert whole.reports == without_bit.reports == 6
    assert np.abs(whole.sums - without_bit.sums).max() <= SIX.unit
    assert SIX.release(SIX.add(SIX.empty(), rows[: -SIX.messages]), SeededNoise(1)).reports == 5
    with pytest.raises(BatchRefused):
        SIX.release(SIX.add(SIX.empty(), rows[: -2 * SIX.messages]), SeededNoise(1))
    assert type(SIX.empty()) is VectorTotal
