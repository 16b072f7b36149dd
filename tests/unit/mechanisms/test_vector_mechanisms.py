"""Mechanisms of vectors, and reports of several messages."""

import math

import numpy as np
import pytest

from privateer_core.accounting.accountant import account
from privateer_core.accounting.allotment import allot
from privateer_core.accounting.events import Gaussian, Repeated, ShuffledBits, ShuffledSubset
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


BALL = Ball("l2", 1.0, 9)
PROMISE = (1.0, 1e-6)


@pytest.mark.parametrize(
    ("epsilon", "honest"),
    [(2.0, 450), *(pytest.param(*case, marks=pytest.mark.nightly) for case in ((1.0, 900), (0.5, 2000)))],
)
def test_several_keep_the_promise_and_have_less_error_than_one(epsilon, honest):
    """Planted: an eighth more of local epsilon for each."""
    promise = (epsilon, 1e-6)
    several = VectorSymbol.amplified(BALL, promise, honest, 16.0, None, 3, max_messages=4)
    single = VectorSymbol.amplified(BALL, promise, honest, 16.0, None, 3)
    assert single.repeats == 1 < several.repeats <= 4
    assert several.error < 0.7 * single.error
    assert several.local_epsilon == several.repeats * several.epsilon <= 16.0
    event = ShuffledSubset(several.epsilon, 2 * several.directions, several.chosen, honest)
    assert several.batch_event(honest) == Repeated(event, several.repeats)
    assert account(several.batch_event(honest)).delta(epsilon) <= 1e-6
    assert account(several.with_less_noise(1.125).batch_event(honest)).delta(epsilon) > 1e-6


def test_one_is_sent_where_the_limit_decides_or_others_share_the_promise():
    assert VectorSymbol.amplified(BALL, PROMISE, 900, 1.5, None, 3, max_messages=8).repeats == 1
    share = allot(*PROMISE, 3, 0.0)
    assert VectorSymbol.amplified(BALL, PROMISE, 900, 16.0, share, 3, max_messages=8).repeats == 1


@pytest.mark.parametrize(
    ("limit", "repeats"), [(6.0, 2), *(pytest.param(*case, marks=pytest.mark.nightly) for case in ((3.0, 1), (7.0, 3)))]
)
def test_all_of_them_together_are_within_the_limit(limit, repeats):
    several = VectorSymbol.amplified(BALL, PROMISE, 900, limit, None, 3, max_messages=8)
    assert several.repeats == repeats
    assert 0.85 * limit < several.local_epsilon <= limit


def test_as_many_symbols_have_as_much_less_error():
    single, four = (VectorSymbol(BALL, 1.0, 8, 2, 3, repeats=repeats) for repeats in (1, 4))
    assert four.error == pytest.approx(single.error / 4)
    assert four.worst_projection == pytest.approx(single.worst_projection / 4)
    assert four.error_bounds(100)[1] == pytest.approx(single.error_bounds(100)[1] / 4)


def test_a_participant_with_a_missing_message_counts_once():
    """Planted: sums that count missing messages as 0, which are a tenth too small."""
    vector_symbol, people = VectorSymbol(BALL, 8.0, 64, 4, 3, repeats=3), 2000
    values = np.tile(np.eye(9)[0], (people, 1))
    messages = vector_symbol.randomize(BoundedVectors(np.arange(people, dtype=np.uint32), values), SeededNoise(1))
    assert messages.shape == (people, 3)
    received = messages.ravel()[: int(0.9 * messages.size)]
    total = vector_symbol.add(vector_symbol.empty(), received)
    release = vector_symbol.release(total, SeededNoise(2))
    assert release.reports == -(-received.size // 3)
    assert release.sums[0] / release.reports == pytest.approx(1.0, abs=0.04)
    assert total.sums[0] / 2**30 * vector_symbol.scale / 3 / people == pytest.approx(0.9, abs=0.04)


@pytest.mark.parametrize(("repeats", "classes"), [(0, 1), (17, 1), (2, 2)])
def test_impossible_numbers_of_messages_are_refused(repeats, classes):
    with pytest.raises(SpecError, match="where coins tell classes") as refused:
        VectorSymbol(BALL, 1.0, 2, 1, 3, classes, repeats)
    assert refused.value.field == "repeats"
