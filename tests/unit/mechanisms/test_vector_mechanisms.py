"""Calibration of the vector mechanisms: what they promise is accounted, and how much noise that takes."""

import math
from itertools import product

import numpy as np
import pytest

from privateer.accounting.accountant import account
from privateer.accounting.events import Gaussian, ShuffledBits
from privateer.accounting.gaussian import gaussian_standard_deviation
from privateer.contributions import BoundedVectors
from privateer.errors import SpecError
from privateer.mechanisms.vector_bits import BIT, BinomialPlan, BitVectors, plan
from privateer.mechanisms.vector_choice import local_vectors
from privateer.mechanisms.vector_gaussian import CentralVectors, GaussianVectors, vector_standard_deviation
from privateer.mechanisms.vector_laplace import LaplaceVectors
from privateer.mechanisms.vector_shares import ShareVectors
from privateer.mechanisms.vector_symbol import VectorSymbol
from privateer.vectors import Ball
from privateer_lab.noise import SeededNoise
from tests.support.statistics import realised_epsilon


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
    standard_deviation = vector_standard_deviation(ball, 10, 0.25, "published")
    assert account(Gaussian(standard_deviation, ball.diameter)).delta(10) == pytest.approx(0.789, abs=0.001)


def test_a_promise_below_what_the_sampler_is_certified_for_is_refused():
    with pytest.raises(SpecError):
        vector_standard_deviation(Ball("l2", 1.0, 60_000), 1.0, 1e-11)
    with pytest.raises(SpecError):
        vector_standard_deviation(Ball("l2", 1.0, 2), 1.0, 0.0)


PROMISES = [(1, 1e-6, 1000), (5, 1e-6, 1000), (1, 0.25, 500), (10, 0.25, 1024), (1, 1e-6, 10**5), (1, 1e-6, 10**6)]


def relative_noise(made: BinomialPlan, epsilon: float, delta: float) -> float:
    """Deviation of the noise by that of the analytic Gaussian of a curator, with the same promise."""
    standard_deviation = math.sqrt(made.trials * made.probability * (1 - made.probability)) * made.unit
    return standard_deviation / gaussian_standard_deviation(epsilon, delta, 2 * made.ball.radius)


@pytest.mark.parametrize("coordinates", [20, 40, 60])
@pytest.mark.parametrize(("epsilon", "delta", "least"), PROMISES)
def test_shuffled_noise_keeps_its_promise_within_two_percent(epsilon, delta, least, coordinates):
    made = plan(Ball("max", 1.0, coordinates), epsilon, delta, least)
    event = ShuffledBits(made.trials, made.probability, made.levels, coordinates)
    assert account(event).delta(epsilon) <= delta
    assert 1 <= relative_noise(made, epsilon, delta) < 1.02
    rounding = math.sqrt(least) / 2 * made.unit
    assert rounding / math.sqrt(made.trials / 4) / made.unit <= 0.5


def test_levels_that_leave_the_last_bit_empty_are_caught():
    """Planted: no more levels than rounding asks for."""
    fewest = plan(Ball("max", 1.0, 20), 10, 0.25, 1024)
    bare = BinomialPlan(fewest.ball, 29, 5, 0.5, 1024)
    assert relative_noise(bare, 10, 0.25) > 1.1


def test_published_bits_are_hundreds_of_times_noisier():
    ball = Ball("max", 1.0, 20)
    published, tight = (plan(ball, 1, 1e-6, 1024, calibration) for calibration in ("published", "tight"))

    def standard_deviation(made: BinomialPlan) -> float:
        return math.sqrt(made.trials * made.probability * (1 - made.probability)) * made.unit

    # The paper's range of a coordinate is the vector's norm bound, sqrt(20) times ours.
    assert standard_deviation(published) * math.sqrt(20) / standard_deviation(tight) > 250


def test_half_the_noise_is_caught():
    """Planted: half the bits."""
    made = plan(Ball("max", 1.0, 20), 1, 1e-6, 1000)
    assert account(ShuffledBits(made.trials // 2, made.probability, made.levels, 20)).delta(1) > 1e-5


def test_one_persons_bits_and_shares_tell_the_same_integers():
    made = BinomialPlan(Ball("max", 1.0, 4), 6, 10, 0.5, 1)
    told = BoundedVectors(np.array([1], np.uint32), np.array([[-1.0, 1.0, 0.0, 0.4]]))
    bits, shares = BitVectors(made), ShareVectors(made, 3)
    left = bits.add(bits.empty(), bits.randomize(told, SeededNoise(8)))
    right = shares.add(shares.empty(), shares.randomize(told, SeededNoise(8)))
    assert (left.sums == right.sums).all()
    assert bits.messages == 4 * 16


def test_shares_alone_are_uniform_and_do_not_tell_the_value():
    """All shares but one are uniform whatever the value (realised epsilon of the top bits, 20,000 people each)."""
    shares = ShareVectors(BinomialPlan(Ball("max", 1.0, 1), 6, 10, 0.5, 1), 4)
    seen = []
    for value, seed in ((-1.0, 1), (1.0, 2)):
        told = BoundedVectors(np.zeros(20_000, np.uint32), np.full((20_000, 1), value))
        messages = shares.randomize(told, SeededNoise(seed))
        seen.append(messages["share"][:, 1:] >> 28)
    for column in range(3):
        assert realised_epsilon(seen[0][:, column], seen[1][:, column]) < 0.05


@pytest.mark.parametrize(
    ("epsilon", "delta", "kind"),
    [(1, 1e-6, VectorSymbol), (8, 1e-6, VectorSymbol), (1, 0.25, GaussianVectors), (1, 0, VectorSymbol)],
)
def test_the_local_mechanism_is_the_one_of_the_least_error(epsilon, delta, kind):
    assert type(local_vectors(Ball("l2", 1.0, 20), epsilon, delta, 1)) is kind


@pytest.mark.parametrize("norm", ["l2", "max"])
def test_laplace_noise_pays_for_every_pair_on_its_grid(norm):
    ball = Ball(norm, 1.0, 5)
    one = LaplaceVectors(ball, 2.0)
    rng = np.random.default_rng(1)
    ends = np.concatenate([np.eye(5), -np.eye(5), np.ones((1, 5)), -np.ones((1, 5)), rng.normal(size=(30, 5))]) * 9
    told = BoundedVectors(np.zeros(len(ends), np.uint32), ends)
    points = [one._rounded(told, np.full(ends.shape, u)) for u in (0.0, 0.999999)]
    widest = max(np.abs(a[:, None] - b[None, :]).sum(axis=2).max() for a, b in product(points, points))
    assert widest / one.scale <= 2.0


def test_curated_vectors_out_of_the_ball_are_refused():
    one = CentralVectors(Ball("l2", 1.0, 2), 300.0)
    with pytest.raises(Exception, match="out of the ball"):
        one.parse(np.array([16_384, 16_384], "<i4").tobytes())
    assert BIT.itemsize == 3
