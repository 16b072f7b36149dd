"""One battery for every mechanism of vectors; seeds and false-alarm rates as for keyed means."""

import numpy as np
import pytest

from privateer.codec import decode, encode
from privateer.contributions import BoundedVectors
from privateer.errors import BatchRefused, InputError, OutOfRange
from privateer.mechanisms.vector_laplace import LaplaceVectors
from privateer.mechanisms.vector_shares import ShareVectors
from privateer.mechanisms.vector_symbol import VectorSymbol
from privateer_lab.noise import SeededNoise
from tests.contract.vectors import CASES, PEOPLE, ball_of, people, spread, truth
from tests.support.partitions import same
from tests.support.statistics import centred, same_law

DRAWS = 600


@pytest.fixture(params=CASES, scope="module")
def one(request):
    return CASES[request.param]


def collect(one, rng, told=None):
    """A release by the real path."""
    seed = int(rng.integers(2**62))
    reports = one.randomize(told or people(one, rng), SeededNoise(seed))
    return one.release(one.add(one.empty(), one.parse(reports.tobytes())), SeededNoise(seed + 1))


@pytest.fixture(scope="module")
def collected(one):
    rng = np.random.default_rng(21)
    return np.array([collect(one, rng).sums for _ in range(DRAWS)])


def test_simulate_has_the_law_of_the_real_path(one, collected):
    rng = np.random.default_rng(22)
    simulated = np.array([one.simulate(people(one, rng), rng).sums for _ in range(DRAWS)])
    assert same_law(
        np.column_stack([collected, collected.sum(axis=1)]), np.column_stack([simulated, simulated.sum(axis=1)])
    )


def test_sums_are_unbiased_whatever_is_clipped(one, collected):
    assert centred(collected, truth(one))
    assert not centred(collected, truth(one) + 3 * collected.std(axis=0)), "planted: a bias of three deviations"


def test_variances_are_right(one, collected):
    """The exact variance, with rounding; planted: half as much again."""
    squares, exact = (collected - truth(one)) ** 2, spread(one)
    if len(exact) == 1:
        squares = squares.mean(axis=1, keepdims=True)
    assert centred(squares, exact)
    assert exact.min() == 0 or not centred(squares, 1.5 * exact)


def test_a_release_says_no_less_than_its_noise(one):
    """The stated variance is that of the noise, without rounding; of a symbol, that of the worst vectors."""
    told = people(one, np.random.default_rng(0))
    stated, exact = one.simulate(told, np.random.default_rng(0)).noise, float(spread(one).mean())
    if isinstance(one, VectorSymbol):
        assert exact <= stated * (1 + 1e-9)
        worst = max((one.variance(0.0), one.variance(1.0)))
        assert stated == pytest.approx(PEOPLE * worst / ball_of(one).coordinates)
    else:
        rounding = exact - stated
        assert -1e-9 * exact <= rounding
        assert rounding <= PEOPLE * 0.25 * _unit(one) ** 2


def _unit(one):
    plan = getattr(one, "plan", None)
    if plan:
        return plan.unit
    return ball_of(one).bound / 256 if isinstance(one, LaplaceVectors) else ball_of(one).step


def test_totals_add_and_merge_in_any_order_and_round_trip(one):
    reports = one.randomize(people(one, np.random.default_rng(1)), SeededNoise(3))
    flat = one.parse(reports.tobytes())
    whole = one.add(one.empty(), flat)
    assert same(whole, one.add(one.empty(), np.random.default_rng(2).permutation(flat)))
    parts = [one.add(one.empty(), part) for part in np.array_split(flat, 5)]
    merged = one.empty()
    for part in reversed(parts):
        merged = one.merge(part, merged)
    assert same(merged, whole)
    assert same(decode(encode(whole), type(whole)), whole)


def test_messages_have_one_size_and_number_whatever_they_say(one):
    ball = ball_of(one)
    lengths = set()
    for value in (-9.0, 0.0, 0.1, 9.0):
        told = BoundedVectors(np.array([9], np.uint32), np.full((1, ball.coordinates), value))
        lengths.add(len(one.randomize(told, SeededNoise(4)).tobytes()))
    assert lengths == {one.report_size * getattr(one, "messages", 1)}


def test_what_no_client_makes_is_refused(one):
    rows = one.randomize(people(one, np.random.default_rng(1)), SeededNoise(3)).tobytes()
    with pytest.raises(OutOfRange):
        one.parse(rows[:-1])
    if not isinstance(one, ShareVectors):
        with pytest.raises(OutOfRange):
            one.parse(b"\xff" * (one.report_size - 1) + b"\x7f")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, "shape", "one axis"])
def test_what_is_no_vector_is_refused_without_an_echo(one, bad):
    ball = ball_of(one)
    values = np.full((PEOPLE, ball.coordinates), 0.123456)
    if bad == "shape":
        values = values[:, :-1]
    elif bad == "one axis":
        values = values[0]
    else:
        values[0, 0] = bad
    told = BoundedVectors(np.ones(PEOPLE, np.uint32), values)
    for refuses in (lambda: one.randomize(told, SeededNoise(1)), lambda: one.simulate(told, np.random.default_rng(1))):
        with pytest.raises(InputError) as refused:
            refuses()
        assert "0.123" not in str(refused.value)


@pytest.mark.parametrize("size", [1e-320, 1e-200, 1e200, 1.7e308])
def test_no_finite_vector_is_too_long_or_too_short(one, size):
    ball = ball_of(one)
    told = BoundedVectors(np.array([1], np.uint32), np.full((1, ball.coordinates), size))
    one.parse(one.randomize(told, SeededNoise(1)).tobytes())


@pytest.mark.parametrize("name", ["bits-fair", "bits-unfair", "shares-fair", "shares-unfair"])
def test_a_release_below_the_honest_minimum_is_refused(name):
    one = CASES[name]
    few = BoundedVectors(np.zeros(19, np.uint32), np.zeros((19, 3)))
    with pytest.raises(BatchRefused) as refused:
        collect(one, np.random.default_rng(1), few)
    assert "19" in str(refused.value)
    with pytest.raises(BatchRefused):
        one.simulate(few, np.random.default_rng(1))
    assert one.plan.least < PEOPLE
