"""Estimates of means from sums of scores are unbiased for any expected value, with the stated variance."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from privateer_core.primitives.score_sums import EventSums, ScoreSums
from tests.support.statistics import FALSE_ALARM

RELEASES = 4000
VALUES = (-0.99, -0.9, 0.0, 0.4)
KINDS = {
    "none": {"hit_of_key": 1.0, "other": 0.0, "gain": 1.0},
    "central": {"hit_of_key": 1.0, "other": 0.0, "gain": 1.0, "noise": 15.7},
    "one bucket": {"hit_of_key": 1.0, "other": 1.0, "gain": 0.96},
    "eight buckets": {"hit_of_key": 0.83, "other": 0.12, "gain": 0.8},
}


def draw_sums(value, hit_of_key, other, gain, noise=0.0, people=2000, share=0.3, seed=0):
    """Draw sums of many releases of participants, a share of whom has the key."""
    rng = np.random.default_rng(seed)
    rate, mean = share * hit_of_key + (1 - share) * other, gain * share * value
    likely = [(rate + mean) / 2, (rate - mean) / 2, 1 - rate]
    positive, negative, _ = rng.multinomial(people, likely, RELEASES).T
    added = rng.normal(0.0, np.sqrt(noise), (2, RELEASES))
    parts = (np.full(RELEASES, float(people)), positive - negative + added[0], positive + negative + added[1])
    return ScoreSums(*parts, np.full(RELEASES, share), np.full(RELEASES, rate), hit_of_key - other, gain, noise)


def estimate(sums, expected, cautious):
    """Return the estimates, and their stated variance."""
    precision, moment = sums.precision_and_moment(np.full(RELEASES, expected), np.full(RELEASES, cautious))
    return moment / precision, 1 / precision[0]


def is_unbiased(estimates, value):
    return abs(estimates.mean() - value) < stats.norm.isf(FALSE_ALARM / 2) * estimates.std() / np.sqrt(RELEASES)


def is_spread(estimates, variance):
    """Whether the variance is as stated, by chi-square."""
    low, high = (tail(FALSE_ALARM / 2, RELEASES - 1) / (RELEASES - 1) for tail in (stats.chi2.ppf, stats.chi2.isf))
    return low < estimates.var(ddof=1) / variance < high


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", VALUES)
def test_estimates_have_the_stated_variance(kind, value):
    """The expected value is the true one; at most 32 comparisons, each at the stated false-alarm rate."""
    estimates, variance = estimate(draw_sums(value, **KINDS[kind]), value, value)
    assert is_unbiased(estimates, value)
    assert is_spread(estimates, variance)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("expected", [-0.999, -0.5, 0.7])
def test_estimates_are_unbiased_for_any_expected_value(kind, expected):
    estimates, _ = estimate(draw_sums(-0.98, **KINDS[kind]), expected, expected)
    assert is_unbiased(estimates, -0.98)


@pytest.mark.parametrize("kind", ["none", "central", "eight buckets"])
def test_hits_taken_off_make_rare_events_known_better(kind):
    """Without hits the number of participants with the key counts as reward: most of the variance of rare events."""
    sums = draw_sums(-0.99, **KINDS[kind])
    with_hits, _ = estimate(sums, -0.99, -0.99)
    plain, variance = estimate(replace(sums, hits=None), -0.99, -0.99)
    assert is_spread(plain, variance)
    assert with_hits.var() < 0.7 * plain.var()


@pytest.mark.parametrize(("kind", "share"), [("none", 0.3), ("one bucket", 1.0), ("eight buckets", 0.3)])
def test_the_variance_of_a_fair_coin_is_caught(kind, share):
    """Planted: the variance of scores whose mean is 0, for scores of rare events."""
    sums = draw_sums(-0.99, **KINDS[kind], share=share)
    control = sums.control_coefficient(np.full(RELEASES, -0.99))
    fair = sums.variance(np.zeros(RELEASES), np.zeros(RELEASES))[0]
    estimates = sums.adjusted_sums(control) / (sums.reports * sums.gain * sums.share)
    stated = fair / (sums.reports * (sums.gain * sums.share) ** 2)[0]
    assert not is_spread(estimates, stated)


def test_hits_counted_at_another_rate_are_caught():
    """Planted: a tenth fewer participants report on the cell than expected."""
    sums = draw_sums(-0.5, **KINDS["none"])
    estimates, _ = estimate(replace(sums, hit_rate=1.1 * sums.hit_rate), -0.9, -0.9)
    assert not is_unbiased(estimates, -0.5)


def test_a_cell_without_reports_has_no_evidence():
    sums = draw_sums(0.0, **KINDS["none"], share=0.0)
    precision, moment = sums.precision_and_moment(np.zeros(RELEASES), np.zeros(RELEASES))
    assert not precision.any()
    assert not moment.any()


def test_rare_events_do_not_get_the_weight_of_certain_ones():
    """However sure the value, the variance stays half of that with all people known, at the cautious value."""
    sums = draw_sums(-0.99, **KINDS["none"])
    control = sums.control_coefficient(np.full(RELEASES, -1.0))
    variance = sums.variance(control, np.full(RELEASES, -0.98))
    assert (variance >= 0.3 * (1 - 0.98**2) / 2).all()


OTHER, GAIN = 0.02, 0.9


def events(value, share=0.3, people=2000):
    """Numbers of reports of an event of many releases."""
    rate = OTHER + GAIN * share * (1 + value) / 2
    sums = np.random.default_rng(1).binomial(people, rate, RELEASES).astype(float)
    return EventSums(np.full(RELEASES, float(people)), sums, np.full(RELEASES, share), GAIN, OTHER)


@pytest.mark.parametrize("value", VALUES)
def test_estimates_from_events_have_the_stated_variance(value):
    estimates, variance = estimate(events(value), value, value)
    assert is_unbiased(estimates, value)
    assert is_spread(estimates, variance)


@pytest.mark.parametrize("expected", [-0.999, -0.5, 0.7])
def test_estimates_from_events_are_unbiased_for_any_expected_value(expected):
    estimates, _ = estimate(events(-0.98), expected, expected)
    assert is_unbiased(estimates, -0.98)


def test_events_that_are_not_debiased_are_caught():
    """Planted: symbols of participants without the key count as its events."""
    estimates, _ = estimate(replace(events(-0.98), other=0.0), -0.98, -0.98)
    assert not is_unbiased(estimates, -0.98)


def test_a_cell_without_people_has_no_evidence_from_events():
    precision, moment = events(0.0, share=0.0).precision_and_moment(np.zeros(RELEASES), np.zeros(RELEASES))
    assert not precision.any()
    assert not moment.any()
