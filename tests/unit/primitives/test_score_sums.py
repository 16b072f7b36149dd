"""What a sum of scores says of a mean: unbiased whatever was thought, and with the variance that it really has."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from privateer_core.primitives.score_sums import EventSums, ScoreSums
from tests.support.statistics import FALSE_ALARM

RELEASES = 4000
VALUES = (-0.99, -0.9, 0.0, 0.4)
KINDS = {
    "none": {"own": 1.0, "other": 0.0, "gain": 1.0},
    "central": {"own": 1.0, "other": 0.0, "gain": 1.0, "noise": 15.7},
    "one bucket": {"own": 1.0, "other": 1.0, "gain": 0.96},
    "eight buckets": {"own": 0.83, "other": 0.12, "gain": 0.8},
}


def drawn(value, own, other, gain, noise=0.0, people=2000, share=0.3, seed=0):
    """Sums of many releases about people of whom a share has the key, drawn score by score."""
    rng = np.random.default_rng(seed)
    rate, mean = share * own + (1 - share) * other, gain * share * value
    likely = [(rate + mean) / 2, (rate - mean) / 2, 1 - rate]
    positive, negative, _ = rng.multinomial(people, likely, RELEASES).T
    added = rng.normal(0.0, np.sqrt(noise), (2, RELEASES))
    parts = (np.full(RELEASES, float(people)), positive - negative + added[0], positive + negative + added[1])
    return ScoreSums(*parts, np.full(RELEASES, share), np.full(RELEASES, rate), own - other, gain, noise)


def found(sums, expected, cautious):
    """Estimates, and the variance that they are said to have."""
    precision, moment = sums.evidence(np.full(RELEASES, expected), np.full(RELEASES, cautious))
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
    """Where what was thought is right; at most 32 comparisons, each at the stated false-alarm rate."""
    estimates, variance = found(drawn(value, **KINDS[kind]), value, value)
    assert is_unbiased(estimates, value)
    assert is_spread(estimates, variance)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("expected", [-0.999, -0.5, 0.7])
def test_estimates_are_unbiased_whatever_was_thought(kind, expected):
    estimates, _ = found(drawn(-0.98, **KINDS[kind]), expected, expected)
    assert is_unbiased(estimates, -0.98)


@pytest.mark.parametrize("kind", ["none", "central", "eight buckets"])
def test_hits_taken_off_make_rare_events_known_better(kind):
    """Without them who has the key counts as reward: at one event in 200 that is most of the variance."""
    sums = drawn(-0.99, **KINDS[kind])
    known, _ = found(sums, -0.99, -0.99)
    plain, variance = found(replace(sums, hits=None), -0.99, -0.99)
    assert is_spread(plain, variance)
    assert known.var() < 0.7 * plain.var()


@pytest.mark.parametrize(("kind", "share"), [("none", 0.3), ("one bucket", 1.0), ("eight buckets", 0.3)])
def test_the_variance_of_a_fair_coin_is_caught(kind, share):
    """Planted: the variance of scores whose mean is 0, for scores of rare events."""
    sums = drawn(-0.99, **KINDS[kind], share=share)
    control = sums.control(np.full(RELEASES, -0.99))
    fair = sums.variance(np.zeros(RELEASES), np.zeros(RELEASES))[0]
    estimates = sums.controlled(control) / (sums.reports * sums.gain * sums.share)
    stated = fair / (sums.reports * (sums.gain * sums.share) ** 2)[0]
    assert not is_spread(estimates, stated)


def test_hits_counted_at_another_rate_are_caught():
    """Planted: a tenth fewer people tell of the cell than is thought."""
    sums = drawn(-0.5, **KINDS["none"])
    estimates, _ = found(replace(sums, hit_rate=1.1 * sums.hit_rate), -0.9, -0.9)
    assert not is_unbiased(estimates, -0.5)


def test_a_cell_that_nobody_tells_of_says_nothing():
    sums = drawn(0.0, **KINDS["none"], share=0.0)
    precision, moment = sums.evidence(np.zeros(RELEASES), np.zeros(RELEASES))
    assert not precision.any()
    assert not moment.any()


def test_rare_events_do_not_get_the_weight_of_certain_ones():
    """However sure the value, the variance stays half of that with all people known, at the cautious value."""
    sums = drawn(-0.99, **KINDS["none"])
    control = sums.control(np.full(RELEASES, -1.0))
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
    estimates, variance = found(events(value), value, value)
    assert is_unbiased(estimates, value)
    assert is_spread(estimates, variance)


@pytest.mark.parametrize("expected", [-0.999, -0.5, 0.7])
def test_estimates_from_events_are_unbiased_whatever_was_thought(expected):
    estimates, _ = found(events(-0.98), expected, expected)
    assert is_unbiased(estimates, -0.98)


def test_events_that_are_not_debiased_are_caught():
    """Planted: symbols of others count as events of the key."""
    estimates, _ = found(replace(events(-0.98), other=0.0), -0.98, -0.98)
    assert not is_unbiased(estimates, -0.98)


def test_a_cell_without_people_says_nothing_by_its_events():
    precision, moment = events(0.0, share=0.0).evidence(np.zeros(RELEASES), np.zeros(RELEASES))
    assert not precision.any()
    assert not moment.any()
