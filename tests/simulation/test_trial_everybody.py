"""Intervals of trials on the exact laws of mechanisms: of average effects, segments, rare rewards and numbers."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from privateer_server.algorithms.trial.allocation import compute_matching_shares
from privateer_server.algorithms.trial.evidence.epochs import Epoch, stable_weights
from privateer_server.algorithms.trial.evidence.trial_evidence import (
    HitValues,
    TrialEvidence,
    average_contributions,
    estimate_from_people,
    join_averages,
)
from privateer_server.algorithms.trial.evidence.weighted_sums import Sums
from privateer_server.algorithms.trial.group_sequential import critical_values, p_values
from privateer_server.algorithms.trial.treatment_effects import (
    compute_direct_weight,
    compute_effects,
    estimate_asked_shares,
)
from tests.support.trials import SETTINGS, Trials, add_in_common, by_trial, one_bit

SEGMENTS = np.array([0.35, 0.25, 0.15, 0.1, 0.1, 0.05])
EFFECTS = np.array([0.1, -0.1, 0.2, 0.0, 0.3, 0.0])
TIMES = tuple((1.5 ** np.arange(-9.0, 1.0)).tolist())
PEOPLE, FLOOR = 100_000, 0.1
OF_SEGMENTS, OF_EVERYBODY, OF_SHARES = 0.72, 0.2, 0.08


@dataclass(frozen=True)
class Outcome:
    """Shares of effects, and of averages.

    Attributes
    ----------
    false, average_false
        Called one at any look, of those that are 0.
    end, always, average_end, average_always
        Inside the interval at the last look, or at all of them.
    exact
        Inside at the last look if asked shares were taken for exact.
    known
        Segments whose share is told from 0.
    width, summed_width
        Of the average's interval at the last look, half of it: with everybody's answers, and as a sum with all people.
    """

    false: float
    end: float
    always: float
    exact: float
    known_share: float
    average_false: float
    average_end: float
    average_always: float
    width: float
    summed_width: float


def segment_answers(rng: np.random.Generator, people: int, keep: float, count: int) -> Epoch:
    """People who are asked for their segment, all arms together in the place of each."""
    yes = rng.binomial(people, 0.5 + keep * np.tile(SEGMENTS, count) / 2).astype(float)
    cells = np.repeat(yes[:, None], 2, axis=1)
    return Epoch(people, cells, np.full_like(cells, people), keep, 0.0, 0.0, np.ones_like(cells))


def play(count: int, *, adapt: bool, base: float = 0.3, drift: float = 0.0, effect: np.ndarray = EFFECTS) -> Outcome:
    """Look at so many trials ten times; every look may stop a trial, so any look's call counts."""
    setting, rng, size = one_bit(1.0), np.random.default_rng(42), len(SEGMENTS)
    means = np.stack([np.full(size, base), base + effect], axis=1)
    trials = Trials(setting, SEGMENTS, means, OF_SEGMENTS * PEOPLE, count)
    whole = Trials(setting, np.ones(1), SEGMENTS[None] @ means, OF_EVERYBODY * PEOPLE, count)
    evidence, everybody, members = trials.begin(), whole.begin(), Sums.empty(trials.design)
    one_trial, one_whole = (replace(design_, count=1).begin() for design_ in (trials, whole))
    weight, sums, before = compute_direct_weight(one_trial, one_whole), evidence.common, 0.0
    truth, average_truth = np.tile(effect, count), float(SEGMENTS @ effect)
    always, averages_always, scores = np.ones(size * count, bool), np.ones(count, bool), []
    for look, time in enumerate(TIMES):
        people, moved = (time - before) * PEOPLE, drift * (time - TIMES[0]) / (1 - TIMES[0])
        shares, of_all = _shares(evidence, adapt), _shares(everybody, adapt)
        epoch = trials.draw_epoch(rng, round(OF_SEGMENTS * people), shares, moved)
        everybody = everybody.add(whole.draw_epoch(rng, round(OF_EVERYBODY * people), of_all, moved))
        answers = segment_answers(rng, round(OF_SHARES * people), setting.keep, count)
        members = members.add(answers, stable_weights(evidence.design, epoch))
        evidence, sums = evidence.add(epoch), add_in_common(sums, evidence, epoch, count)
        summed = average_contributions(by_trial(sums, count), evidence.design)
        pool = join_averages(summed, average_contributions(by_trial(everybody.common, count), everybody.design), weight)
        scores.append(pool.scores)
        asked_shares = estimate_asked_shares(members)
        effects = compute_effects(evidence, asked_shares)
        inside = ~((effects.low[:, 0] > truth) | (effects.high[:, 0] < truth))
        critical, before = critical_values(TIMES[: look + 1], 0.05)[-1], time
        averages_inside = np.abs(pool.estimate - average_truth) <= critical * np.sqrt(pool.variance)
        always, averages_always = always & inside, averages_always & averages_inside
    is_known, exact = (
        np.isfinite(effects.low[:, 0]),
        compute_effects(evidence, replace(asked_shares, variance=0 * asked_shares.variance)),
    )
    naive = (exact.low[:, 0] <= truth) & (truth <= exact.high[:, 0])
    rejected = p_values(TIMES, np.array(scores))[-1] <= 0.05
    summed_width = critical * np.sqrt(OF_SEGMENTS * summed.variance).mean()
    return Outcome(
        false=float((effects.p_value[:, 0] <= 0.05)[truth == 0].mean()),
        end=float(inside[is_known].mean()),
        always=float(always.mean()),
        exact=float(naive[is_known].mean()),
        known_share=float(is_known.mean()),
        average_false=float(rejected.mean()),
        average_end=float(averages_inside.mean()),
        average_always=float(averages_always.mean()),
        width=float(critical * np.sqrt(pool.variance).mean()),
        summed_width=float(summed_width),
    )


def _shares(evidence: TrialEvidence, adapt: bool) -> np.ndarray:
    rows = len(evidence.design.segments)
    return compute_matching_shares(evidence, FLOOR) if adapt and evidence.looks else np.full((rows, 2), 0.5)


def test_intervals_hold_and_the_average_has_twice_the_information() -> None:
    """300 trials: standard errors .011 and .013 of averages, .005 of 1,800 effects. Taking asked shares for exact errs.

    Information of .2 + .72/6 beside 1/6: the half-width is .72 of a sum's.
    """
    figures = play(300, adapt=False)
    assert figures.average_end >= 0.961 - 0.045
    assert figures.average_always == pytest.approx(0.95, abs=0.05)
    assert 0.94 <= figures.end <= 0.99
    assert figures.exact < figures.end - 0.005
    assert figures.width / figures.summed_width == pytest.approx(np.sqrt(1 / 6 / 0.32), rel=0.03)


@pytest.mark.nightly
@pytest.mark.parametrize("base", [0.05, 0.3])
@pytest.mark.parametrize("adapt", [False, True], ids=["fixed", "matching"])
def test_false_positives(adapt: bool, base: float) -> None:
    """3,000 averages, 18,000 effects of 0: .05, and four standard errors of .004 and .0016."""
    figures = play(3_000, adapt=adapt, base=base, effect=np.zeros(6))
    assert figures.average_false == pytest.approx(0.05, abs=0.016)
    assert figures.false == pytest.approx(0.05, abs=0.0065)


@pytest.mark.nightly
@pytest.mark.parametrize("drift", [0.0, 0.3], ids=["steady", "drift"])
@pytest.mark.parametrize("adapt", [False, True], ids=["fixed", "matching"])
def test_coverage(adapt: bool, drift: float) -> None:
    """2,000 averages, 12,000 effects: standard errors .0045 and .002; shares that are asked err beside the effects."""
    figures = play(2_000, adapt=adapt, drift=drift)
    assert figures.average_end == pytest.approx(0.961, abs=0.02)
    assert figures.average_always == pytest.approx(0.95, abs=0.02)
    assert 0.945 <= figures.end <= 0.985
    assert figures.always >= 0.94


RARE_SEGMENTS = np.array([0.6, 0.3, 0.08, 0.02])
RARE_TIMES = tuple((1.5 ** np.arange(-7.0, 1.0)).tolist())
UNEQUAL = np.array([0.02, 0.2, 0.4, 0.6])


@dataclass(frozen=True)
class RareOutcome:
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


def play_rare(name: str, base: float | np.ndarray, people: int, *, adapt: bool, count: int) -> RareOutcome:
    """Look at so many trials without an effect eight times; every look may stop a trial."""
    means = np.broadcast_to(np.reshape(base, (-1, 1)), (4, 2))
    trials = Trials(SETTINGS[name], RARE_SEGMENTS, means, people, count)
    rng, evidence, before, scores = np.random.default_rng(11), trials.begin(), 0.0, []
    shares, sums, always = np.full((4 * count, 2), 0.5), evidence.common, np.ones(count, bool)
    for look, time in enumerate(RARE_TIMES, 1):
        epoch = trials.draw_epoch(rng, round((time - before) * people), shares)
        evidence, sums = evidence.add(epoch), add_in_common(sums, evidence, epoch, count)
        average, critical = (
            average_contributions(by_trial(sums, count), evidence.design),
            critical_values(RARE_TIMES[:look], 0.05)[-1],
        )
        scores.append(average.scores)
        inside = ~average.is_ready | (np.abs(average.estimate) <= critical * np.sqrt(average.variance))
        always &= inside
        shares, before = compute_matching_shares(evidence, people ** (-1 / 6) / 2) if adapt else shares, time
    rejected = p_values(RARE_TIMES, np.array(scores))[-1] <= 0.05
    width = float(np.sqrt(average.variance).mean()) / plain_deviation(base, people)
    return RareOutcome(width, *map(np.mean, (rejected, inside, always)), sums=by_trial(sums, count))


def plain_deviation(base: float | np.ndarray, people: int) -> float:
    """Return the standard deviation of a difference of two proportions, everybody together."""
    rate = float(RARE_SEGMENTS @ np.broadcast_to(base, 4))
    return float(np.sqrt(4 * rate * (1 - rate) / people))


@pytest.mark.parametrize(("adapt", "max_width"), [(False, 1.02), (True, 1.2)], ids=["fixed", "matching"])
def test_an_average_of_rare_rewards_has_an_interval_as_narrow_as_a_plain_tests(adapt: bool, max_width: float) -> None:
    """600 trials at a rate of .01: .05 of calls and .961 of coverage, within four standard errors, .036 and .032.

    Planted: sums centred at a half, as if rewards were a coin's.
    """
    figures = play_rare("none", 0.01, 20_000, adapt=adapt, count=600)
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
def test_averages_at_all_rates(name, base, people, fixed, matched, adapt):
    """3,000 trials: four standard errors are .016 of calls and of coverage at all looks, .014 at the end."""
    figures = play_rare(name, base, people, adapt=adapt, count=3_000)
    assert figures.width == pytest.approx(matched if adapt else fixed, rel=0.03)
    assert figures.rejection_rate <= 0.066
    assert 0.947 <= figures.end <= 0.98
    assert figures.always >= 0.934
