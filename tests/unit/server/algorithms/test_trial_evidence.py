"""Evidence of trials, where segments stand for repetitions of a trial."""

from dataclasses import replace

import numpy as np
import pytest

from privateer_core.codec import encode
from privateer_server.algorithms.trial.allocation import compute_matching_shares
from privateer_server.algorithms.trial.evidence.epochs import Epoch, PlannedEpoch, TrialDesign
from privateer_server.algorithms.trial.evidence.trial_evidence import (
    HitValues,
    TrialEvidence,
    average_contributions,
    best_centres,
    estimate_from_people,
)
from privateer_server.algorithms.trial.evidence.weighted_sums import Sums, standardized_scores
from privateer_server.algorithms.trial.group_sequential import critical_values, information_fractions
from privateer_server.algorithms.trial.power.power_analysis import effect_deviations
from tests.support.trials import SETTINGS, Trials, TrialSetting, add_in_common, by_trial, central, growing_fractions

SEGMENTS = np.array([0.4, 0.3, 0.2, 0.1])
TIMES = growing_fractions(6_000, 100_000)
NO_EFFECT = np.full((4, 2), 0.3)


def run_trials(trials: Trials, adapt: bool, drift: float = 0.0, seed: int = 0) -> tuple[TrialEvidence, list[Epoch]]:
    """All looks of trials whose shares are fixed or match; the base rate rises by ``drift`` from first to last look."""
    rng, evidence, before, epochs = np.random.default_rng(seed), trials.begin(), 0.0, []
    shares = np.tile(evidence.design.arms, (len(evidence.design.segments), 1))
    for time in TIMES:
        moved = drift * (time - TIMES[0]) / (1 - TIMES[0])
        epochs.append(trials.draw_epoch(rng, round((time - before) * trials.people), shares, moved))
        evidence, before = evidence.add(epochs[-1]), time
        shares = compute_matching_shares(evidence, 0.1) if adapt else shares
    return evidence, epochs


def false_positive_rate(scores: np.ndarray) -> float:
    critical = critical_values(TIMES, 0.05)
    return float((np.abs(np.nan_to_num(scores)) > critical[:, None, None]).any(axis=0).mean())


def test_fixed_allocations_have_the_weighted_z_of_two_proportions() -> None:
    """By hand: an epoch of mean m counts 1/sqrt(m (1 - m)), with one hit and one miss added.

    An arm counts in the common rate as many people as its weighted hits are as good as.
    """
    evidence, epochs = run_trials(Trials(SETTINGS["none"], SEGMENTS, NO_EFFECT, 1e5, 3), False)
    means = [(epoch.positive.reshape(3, -1).sum(1) + 1) / (epoch.hits.reshape(3, -1).sum(1) + 2) for epoch in epochs]
    u = [np.repeat(1 / np.sqrt(mean * (1 - mean)), 4)[:, None] for mean in means]
    positive, hits = (
        sum(w * getattr(e, name) for w, e in zip(u, epochs, strict=True)) for name in ("positive", "hits")
    )
    square = sum(w**2 * epoch.hits for w, epoch in zip(u, epochs, strict=True))
    pooled = np.average(positive / hits, axis=1, weights=hits**2 / square)
    spread = pooled * (1 - pooled) * (square / hits**2).sum(axis=1)
    assert evidence.scores[-1][:, 0] == pytest.approx((positive / hits) @ [-1, 1] / np.sqrt(spread))
    plain_positive, plain_hits = (sum(getattr(epoch, name) for epoch in epochs) for name in ("positive", "hits"))
    plain = (plain_positive / plain_hits) @ [-1, 1] / np.sqrt(pooled * (1 - pooled) * (1 / plain_hits).sum(axis=1))
    assert evidence.scores[-1][:, 0] == pytest.approx(plain, abs=0.05)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_false_positive_rate_is_alpha_under_every_allocation(name: str) -> None:
    """4,000 effects: .05 within four standard errors, .014, once in 16,000."""
    evidence, _ = run_trials(Trials(SETTINGS[name], SEGMENTS, NO_EFFECT, 1e5, 1_000), True, seed=3)
    assert false_positive_rate(evidence.scores) == pytest.approx(0.05, abs=0.014)


def test_a_drifting_base_rate_biases_plain_means_alone() -> None:
    means = np.full((4, 2), 0.2) + np.array([[0, 0], [0, 0.06], [0, -0.06], [0, 0]])
    trials = Trials(SETTINGS["none"], SEGMENTS, means, 1e5, 500)
    evidence, epochs = run_trials(trials, True, drift=0.3)
    no_effect = np.tile([True, False, False, True], 500)
    assert false_positive_rate(evidence.scores[:, no_effect]) == pytest.approx(0.05, abs=0.028)
    positive, hits = (sum(getattr(epoch, name) for epoch in epochs) for name in ("positive", "hits"))
    rates = positive / hits
    plain = (rates[:, 1] - rates[:, 0]) / np.sqrt((rates * (1 - rates) / hits).sum(axis=1))
    assert (np.abs(plain[no_effect]) > 2.07).mean() > 0.5  # at the last look alone


def test_stable_scores_are_a_brownian_motion() -> None:
    """4,000 trials with shares that go to extremes: four standard errors of a variance are .09, of the share .014."""
    trials = Trials(SETTINGS["none"], SEGMENTS[:1], np.full((1, 2), 0.3), 1e5, 4_000)
    rng, evidence, shares, before, precise = np.random.default_rng(5), trials.begin(), np.full((4_000, 2), 0.5), 0.0, []
    for time in TIMES:
        evidence = evidence.add(trials.draw_epoch(rng, round((time - before) * 1e5), shares))
        precise.append(standardized_scores(evidence.precise))
        shares, before = compute_matching_shares(evidence, 0.025), time
    moves = np.diff(evidence.scores[..., 0] * np.sqrt(TIMES)[:, None], axis=0).var(axis=1) / np.diff(TIMES)
    assert moves == pytest.approx(np.ones(len(TIMES) - 1), abs=0.09)
    assert false_positive_rate(evidence.scores) == pytest.approx(0.05, abs=0.014)
    assert false_positive_rate(np.array(precise)) > 0.07


def test_epochs_add_variance_by_their_people_also_where_noise_decides() -> None:
    """4,000 trials of a curator at epsilon .1: four standard errors of a variance are .09.

    Planted: all people weigh alike, so that small epochs, whose noise is as large as that of others, weigh too much.
    """
    people = 20_000
    trials = Trials(central(0.1), SEGMENTS[:1] / SEGMENTS[0], np.full((1, 2), 0.3), people, 4_000)
    rng, evidence, before, alike = np.random.default_rng(6), trials.begin(), 0.0, []
    plain = evidence.stable
    for time in TIMES:
        epoch = trials.draw_epoch(rng, round((time - before) * people), np.full((4_000, 2), 0.5))
        evidence, plain, before = evidence.add(epoch), plain.add(epoch, np.ones((4_000, 1))), time
        alike.append(standardized_scores(plain)[:, 0])

    def moves(scores: np.ndarray) -> np.ndarray:
        return np.asarray(np.diff(scores * np.sqrt(TIMES)[:, None], axis=0).var(axis=1) / np.diff(TIMES))

    assert moves(evidence.scores[..., 0]) == pytest.approx(np.ones(len(TIMES) - 1), abs=0.09)
    assert np.abs(moves(np.array(alike)) - 1).max() > 0.2
    assert np.sqrt(evidence.stable.variance.mean()) < 0.97 * np.sqrt(plain.variance.mean())


def test_the_formulas_of_a_plan_have_the_simulated_deviations() -> None:
    """4,000 trials: a deviation has a standard error of 1.1 %. Planted: the noise of people who weigh alike."""
    people, setting = 20_000, central(0.1)
    trials = Trials(setting, np.ones(1), np.array([[0.1, 0.15]]), people, 4_000)
    sizes = np.diff((0.0, *TIMES)) * people
    rng, evidence = np.random.default_rng(8), trials.begin()
    for size in sizes:
        evidence = evidence.add(trials.draw_epoch(rng, round(size), np.full((4_000, 2), 0.5)))
    epochs = [PlannedEpoch(size, setting.keep, setting.other, setting.noise) for size in sizes]
    planned = float(effect_deviations(replace(trials, count=1).design, epochs, 0.125)[0, 0])
    assert evidence.stable.difference.std() == pytest.approx(planned, rel=0.045)
    sampling, noise = 4 * 0.125 * 0.875 / people, len(TIMES) * setting.noise * 8 * (0.125**2 + 0.875**2) / people**2
    assert evidence.stable.difference.std() < 0.95 * np.sqrt(sampling + noise)


@pytest.mark.parametrize("name", ["none", "central 1", "shuffle 1", "local 2"])
def test_the_average_effect_is_unbiased_and_its_variance_right(name: str) -> None:
    effects = np.array([0.03, -0.03, 0.06, 0.0])
    means = np.stack([np.full(4, 0.3), 0.3 + effects], axis=1)
    trials = Trials(SETTINGS[name], SEGMENTS, means, 1e5, 600)
    evidence, epochs = run_trials(trials, True, seed=7)
    sums = trials.begin().common
    for epoch in epochs:
        sums = add_in_common(sums, evidence, epoch, 600)
    average = average_contributions(by_trial(sums, 600), evidence.design)
    z = (average.estimate - SEGMENTS @ effects) / np.sqrt(average.variance)
    assert z.mean() == pytest.approx(0, abs=0.17)
    assert z.std() == pytest.approx(1, abs=0.12)


def test_sums_over_segments_equal_those_of_each_trial() -> None:
    trials = Trials(SETTINGS["central 1"], SEGMENTS, NO_EFFECT, 1e5, 1)
    evidence, epochs = run_trials(trials, True)
    sums = trials.begin().common
    for epoch in epochs:
        sums = add_in_common(sums, evidence, epoch, 1)
    assert encode(sums) == encode(evidence.common)
    assert np.ptp(evidence.common.people) == 0 < np.ptp(evidence.stable.people)


def test_an_average_counts_segments_with_an_empty_arm() -> None:
    """By hand: two segments of 500, a segment of 9 with 6 treated, and a segment with an arm of few or of none.

    A few are told from sums centred at a rate between their own and everybody's.
    """
    hits = np.array([[250.0, 250.0], [240.0, 260.0], [3.0, 6.0], [0.0, 0.0]])
    won = np.array([[100.0, 150.0], [60.0, 70.0], [1.0, 4.0], [0.0, 0.0]])
    design = TrialDesign(0.05, 1e3, np.array([0.5, 0.5]), np.full(4, 0.25))
    observed = 500 * (150 / 250 - 100 / 250) + 500 * (70 / 260 - 60 / 240)
    for treated in (0.0, 10.0):
        hits[3, 1], people = treated, 1_009 + treated
        evidence = TrialEvidence.begin(design).add(Epoch(people, won, hits, 1.0, 0.0, 0.0, np.full((4, 2), 0.5)))
        assert evidence.stable.is_ready[:, 0].tolist() == [True, True, False, False]
        average = evidence.average
        everybody = 385 / people
        weights = [size * everybody / (size * everybody + 20 * (1 - everybody)) for size in (9, treated)]
        third, fourth = weights[0] * 5 / 9 + (1 - weights[0]) * everybody, (1 - weights[1]) * everybody
        rare = 2 * ((4 - 6 * third) - (1 - 3 * third)) - 2 * treated * fourth
        assert average.estimate[0] == pytest.approx((observed + rare) / people)
        assert average.is_ready.all()
        assert np.isfinite(average.scores).all()


@pytest.mark.parametrize(("decay", "rate"), [(0.0, 0.01), (0.6, 0.01), (0.6, 0.9), (0.95, 0.3)])
def test_sums_over_a_few_people_vary_least_at_their_centre(decay: float, rate: float) -> None:
    trials = Trials(TrialSetting(decay=decay), np.array([0.05, 0.95]), np.full((2, 2), rate), 4e3, 1)
    sums = trials.begin().add(trials.draw_epoch(np.random.default_rng(3), 4_000, np.full((2, 2), 0.5))).common
    hit_values = HitValues(np.full((2, 1), rate), np.full((2, 1), rate * (1 - rate)))
    best = best_centres(sums, hit_values)
    assert ((best >= 0) & (best <= 1)).all()
    smallest = estimate_from_people(sums, hit_values, best)[1].sum(axis=-1)
    for centre in (best - 0.01, best + 0.01, np.full((2, 1), 0.501)):
        assert (estimate_from_people(sums, hit_values, centre)[1].sum(axis=-1) > smallest).all()


def test_hits_by_other_segments_are_subtracted_at_every_centre() -> None:
    """By hand: of 1,000 people 100 are of the segment and earn .3; o is .2 and q is .4."""
    hits = 1_000 / 2 * np.full((1, 2), 0.4 * 0.1 + 2 * 0.2)
    positive = 1_000 / 2 * np.full((1, 2), 0.4 * 0.1 * 0.3 + 0.2)
    design = TrialDesign(0.05, 1e3, np.array([0.5, 0.5]), np.full(1, 0.1))
    sums = Sums.empty(design).add(Epoch(1e3, positive, hits, 0.4, 0.2, 0.0, np.full((1, 2), 0.5)), np.ones((1, 1)))
    for centre in (0.1, 0.5, 0.8):
        estimates, _ = estimate_from_people(sums, HitValues.from_segments(sums), np.array([[centre]]))
        assert estimates[0, 0] == pytest.approx(np.full(2, 0.1 * (0.3 - centre)))


def test_scores_are_unknown_while_an_arm_is_within_the_noise() -> None:
    rare = Trials(TrialSetting(decay=float(np.exp(-0.05))), SEGMENTS, np.full((4, 2), 0.01), 5e3, 200)
    evidence, _ = run_trials(rare, False)
    assert np.isnan(evidence.scores[0]).all()
    assert np.isnan(standardized_scores(rare.begin().stable)).all()
    single, _ = run_trials(replace(rare, count=1), False)
    assert np.isnan(single.average_scores[0]).all()
    assert information_fractions(evidence.people, 5e3)[-1] == 1
