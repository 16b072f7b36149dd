"""Repetitions are segments: what is asked of many trials is asked of many segments of one."""

from dataclasses import replace

import numpy as np
import pytest

from privateer_core.codec import decode, encode
from privateer_server.algorithms.trial.allocation import matching
from privateer_server.algorithms.trial.evidence.averages import HitValues, average, by_people, centres
from privateer_server.algorithms.trial.evidence.epochs import Epoch, PlannedEpoch, TrialDesign
from privateer_server.algorithms.trial.evidence.trial_evidence import TrialEvidence
from privateer_server.algorithms.trial.evidence.weighted_sums import Sums, scores
from privateer_server.algorithms.trial.group_sequential import critical_values, information
from privateer_server.algorithms.trial.power.planned_deviations import deviations
from tests.support.trials import SETTINGS, Trials, TrialSetting, added_in_common, by_trial, central, growing

SEGMENTS = np.array([0.4, 0.3, 0.2, 0.1])
TIMES = growing(6_000, 100_000)
NO_EFFECT = np.full((4, 2), 0.3)


def run(trials: Trials, adapt: bool, drift: float = 0.0, seed: int = 0) -> tuple[TrialEvidence, list[Epoch]]:
    """All looks of trials whose shares are fixed or match; the base rate rises by ``drift`` from first to last look."""
    rng, evidence, before, epochs = np.random.default_rng(seed), trials.begin(), 0.0, []
    shares = np.tile(evidence.design.arms, (len(evidence.design.segments), 1))
    for time in TIMES:
        moved = drift * (time - TIMES[0]) / (1 - TIMES[0])
        epochs.append(trials.epoch(rng, round((time - before) * trials.people), shares, moved))
        evidence, before = evidence.add(epochs[-1]), time
        shares = matching(evidence, 0.1) if adapt else shares
    return evidence, epochs


def false_positives(scores: np.ndarray) -> float:
    critical = critical_values(TIMES, 0.05)
    return float((np.abs(np.nan_to_num(scores)) > critical[:, None, None]).any(axis=0).mean())


def test_evidence_travels() -> None:
    evidence, _ = run(Trials(SETTINGS["central 1"], SEGMENTS, NO_EFFECT, 1e5, 1), True)
    again = decode(encode(evidence), TrialEvidence)
    assert np.array_equal(again.scores, evidence.scores, equal_nan=True)
    assert encode(again) == encode(evidence)


def test_with_fixed_shares_z_is_that_of_two_proportions_each_epoch_weighed_by_its_rate() -> None:
    """By hand: an epoch of mean m counts 1/sqrt(m (1 - m)), with one hit and one miss more than everybody's.

    An arm counts in the common rate as many people as its weighted hits are as good as.
    """
    evidence, epochs = run(Trials(SETTINGS["none"], SEGMENTS, NO_EFFECT, 1e5, 3), False)
    means = [(one.positive.reshape(3, -1).sum(1) + 1) / (one.hits.reshape(3, -1).sum(1) + 2) for one in epochs]
    u = [np.repeat(1 / np.sqrt(mean * (1 - mean)), 4)[:, None] for mean in means]
    won, seen = (sum(w * getattr(one, name) for w, one in zip(u, epochs, strict=True)) for name in ("positive", "hits"))
    square = sum(w**2 * one.hits for w, one in zip(u, epochs, strict=True))
    pooled = np.average(won / seen, axis=1, weights=seen**2 / square)
    spread = pooled * (1 - pooled) * (square / seen**2).sum(axis=1)
    assert evidence.scores[-1][:, 0] == pytest.approx((won / seen) @ [-1, 1] / np.sqrt(spread))
    plain_won, plain_seen = (sum(getattr(one, name) for one in epochs) for name in ("positive", "hits"))
    plain = (plain_won / plain_seen) @ [-1, 1] / np.sqrt(pooled * (1 - pooled) * (1 / plain_seen).sum(axis=1))
    assert evidence.scores[-1][:, 0] == pytest.approx(plain, abs=0.05)


@pytest.mark.parametrize("name", SETTINGS)
def test_an_effect_of_zero_is_called_one_with_probability_alpha_whatever_the_shares(name: str) -> None:
    """4,000 effects: .05 within four standard errors, .014, once in 16,000."""
    evidence, _ = run(Trials(SETTINGS[name], SEGMENTS, NO_EFFECT, 1e5, 1_000), True, seed=3)
    assert false_positives(evidence.scores) == pytest.approx(0.05, abs=0.014)


def test_a_drifting_base_rate_misleads_plain_means_and_not_these() -> None:
    means = np.full((4, 2), 0.2) + np.array([[0, 0], [0, 0.06], [0, -0.06], [0, 0]])
    trials = Trials(SETTINGS["none"], SEGMENTS, means, 1e5, 500)
    evidence, epochs = run(trials, True, drift=0.3)
    no_effect = np.tile([True, False, False, True], 500)
    assert false_positives(evidence.scores[:, no_effect]) == pytest.approx(0.05, abs=0.028)
    won, seen = (sum(getattr(epoch, name) for epoch in epochs) for name in ("positive", "hits"))
    rates = won / seen
    plain = (rates[:, 1] - rates[:, 0]) / np.sqrt((rates * (1 - rates) / seen).sum(axis=1))
    assert (np.abs(plain[no_effect]) > 2.07).mean() > 0.5  # at the last look alone


def test_scores_move_as_brownian_motion_does_and_those_of_least_variance_do_not() -> None:
    """4,000 trials with shares that go to extremes: four standard errors of a variance are .09, of the share .014."""
    trials = Trials(SETTINGS["none"], SEGMENTS[:1], np.full((1, 2), 0.3), 1e5, 4_000)
    rng, evidence, shares, before, precise = np.random.default_rng(5), trials.begin(), np.full((4_000, 2), 0.5), 0.0, []
    for time in TIMES:
        evidence = evidence.add(trials.epoch(rng, round((time - before) * 1e5), shares))
        precise.append(scores(evidence.precise))
        shares, before = matching(evidence, 0.025), time
    moves = np.diff(evidence.scores[..., 0] * np.sqrt(TIMES)[:, None], axis=0).var(axis=1) / np.diff(TIMES)
    assert moves == pytest.approx(np.ones(len(TIMES) - 1), abs=0.09)
    assert false_positives(evidence.scores) == pytest.approx(0.05, abs=0.014)
    assert false_positives(np.array(precise)) > 0.07


def test_epochs_add_variance_by_their_people_also_where_noise_decides() -> None:
    """4,000 trials of a curator at epsilon .1: four standard errors of a variance are .09.

    Planted: all people weigh alike, so that small epochs, whose noise is as large as that of others, weigh too much.
    """
    people = 20_000
    trials = Trials(central(0.1), SEGMENTS[:1] / SEGMENTS[0], np.full((1, 2), 0.3), people, 4_000)
    rng, evidence, before, alike = np.random.default_rng(6), trials.begin(), 0.0, []
    plain = evidence.stable
    for time in TIMES:
        epoch = trials.epoch(rng, round((time - before) * people), np.full((4_000, 2), 0.5))
        evidence, plain, before = evidence.add(epoch), plain.add(epoch, np.ones((4_000, 1))), time
        alike.append(scores(plain)[:, 0])

    def moves(found: np.ndarray) -> np.ndarray:
        return np.asarray(np.diff(found * np.sqrt(TIMES)[:, None], axis=0).var(axis=1) / np.diff(TIMES))

    assert moves(evidence.scores[..., 0]) == pytest.approx(np.ones(len(TIMES) - 1), abs=0.09)
    assert np.abs(moves(np.array(alike)) - 1).max() > 0.2
    assert np.sqrt(evidence.stable.variance.mean()) < 0.97 * np.sqrt(plain.variance.mean())


def test_formulas_of_a_plan_have_the_deviations_of_these_weights() -> None:
    """4,000 trials: a deviation has a standard error of 1.1 %. Planted: the noise of people who weigh alike."""
    people, setting = 20_000, central(0.1)
    trials = Trials(setting, np.ones(1), np.array([[0.1, 0.15]]), people, 4_000)
    sizes = np.diff((0.0, *TIMES)) * people
    rng, evidence = np.random.default_rng(8), trials.begin()
    for size in sizes:
        evidence = evidence.add(trials.epoch(rng, round(size), np.full((4_000, 2), 0.5)))
    epochs = [PlannedEpoch(size, setting.keep, setting.other, setting.noise) for size in sizes]
    planned = float(deviations(replace(trials, count=1).design, epochs, 0.125)[0, 0])
    assert evidence.stable.difference.std() == pytest.approx(planned, rel=0.045)
    sampling, noise = 4 * 0.125 * 0.875 / people, len(TIMES) * setting.noise * 8 * (0.125**2 + 0.875**2) / people**2
    assert evidence.stable.difference.std() < 0.95 * np.sqrt(sampling + noise)


@pytest.mark.parametrize("name", ["none", "central 1", "shuffle 1", "local 2"])
def test_the_average_effect_is_unbiased_and_its_variance_right(name: str) -> None:
    effects = np.array([0.03, -0.03, 0.06, 0.0])
    means = np.stack([np.full(4, 0.3), 0.3 + effects], axis=1)
    trials = Trials(SETTINGS[name], SEGMENTS, means, 1e5, 600)
    evidence, epochs = run(trials, True, seed=7)
    sums = trials.begin().common
    for epoch in epochs:
        sums = added_in_common(sums, evidence, epoch, 600)
    found = average(by_trial(sums, 600), evidence.design)
    z = (found.estimate - SEGMENTS @ effects) / np.sqrt(found.variance)
    assert z.mean() == pytest.approx(0, abs=0.17)
    assert z.std() == pytest.approx(1, abs=0.12)


def test_sums_over_segments_have_one_weight_and_are_those_of_each_trial() -> None:
    trials = Trials(SETTINGS["central 1"], SEGMENTS, NO_EFFECT, 1e5, 1)
    evidence, epochs = run(trials, True)
    sums = trials.begin().common
    for epoch in epochs:
        sums = added_in_common(sums, evidence, epoch, 1)
    assert encode(sums) == encode(evidence.common)
    assert np.ptp(evidence.common.people) == 0 < np.ptp(evidence.stable.people)


def test_an_average_counts_people_of_every_segment_even_of_one_where_an_arm_has_nobody() -> None:
    """By hand: two segments of 500 people, one of 9 of whom 6 were treated, and one with nobody, or with a few.

    A few are told from sums centred at a rate between their own and everybody's.
    """
    hits = np.array([[250.0, 250.0], [240.0, 260.0], [3.0, 6.0], [0.0, 0.0]])
    won = np.array([[100.0, 150.0], [60.0, 70.0], [1.0, 4.0], [0.0, 0.0]])
    design = TrialDesign(0.05, 1e3, np.array([0.5, 0.5]), np.full(4, 0.25))
    told = 500 * (150 / 250 - 100 / 250) + 500 * (70 / 260 - 60 / 240)
    for treated in (0.0, 10.0):
        hits[3, 1], people = treated, 1_009 + treated
        evidence = TrialEvidence.begin(design).add(Epoch(people, won, hits, 1.0, 0.0, 0.0, np.full((4, 2), 0.5)))
        assert evidence.stable.ready[:, 0].tolist() == [True, True, False, False]
        found = evidence.average
        everybody = 385 / people
        own = [seen * everybody / (seen * everybody + 20 * (1 - everybody)) for seen in (9, treated)]
        third, fourth = own[0] * 5 / 9 + (1 - own[0]) * everybody, (1 - own[1]) * everybody
        few = 2 * ((4 - 6 * third) - (1 - 3 * third)) - 2 * treated * fourth
        assert found.estimate[0] == pytest.approx((told + few) / people)
        assert found.ready.all()
        assert np.isfinite(found.scores).all()


@pytest.mark.parametrize(("decay", "rate"), [(0.0, 0.01), (0.6, 0.01), (0.6, 0.9), (0.95, 0.3)])
def test_sums_over_a_few_people_vary_least_at_their_centre(decay: float, rate: float) -> None:
    trials = Trials(TrialSetting(decay=decay), np.array([0.05, 0.95]), np.full((2, 2), rate), 4e3, 1)
    sums = trials.begin().add(trials.epoch(np.random.default_rng(3), 4_000, np.full((2, 2), 0.5))).common
    known = HitValues(np.full((2, 1), rate), np.full((2, 1), rate * (1 - rate)))
    best = centres(sums, known)
    assert ((best >= 0) & (best <= 1)).all()
    least = by_people(sums, known, best)[1].sum(axis=-1)
    for beside in (best - 0.01, best + 0.01, np.full((2, 1), 0.501)):
        assert (by_people(sums, known, beside)[1].sum(axis=-1) > least).all()


def test_others_hits_are_taken_off_wherever_the_centre_is() -> None:
    """By hand: of 1,000 people 100 are of the segment and earn .3; o is .2 and q is .4."""
    hits = 1_000 / 2 * np.full((1, 2), 0.4 * 0.1 + 2 * 0.2)
    positive = 1_000 / 2 * np.full((1, 2), 0.4 * 0.1 * 0.3 + 0.2)
    design = TrialDesign(0.05, 1e3, np.array([0.5, 0.5]), np.full(1, 0.1))
    sums = Sums.none(design).add(Epoch(1e3, positive, hits, 0.4, 0.2, 0.0, np.full((1, 2), 0.5)), np.ones((1, 1)))
    for centre in (0.1, 0.5, 0.8):
        found, _ = by_people(sums, HitValues.shrunk(sums), np.array([[centre]]))
        assert found[0, 0] == pytest.approx(np.full(2, 0.1 * (0.3 - centre)))


def test_nothing_is_ready_before_both_arms_have_people_beyond_the_noise() -> None:
    rare = Trials(TrialSetting(decay=float(np.exp(-0.05))), SEGMENTS, np.full((4, 2), 0.01), 5e3, 200)
    evidence, _ = run(rare, False)
    assert np.isnan(evidence.scores[0]).all()
    assert np.isnan(scores(rare.begin().stable)).all()
    alone, _ = run(replace(rare, count=1), False)
    assert np.isnan(alone.average_scores[0]).all()
    assert information(evidence.people, 5e3)[-1] == 1
