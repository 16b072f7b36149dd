"""The curator's sums: sensitivity by search, noise drawn at every release, the promise by the law of a release."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from scipy import stats

from privateer_core.accounting.accountant import account
from privateer_core.accounting.gaussian import gaussian_delta
from privateer_core.errors import OutOfRange, SpecError
from privateer_core.mechanisms.central_sums import ABSOLUTE_SENSITIVITY, SENSITIVITY, CentralSums
from privateer_core.mechanisms.mechanism import KeyedTotal
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.public_coins import Layout
from privateer_core.primitives.questions import KeyedMeans
from privateer_lab.simulation.scores import SeededNoise

LAYOUT = Layout(5, np.array([[30_000], [20_000], [65_536]], np.uint32))
SLOT = 77


def keyed_person(key: int, value: float) -> KeyedValues:
    keys, slots = np.array([key]), np.array([SLOT], np.uint32)
    group = LAYOUT.find_groups(LAYOUT.hashes(slots, keys), keys) if key >= 0 else np.zeros(1, np.int64)
    return KeyedValues(slots, keys, group, np.array([value]))


def release_sums(key: int, value: float) -> np.ndarray:
    central_sums = CentralSums(LAYOUT, 0.0)
    release = central_sums.release(
        central_sums.add(central_sums.empty(), central_sums.randomize(keyed_person(key, value), SeededNoise(0))),
        SeededNoise(0),
    )
    return np.concatenate([release.sums.ravel(), release.hits.ravel()])


def test_no_two_people_differ_by_more_than_the_sensitivity():
    people = [release_sums(key, value) for key, value in product((-1, 0, 1, 2), (0.0, 0.3, 0.5, 1.0))]
    distances = [float(np.linalg.norm(a - b)) for a, b in product(people, people)]
    assert max(distances) == pytest.approx(SENSITIVITY)
    assert max(distances) <= SENSITIVITY


@pytest.mark.parametrize("standard_deviation", [0.5, 8.45])
def test_a_release_follows_its_law_and_half_the_noise_is_caught(standard_deviation):
    """5,000 releases without participants: normal by Kolmogorov and Smirnov, deviation by chi-square, each at 1e-6."""

    def spread(sums: CentralSums) -> float:
        draws = np.array([sums.release(sums.empty(), SeededNoise(seed)).sums.ravel() for seed in range(5000)])
        assert stats.kstest(draws[:, 0] / sums.standard_deviation, "norm").pvalue > 1e-6
        assert abs(np.corrcoef(draws.T) - np.eye(draws.shape[1])).max() < 0.09
        return float((draws**2).sum()) / standard_deviation**2

    low, high = stats.chi2.ppf([1e-6, 1 - 1e-6], 5000 * 6)
    assert low < spread(CentralSums(LAYOUT, standard_deviation)) < high
    assert spread(CentralSums(LAYOUT, standard_deviation / 2)) < low


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("delta", [1e-8, 1e-6, 0.1])
def test_the_promise_counts_the_sampler_in(epsilon, delta):
    central_sums = CentralSums.calibrated(KeyedMeans(LAYOUT), epsilon, delta)
    assert account(central_sums.release_event).delta(epsilon) + central_sums.sampling <= delta
    assert gaussian_delta(epsilon, central_sums.standard_deviation, SENSITIVITY) < delta


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_a_promise_of_delta_0_is_kept_by_exact_laplace_noise(epsilon):
    central_sums = CentralSums.calibrated(KeyedMeans(LAYOUT), epsilon, 0.0)
    assert account(central_sums.release_event).delta(epsilon) == 0.0 == central_sums.sampling
    assert account(central_sums.release_event).delta(0.999 * epsilon) > 0.0
    people = [release_sums(key, value) for key, value in product((-1, 0, 1, 2), (0.0, 0.3, 0.5, 1.0))]
    assert max(float(np.abs(a - b).sum()) for a, b in product(people, people)) == ABSOLUTE_SENSITIVITY


def test_the_scale_of_laplace_noise_is_rounded_to_the_safe_side():
    """Rounded to nearest, the release cost a last digit more than its promise, and every device refused it."""
    for epsilon in (2.57, 5.14, 10.28, *(4 * 65535 / scale for scale in range(16_384, 20_000, 7))):
        central_sums = CentralSums.calibrated(KeyedMeans(LAYOUT), epsilon, 0.0)
        assert Fraction(4 * 65535, central_sums._laplace.scale) <= Fraction(epsilon)
        assert account(central_sums.release_event).delta(epsilon) == 0.0


@pytest.mark.parametrize("noise", [{"standard_deviation": 2.0}, {"scale": 4.0}])
def test_people_and_their_noise_cannot_be_told_apart_by_last_digits(noise):
    """A participant more and a unit of noise less give the same release, bit by bit."""
    central_sums, no_hits = CentralSums(LAYOUT, **noise), np.zeros((3, 2), np.int64)
    noise_rows = np.zeros((20_000, 9), np.int64)
    noise_rows[:, 6:] = np.random.default_rng(3).integers(-400_000, 400_000, (20_000, 3))
    larger, smaller = (KeyedTotal(1000, no_hits, no_hits, np.full(3, people)) for people in (501, 500))
    for row in noise_rows:
        shifted_row = row - np.repeat([0, 65535], [6, 3])
        assert np.array_equal(
            central_sums._build_release(larger, shifted_row).hits, central_sums._build_release(smaller, row).hits
        )


def test_laplace_noise_of_a_release_has_its_variance_and_half_of_it_is_caught():
    """600 releases without participants, six sums each: the variance by its own standard error, at 6 of them."""

    def standard_errors(tested: CentralSums, claimed: CentralSums) -> float:
        draws = np.array([tested.release(tested.empty(), SeededNoise(seed)).sums.ravel() for seed in range(600)])
        expected = claimed.release(claimed.empty(), SeededNoise(0)).noise
        return float(abs((draws**2).mean() / expected - 1) * math.sqrt(draws.size / 5))

    central_sums = CentralSums(LAYOUT, 0.0, 4.0)
    assert standard_errors(central_sums, central_sums) < 6
    assert standard_errors(central_sums.with_less_noise(math.sqrt(2)), central_sums) > 6


def test_noise_is_fresh_at_every_release():
    central_sums = CentralSums(LAYOUT, 3.0)
    left, right = (central_sums.release(central_sums.empty(), SeededNoise(seed)) for seed in (1, 2))
    assert (left.sums != right.sums).all()


def test_a_key_that_is_none_is_refused():
    central_sums = CentralSums(LAYOUT, 1.0)
    good = central_sums.randomize(keyed_person(2, 0.5), SeededNoise(0)).tobytes()
    assert len(central_sums.parse(good)) == 1
    for bad in (good[:-1], good + b"\0", (7).to_bytes(4, "little") + (3).to_bytes(4, "little") + b"\0\0"):
        with pytest.raises(OutOfRange):
            central_sums.parse(bad)


def test_a_release_too_large_for_its_certificate_is_refused():
    with pytest.raises(SpecError):
        CentralSums(Layout(1, np.zeros((400_000, 2), np.uint32)), 1.0)
    assert math.isfinite(CentralSums(LAYOUT, 1.0).standard_deviation)


def test_central_sums_have_finite_noise_of_one_kind():
    for deviation, scale in [(1.0, 1.0), (-1.0, 0.0), (0.0, -1.0), (math.inf, 0.0), (math.nan, 0.0), (0.0, math.nan)]:
        with pytest.raises(SpecError):
            CentralSums(LAYOUT, deviation, scale)
