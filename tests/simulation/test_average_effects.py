"""Average effects where segments are skewed and rewards rare, on trials drawn from the exact laws of mechanisms.

Most segments of these trials have too few events for an interval of their own. The average is still told as well as by
a test of everybody together, and its intervals hold at all looks.
"""

from dataclasses import dataclass

import numpy as np
import pytest

from privateer_server.algorithms.trial.allocation import match_probabilities
from privateer_server.algorithms.trial.evidence.trial_evidence import (
    HitValues,
    average_contributions,
    estimate_from_people,
)
from privateer_server.algorithms.trial.evidence.weighted_sums import Sums
from privateer_server.algorithms.trial.group_sequential import critical_values, p_values
from tests.support.trials import SETTINGS, Trials, add_in_common, by_trial

SEGMENTS = np.array([0.6, 0.3, 0.08, 0.02])
TIMES = tuple((1.5 ** np.arange(-7.0, 1.0)).tolist())
UNEQUAL = np.array([0.02, 0.2, 0.4, 0.6])


@dataclass(frozen=True)
class Outcome:
    """Figures of many trials.

    Attributes
    ----------
    width
        Of the interval at the last look, over that of two proportions of everybody together at the same look.
    called, end, always
        Shares of trials: called an effect at a look though 0, inside at the last look, inside at every look.
    sums
        At the last look, trials as treatments.
    """

    width: float
    rejection_rate: float
    end: float
    always: float
    sums: Sums


def play(name: str, base: float | np.ndarray, people: int, *, adapt: bool, count: int) -> Outcome:
    """Look at so many trials without an effect eight times; every look may stop a trial."""
    means = np.broadcast_to(np.reshape(base, (-1, 1)), (4, 2))
    trials = Trials(SETTINGS[name], SEGMENTS, means, people, count)
    rng, evidence, before, scores = np.random.default_rng(11), trials.begin(), 0.0, []
    shares, sums, always = np.full((4 * count, 2), 0.5), evidence.common, np.ones(count, bool)
    for look, time in enumerate(TIMES, 1):
        epoch = trials.epoch(rng, round((time - before) * people), shares)
        evidence, sums = evidence.add(epoch), add_in_common(sums, evidence, epoch, count)
        average, critical = (
            average_contributions(by_trial(sums, count), evidence.design),
            critical_values(TIMES[:look], 0.05)[-1],
        )
        scores.append(average.scores)
        inside = ~average.is_ready | (np.abs(average.estimate) <= critical * np.sqrt(average.variance))
        always &= inside
        shares, before = match_probabilities(evidence, people ** (-1 / 6) / 2) if adapt else shares, time
    rejected = p_values(TIMES, np.array(scores))[-1] <= 0.05
    width = float(np.sqrt(average.variance).mean()) / plain_deviation(base, people)
    return Outcome(width, *map(np.mean, (rejected, inside, always)), sums=by_trial(sums, count))


def plain_deviation(base: float | np.ndarray, people: int) -> float:
    """Return the standard deviation of a difference of two proportions, everybody together."""
    rate = float(SEGMENTS @ np.broadcast_to(base, 4))
    return float(np.sqrt(4 * rate * (1 - rate) / people))


@pytest.mark.parametrize(("adapt", "max_width"), [(False, 1.02), (True, 1.2)], ids=["fixed", "matching"])
def test_an_average_of_rare_rewards_has_an_interval_as_narrow_as_a_plain_tests(adapt: bool, max_width: float) -> None:
    """600 trials at a rate of .01: .05 of calls and .961 of coverage, within four standard errors, .036 and .032.

    Planted: sums centred at a half, as if rewards were a coin's.
    """
    figures = play("none", 0.01, 20_000, adapt=adapt, count=600)
    assert 0.98 <= figures.width <= max_width
    assert figures.rejection_rate <= 0.086
    assert figures.end >= 0.961 - 0.032
    assert figures.always >= 0.95 - 0.036
    half = np.full(figures.sums.people.shape, 0.5)
    of_a_coin = estimate_from_people(figures.sums, HitValues(half, half / 2), half)[1].sum(axis=(0, -1))
    assert np.sqrt(of_a_coin).mean() / plain_deviation(0.01, 20_000) > 4


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "base", "people", "fixed", "matched"),
    [
        ("none", 0.003, 20_000, 0.99, 0.99),
        ("none", 0.01, 20_000, 1.0, 1.08),
        ("none", 0.05, 20_000, 1.0, 1.25),
        ("none", 0.5, 20_000, 1.0, 1.29),
        ("none", 0.99, 20_000, 1.0, 1.08),
        ("none", 0.01, 100_000, 1.0, 1.28),
        ("none", UNEQUAL, 20_000, 0.90, 1.16),
        ("central 1", 0.003, 20_000, 2.56, 2.56),
        ("central 1", 0.01, 20_000, 1.66, 1.92),
        ("central 1", 0.05, 20_000, 1.18, 1.61),
        ("central 1", 0.01, 100_000, 1.19, 1.74),
        ("central 1", UNEQUAL, 20_000, 0.98, 1.37),
        ("shuffle 1", 0.05, 100_000, 1.16, 1.56),
        ("local 2", 0.05, 100_000, 4.62, 6.23),
        ("local 1", 0.05, 100_000, 9.83, 13.3),
    ],
)
@pytest.mark.parametrize("adapt", [False, True], ids=["fixed", "matching"])
def test_averages_at_all_rates(
    name: str, base: float | np.ndarray, people: int, fixed: float, matched: float, adapt: bool
) -> None:
    """3,000 trials: four standard errors are .016 of calls and of coverage at all looks, .014 at the end."""
    figures = play(name, base, people, adapt=adapt, count=3_000)
    assert figures.width == pytest.approx(matched if adapt else fixed, rel=0.03)
    assert figures.rejection_rate <= 0.066
    assert 0.947 <= figures.end <= 0.98
    assert figures.always >= 0.934
