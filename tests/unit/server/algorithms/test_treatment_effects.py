"""Intervals of effects: of segments, of many effects, at many looks, and of the difference of two rates."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from privateer_core.answer.share_source import ShareSource
from privateer_core.answer.shares import Shares
from privateer_server.algorithms.trial.evidence.epochs import PlannedEpoch, TrialDesign
from privateer_server.algorithms.trial.evidence.trial_evidence import TrialEvidence, average_contributions
from privateer_server.algorithms.trial.evidence.variances import (
    common_rate,
    restricted_rates,
    score_limits,
    variance_at,
)
from privateer_server.algorithms.trial.group_sequential import (
    critical_values,
    decision_time,
    estimate_stagewise,
    find_drift,
    p_values,
    power,
)
from privateer_server.algorithms.trial.power.power_analysis import look_times, required_people
from privateer_server.algorithms.trial.reasons import ReasonCode
from privateer_server.algorithms.trial.treatment_effects import (
    benjamini_hochberg,
    compute_average_effects,
    compute_effects,
    fieller_limits,
    holm,
    stopped_effect,
)
from tests.support.trials import (
    SETTINGS,
    Trials,
    TrialSetting,
    by_trial,
    central,
    detectable,
    growing_fractions,
    named_symbol,
)

SEGMENTS = np.array([0.4, 0.3, 0.2, 0.1])
EFFECTS = np.array([0.03, -0.03, 0.06, 0.0])
MEANS = np.stack([np.full(4, 0.3), 0.3 + EFFECTS], axis=1)
TIMES = growing_fractions(10_000, 100_000)


def run_looks(trials: Trials, seed: int, times: tuple[float, ...] = TIMES) -> list[TrialEvidence]:
    rng, looks, before = np.random.default_rng(seed), [trials.begin()], 0.0
    allocation = np.tile(np.array(trials.arms), (trials.count * len(trials.segments), 1))
    for time in times:
        looks.append(looks[-1].add(trials.draw_epoch(rng, round((time - before) * trials.people), allocation)))
        before = time
    return looks[1:]


def asked_shares(estimates: np.ndarray, variance: float) -> Shares:
    return replace(Shares.fixed(estimates, ShareSource.ASKED), variance=np.full(len(estimates), variance))


@pytest.mark.parametrize("name", SETTINGS)
def test_intervals_of_all_looks_hold_at_once(name: str) -> None:
    """1,600 effects: .95 within four standard errors, .022."""
    truth, inside = np.tile(EFFECTS, 400), np.ones(1_600, bool)
    for evidence in run_looks(Trials(SETTINGS[name], SEGMENTS, MEANS, 1e5, 400), 11):
        effects = compute_effects(evidence)
        outside = (effects.low[:, 0] > truth) | (effects.high[:, 0] < truth)
        inside &= ~outside
        assert ((effects.low > 0) | (effects.high < 0) == (effects.p_value <= 0.05 + 1e-3))[
            effects.reason == 0
        ].mean() > 0.95
    assert inside.mean() == pytest.approx(0.95, abs=0.022)
    contributions = np.tile(SEGMENTS * EFFECTS, 400)
    hit = (effects.contribution_low[:, 0] <= contributions) & (contributions <= effects.contribution_high[:, 0])
    assert hit.mean() == pytest.approx(0.961, abs=0.02)


def test_asked_shares_widen_an_interval_and_unknown_shares_remove_it() -> None:
    """2,000 intervals of nominally .961 at the last look; taking shares as exact would be worse than .93."""
    trials = Trials(SETTINGS["local 1"], SEGMENTS[[0]], np.array([[0.2, 0.5]]), 1e5, 2_000)
    evidence = run_looks(trials, 2)[-1]
    estimates = 0.4 + np.random.default_rng(3).normal(0, 0.03, 2_000)
    effects = compute_effects(evidence, asked_shares(estimates, 0.03**2))
    assert ((effects.low <= 0.3) & (effects.high >= 0.3)).mean() == pytest.approx(0.961, abs=0.018)
    naive = compute_effects(evidence, asked_shares(estimates, 0.0))
    assert ((naive.low <= 0.3) & (naive.high >= 0.3)).mean() < 0.93
    unknown = compute_effects(evidence, asked_shares(estimates, 0.3**2))
    assert (unknown.reason == ReasonCode.SHARE).all()
    assert np.isinf(unknown.low).all()
    assert np.isfinite(unknown.contribution_low).all()


@pytest.mark.parametrize("name", ["local 1", "shuffle 1"])
def test_the_effect_that_ended_a_trial_is_in_units_of_rewards(name: str) -> None:
    trials = Trials(SETTINGS[name], np.ones(1), np.array([[0.3, 0.4]]), 1e5, 1)
    evidence = run_looks(trials, 8, TIMES[:1])[-1]
    stopped, whole = stopped_effect(evidence), compute_effects(evidence)
    assert stopped.estimate == pytest.approx(float(whole.estimate[0, 0]), abs=1e-6)  # nobody looked before
    half = 1.96 / critical_values(TIMES[:1], 0.05)[0] * float(whole.high[0, 0] - whole.low[0, 0]) / 2
    assert stopped.high - stopped.estimate == pytest.approx(half, rel=1e-3)


def test_fieller_is_a_test_of_every_ratio_inverted() -> None:
    low, high = fieller_limits(np.array([0.3]), np.array([0.01]), np.array([0.4]), np.array([0.003]), 2.0)
    for end in (low[0], high[0]):
        assert abs(0.3 - end * 0.4) == pytest.approx(2 * np.sqrt(0.01 + end**2 * 0.003))
    assert np.isinf(fieller_limits(np.array([0.3]), np.array([0.01]), np.array([0.1]), np.array([0.003]), 2.0)[0])


def test_reasons_of_missing_effects() -> None:
    effects = compute_effects(run_looks(Trials(SETTINGS["central 1"], SEGMENTS, MEANS, 300, 1), 1, (1.0,))[-1])
    noisy, clear = effects.reason == ReasonCode.NOISE, effects.reason == ReasonCode.RARE
    assert (noisy | clear).all()
    assert noisy.any()
    assert (effects.counts.n_effective_rewards[clear] < 20).all(), (
        "what is too rare is, at the mean of both arms' rates"
    )
    assert np.isnan(effects.low).all()
    evidence = run_looks(Trials(SETTINGS["none"], SEGMENTS, MEANS, 5_000, 1), 1, (1.0,))[-1]
    asked_for = compute_effects(evidence, smallest=0.001)
    assert (asked_for.reason == np.where(asked_for.decided, ReasonCode.NONE, ReasonCode.SMALL)).all()
    assert (compute_effects(evidence, smallest=1.0).reason == ReasonCode.NONE).all()
    next_look = evidence.add(Trials(SETTINGS["none"], SEGMENTS, MEANS, 5_000, 1).draw_epoch(*third_look()))
    assert (compute_effects(next_look).reason == ReasonCode.LOOK).all()


def third_look() -> tuple[np.random.Generator, float, np.ndarray]:
    return np.random.default_rng(1), 1_000, np.full((4, 2), 0.5)


def test_holm_controls_the_familywise_error_rate() -> None:
    """24 effects of 0 in each of 600 trials: four standard errors are .036."""
    rng = np.random.default_rng(5)
    p = rng.random((600, 8, 3))
    wrong = np.array([(holm(p_values) <= 0.05).any() for p_values in p])
    assert wrong.mean() == pytest.approx(0.05, abs=0.036)
    assert (p <= 0.05).any(axis=(1, 2)).mean() > 0.6
    assert holm(np.array([0.01, 0.04, 0.03])) == pytest.approx([0.03, 0.06, 0.06])
    assert benjamini_hochberg(np.array([0.01, 0.04, 0.03])) == pytest.approx([0.03, 0.04, 0.04])


def test_average_effects_of_two_treatments() -> None:
    """400 trials: four standard errors of a mean of z are .2, of its deviation .14."""
    means = np.array([[0.3, 0.33, 0.3], [0.2, 0.25, 0.2], [0.5, 0.48, 0.5], [0.4, 0.5, 0.4]])
    truth = SEGMENTS @ (means[:, 1:] - means[:, :1])
    trials = Trials(named_symbol(3.0, 4), SEGMENTS, means, 2e5, 400, arms=(0.4, 0.3, 0.3))
    last = run_looks(trials, 4, (1.0,))[-1]
    averages = average_contributions(by_trial(last.common, 400), last.design)
    z = (averages.estimate.reshape(400, 2) - truth) / np.sqrt(averages.variance.reshape(400, 2))
    assert z.mean(axis=0) == pytest.approx([0, 0], abs=0.2)
    assert z.std(axis=0) == pytest.approx([1, 1], abs=0.14)
    average_effects = compute_average_effects(run_looks(replace(trials, count=1), 5)[-1])
    assert ((average_effects.low <= truth) & (truth <= average_effects.high)).all()
    assert average_effects.decided.tolist() == [True, False]


def test_people_needed_are_those_of_published_formulas() -> None:
    """Two proportions of .3 and .32, as any textbook has it, times the price of 8 looks."""
    design = TrialDesign(0.05, 1e5, np.array([0.5, 0.5]), np.ones(1))
    epochs = [PlannedEpoch(size) for size in np.diff((0.0, *growing_fractions(5_800, 1e5))) * 1e5]
    fixed = (1.959964 + 0.841621) ** 2 * 4 * 0.31 * 0.69 / 0.02**2
    n_required = required_people(design, epochs, 0.31, 0.02)[0, 0]
    assert n_required == pytest.approx(fixed * (2.871 / 2.8016) ** 2, rel=0.01)
    assert detectable(design, epochs, 0.31)[0, 0] == pytest.approx(0.02 * np.sqrt(n_required / 1e5), rel=0.01)


@pytest.mark.parametrize(("setting", "planned"), [(central(0.1), {}), (named_symbol(2.0, 4), {})])
def test_the_detectable_effect_of_a_plan_has_80_percent_power(setting: TrialSetting, planned: dict[str, float]) -> None:
    """1,200 trials: four standard errors are .046."""
    trials = Trials(setting, SEGMENTS[[1]], np.array([[0.3, 0.3]]), 5e4, 1_200)
    sizes = np.diff((0.0, *TIMES)) * 5e4
    epochs = [PlannedEpoch(size, setting.keep, setting.other, setting.noise) for size in sizes]
    design = replace(trials, count=1).design
    effect = float(detectable(design, epochs, 0.35)[0, 0])
    trials = replace(trials, means=np.array([[0.35 - effect / 2, 0.35 + effect / 2]]))
    last = run_looks(trials, 6)[-1]
    assert (compute_effects(last).p_value <= 0.05).mean() == pytest.approx(0.8, abs=0.046)
    assert look_times(design, epochs) == pytest.approx(TIMES)


GROWING = growing_fractions(1_000, 17_000)
EQUAL = tuple((np.arange(1, 21) / 20).tolist())


def walks(times: tuple[float, ...], drift: float, count: int, seed: int) -> np.ndarray:
    """B(t) at the times, (count, looks), from its definition."""
    steps = np.diff((0.0, *times))
    return np.cumsum(np.random.default_rng(seed).normal(drift * steps, np.sqrt(steps), (count, len(steps))), axis=1)


def test_boundaries_are_those_of_the_literature() -> None:
    assert critical_values(GROWING, 0.05)[::-1][:4] == pytest.approx([2.068, 2.399, 2.694, 2.963], abs=0.003)
    last = [critical_values(tuple((np.arange(1, k + 1) / k).tolist()), 0.05)[-1] for k in (5, 10, 20)]
    assert last == pytest.approx([2.11, 2.17, 2.22], abs=0.005)


@pytest.mark.parametrize("times", [GROWING, EQUAL])
def test_without_an_effect_any_look_crosses_with_probability_alpha(times: tuple[float, ...]) -> None:
    """20,000 walks: 4 standard errors are .006, so a false alarm comes once in 16,000."""
    scores = walks(times, 0.0, 20_000, 1) / np.sqrt(times)
    crossed = (np.abs(scores) > critical_values(times, 0.05)).any(axis=1).mean()
    assert crossed == pytest.approx(0.05, abs=0.006)
    assert (np.abs(scores) > 1.96).any(axis=1).mean() > 0.15  # what looking without boundaries does


def test_sequential_p_values_are_valid_and_agree_with_the_boundaries() -> None:
    scores = (walks(GROWING, 0.0, 20_000, 2) / np.sqrt(GROWING)).T.copy()
    p = p_values(GROWING, scores)
    assert (np.diff(p, axis=0) <= 0).all()
    for alpha in (0.01, 0.05, 0.3):
        crossed = (np.abs(scores) > critical_values(GROWING, alpha)[:, None]).any(axis=0)
        assert ((p[-1] <= alpha) == crossed).mean() > 0.999
    scores[:, 0] = np.nan
    assert (p_values(GROWING, scores)[:, 0] == 1).all()


def test_a_look_without_new_people_has_no_boundary_and_costs_nothing() -> None:
    with_pause = (*GROWING[:4], GROWING[3] + 1e-5, *GROWING[4:], 1.0)
    boundaries = critical_values(with_pause, 0.05)
    assert np.isinf(boundaries[[4, -1]]).all()
    assert np.delete(boundaries, [4, len(boundaries) - 1]) == pytest.approx(critical_values(GROWING, 0.05))


def test_power_and_decision_time_are_those_of_simulated_walks() -> None:
    assert find_drift(GROWING, 0.05) == pytest.approx(2.871, abs=0.002)
    assert find_drift(GROWING, 0.05, 0.9) == pytest.approx(3.314, abs=0.002)
    crossed = np.abs(walks(GROWING, 2.871, 20_000, 3) / np.sqrt(GROWING)) > critical_values(GROWING, 0.05)
    first = np.where(crossed.any(axis=1), np.array(GROWING)[crossed.argmax(axis=1)], 1.0)
    assert power(GROWING, 0.05, np.array([2.871]))[0] == pytest.approx(crossed.any(axis=1).mean(), abs=0.012)
    assert decision_time(GROWING, 0.05, 2.871) == pytest.approx(first.mean(), abs=0.01)


def test_stagewise_limits_have_the_stated_coverage() -> None:
    """20,000 walks for each of the two limits and the estimate: 4 standard errors are .0044 and .014."""
    times, score = GROWING[:6], 3.4
    limits = estimate_stagewise(times, 0.05, score, 1 / np.sqrt(times[-1]))
    assert limits.low < limits.estimate < limits.high
    assert limits.estimate < score / np.sqrt(times[-1])  # the plain estimate is inflated by stopping
    edges = critical_values(times, 0.05)
    for limit, probability in ((limits.low, 0.025), (limits.estimate, 0.5), (limits.high, 0.975)):
        scores = walks(times, limit, 20_000, 4) / np.sqrt(times)
        outside = np.abs(scores) > edges
        early = outside[:, :-1].any(axis=1)
        above = np.take_along_axis(scores, outside.argmax(axis=1)[:, None], axis=1)[:, 0] > 0
        assert np.where(early, above, scores[:, -1] > score).mean() == pytest.approx(probability, abs=0.014)
    mirrored = estimate_stagewise(times, 0.05, -score, 1 / np.sqrt(times[-1]))
    assert (mirrored.estimate, mirrored.low) == pytest.approx((-limits.estimate, -limits.high))


CRITICAL = 1.959963984540054


def arms(*counts: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rates, people and no noise of (successes, people) of a treatment and its control."""
    return np.array([counts[0] / counts[1], counts[2] / counts[3]]), np.array(counts[1::2], float), np.zeros(2)


def test_limits_are_those_of_miettinen_and_nurminen() -> None:
    """18 of 1,129 against 0 of 1,131 by statsmodels 0.15.0, `confint_proportions_2indep(method="score")`."""
    low, high = score_limits(*arms(18, 1_129, 0, 1_131), CRITICAL)
    assert (low, high) == pytest.approx((0.01010838, 0.02506111), abs=1e-7)


@pytest.mark.parametrize("counts", [(7, 1_000, 90, 9_000), (5, 20, 10, 20), (68, 722, 2, 13), (0, 50, 0, 50)])
def test_limits_are_where_the_score_is_critical(counts: tuple[int, ...]) -> None:
    rates, people, noise = arms(*counts)
    for end in score_limits(rates, people, noise, CRITICAL):
        score = (rates[0] - rates[1] - end) / np.sqrt(variance_at(rates, people, noise, np.array(end)))
        assert abs(score) == pytest.approx(CRITICAL, rel=1e-6)


def test_all_successes_against_none_have_a_limit_at_1() -> None:
    low, high = score_limits(*arms(10, 10, 0, 12), CRITICAL)
    assert 0.6 < low < 0.8
    assert high == 1


def test_restricted_rates_maximize_the_likelihood() -> None:
    """By hand: the likelihood of the counts is largest there among rates that differ by so much."""
    rates, people, _ = arms(68, 722, 2, 13)
    for difference in (-0.2, 0.0, 0.05, 0.4):

        def unlikely(control: float, difference: float = difference) -> float:
            arm_rates = np.array([control + difference, control])
            return -float((people * (rates * np.log(arm_rates) + (1 - rates) * np.log(1 - arm_rates))).sum())

        ends = max(0.0, -difference) + 1e-9, min(1.0, 1 - difference) - 1e-9
        best = minimize_scalar(unlikely, bounds=ends, method="bounded", options={"xatol": 1e-10})
        assert restricted_rates(rates, people, np.array(difference))[1] == pytest.approx(best.x, abs=1e-6)


@pytest.mark.parametrize("noise", [0.0, 4.0])
def test_the_interval_excludes_0_exactly_where_the_test_rejects(noise: float) -> None:
    rng = np.random.default_rng(5)
    people = rng.integers(10, 3_000, (4_000, 2)).astype(float)
    rates = rng.binomial(people.astype(int), rng.uniform(0.002, 0.6, (4_000, 2))) / people
    rates += rng.normal(0, np.sqrt(noise), rates.shape) / people
    added = noise / np.square(people)
    low, high = score_limits(rates, people, added, CRITICAL)
    common = common_rate(rates, people, added)[:, None]
    variance = (common * (1 - common) / people + added * (common**2 + (1 - common) ** 2)).sum(axis=1)
    score = (rates[:, 0] - rates[:, 1]) / np.sqrt(np.where(variance > 0, variance, 1.0))
    clear = (np.abs(np.abs(score) - CRITICAL) > 1e-6) & (variance > 0)
    assert 500 < (np.abs(score) > CRITICAL).sum() < 3_500
    assert (((low > 0) | (high < 0)) == (np.abs(score) > CRITICAL))[clear].all()
