"""Average effects where segments are skewed and rewards rare, on trials drawn from the exact laws of mechanisms.

Most segments of these trials have too few events for an interval of their own. The average is still told as well as by
a test of everybody together, and its intervals hold at all looks.
"""

from dataclasses import dataclass

import numpy as np
import pytest

from privateer_server.algorithms.trial.allocation import matching
from privateer_server.algorithms.trial.evidence.averages import HitValues, average, by_people
from privateer_server.algorithms.trial.evidence.weighted_sums import Sums
from privateer_server.algorithms.trial.group_sequential import critical_values, p_values
from tests.support.trials import SETTINGS, Trials, added_in_common, by_trial

SEGMENTS = np.array([0.6, 0.3, 0.08, 0.02])
TIMES = tuple((1.5 ** np.arange(-7.0, 1.0)).tolist())
UNEQUAL = np.array([0.02, 0.2, 0.4, 0.6])


@dataclass(frozen=True)
class Outcome:
    """What many trials found.

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
    called: float
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
        evidence, sums = evidence.add(epoch), added_in_common(sums, evidence, epoch, count)
        found, critical = average(by_trial(sums, count), evidence.design), critical_values(TIMES[:look], 0.05)[-1]
        scores.append(found.scores)
        inside = ~found.ready | (np.abs(found.estimate) <= critical * np.sqrt(found.variance))
        always &= inside
        shares, before = matching(evidence, people ** (-1 / 6) / 2) if adapt else shares, time
    called = p_values(TIMES, np.array(scores))[-1] <= 0.05
    shares_of = (float(one.mean()) for one in (called, inside, always))
    return Outcome(float(np.sqrt(found.variance).mean()) / plain(base, people), *shares_of, by_trial(sums, count))


def plain(base: float | np.ndarray, people: int) -> float:
    """Return the standard deviation of a difference of two proportions, everybody together."""
    rate = float(SEGMENTS @ np.broadcast_to(base, 4))
    return float(np.sqrt(4 * rate * (1 - rate) / people))


@pytest.mark.parametrize(("adapt", "most"), [(False, 1.02), (True, 1.2)], ids=["fixed", "matching"])
def test_an_average_of_rare_rewards_is_told_as_by_a_plain_test(adapt: bool, most: float) -> None:
    """600 trials at a rate of .01: .05 of calls and .961 of coverage, within four standard errors, .036 and .032.

    Planted: sums centred at a half, as if rewards were a coin's.
    """
    found = play("none", 0.01, 20_000, adapt=adapt, count=600)
    assert 0.98 <= found.width <= most
    assert found.called <= 0.086
    assert found.end >= 0.961 - 0.032
    assert found.always >= 0.95 - 0.036
    half = np.full(found.sums.people.shape, 0.5)
    of_a_coin = by_people(found.sums, HitValues(half, half / 2), half)[1].sum(axis=(0, -1))
    assert np.sqrt(of_a_coin).mean() / plain(0.01, 20_000) > 4


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
    found = play(name, base, people, adapt=adapt, count=3_000)
    assert found.width == pytest.approx(matched if adapt else fixed, rel=0.03)
    assert found.called <= 0.066
    assert 0.947 <= found.end <= 0.98
    assert found.always >= 0.934
