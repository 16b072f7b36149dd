"""Memory: evidence fades, several memories learn from the same rounds, and tests of whether rewards drift."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from privateer_core.answer.parts import DriftTest, HalfLives
from privateer_core.errors import SpecError
from privateer_lab.environments import environment_for
from privateer_server.algorithms import NewRound, learner_for
from privateer_server.algorithms.forgetting import Discounted, ForgettingRule, prior_probabilities
from privateer_server.algorithms.partition.bin_tree import Split
from privateer_server.algorithms.partition.change_detection import (
    FALSE_ALARM_RATE,
    FIRST_WINDOW_SIZE,
    Window,
    compute_drift_test,
    log_evidence_ratio,
)
from privateer_server.algorithms.partition.gaussian_process import BinEvidence
from privateer_server.algorithms.partition.kernel import LENGTHS, Kernel
from privateer_server.algorithms.partition.learner import PartitionLearner
from privateer_server.algorithms.partition.observations import Observations
from tests.support.partitions import same, with_parts
from tests.support.people import rounds
from tests.support.phased import phased_spec
from tests.support.specs import SHUFFLE, make_spec

AUTO = {"algorithm.half_life": "auto"}
QUICK = {"privacy.epsilon": 4.0, "experiment.round_size": 500}
PEAKS = environment_for(make_spec({"population.name": "peaks"}), 0).means
LIVES = (math.inf, 1000.0)


def make_evidence(precision=8.0, probabilities=(0.5, 0.5), used=0):
    evidence = np.full((2, 1, 3), precision)
    past = np.full((2, 1, 3), precision)
    return Discounted(BinEvidence(evidence, evidence / 2, past, past / 2), np.array(probabilities), used, 0)


def faded(evidence, people):
    return evidence.scaled_by(ForgettingRule(LIVES, chooses=True).retention(people))


def test_evidence_counts_half_after_a_half_life_and_the_endless_one_stays():
    old = faded(make_evidence().evidence, 1000)
    for values, whole in ((old.precision, 8.0), (old.moment, 4.0), (old.past_precision, 8.0), (old.past_moment, 4.0)):
        assert values[0] == pytest.approx(whole)
        assert values[1] == pytest.approx(whole / 2)
    in_steps = faded(faded(make_evidence().evidence, 400), 600)
    assert in_steps.precision == pytest.approx(old.precision)


def test_every_memory_learns_from_the_round_that_one_of_them_asked_for():
    spec = make_spec({**QUICK, **AUTO})
    learner = learner_for(spec)
    first, *_ = rounds(spec, PEAKS)
    before, after = learner.start(0).discounted.evidence, first.state.discounted.evidence
    gained = after.precision - before.precision[:, [0] * after.precision.shape[1]]
    assert (gained == gained[0]).all()
    assert first.state.discounted.n_own_reports == spec.experiment.round_size


def test_the_endless_memory_equals_a_learner_without_forgetting(monkeypatch):
    """The same releases of the same policies, whichever memory made these.

    The variances of scores depend a little on what was thought of values, which is what the memory in use knows.
    """
    monkeypatch.setattr(PartitionLearner, "split_bins", lambda self, state: state)
    spec = make_spec({**QUICK, **AUTO})
    plain = learner_for(make_spec(QUICK))
    state = plain.start(0)
    for played in rounds(spec, PEAKS):
        state = plain.learn(state, played.policy, played.release)
        last = played.state
    evidence = last.discounted.evidence
    assert evidence.precision[0] == pytest.approx(state.evidence.precision, rel=1e-4)
    assert evidence.moment[0] == pytest.approx(state.evidence.moment, rel=1e-4)
    assert (evidence.precision[3] < evidence.precision[0]).all()


def test_the_posterior_is_that_of_the_memory_in_use():
    for memory, used in (("auto", None), (5000, 1)):
        *_, last = rounds(make_spec({**QUICK, "algorithm.half_life": memory}), PEAKS)
        bank = last.state.discounted
        assert used is None or bank.used == used
        for name in ("precision", "moment", "past_precision", "past_moment"):
            assert (getattr(last.state.evidence, name) == getattr(bank.evidence, name)[bank.used]).all()


def test_half_life_none_is_the_default():
    *_, plain = rounds(make_spec(QUICK), PEAKS)
    *_, none = rounds(make_spec({**QUICK, "algorithm.half_life": "none"}), PEAKS)
    assert plain.state.discounted is None
    assert same(plain.state, none.state)


def test_the_memory_that_predicts_better_takes_over_and_can_lose_its_place_again():
    bank = ForgettingRule(LIVES, chooses=True).start(BinEvidence.empty(1, 3))
    for _ in range(20):
        bank = bank.choose_half_life(np.array([-0.5, 0.0]), 300)
    assert bank.used == 1
    for _ in range(20):
        bank = bank.choose_half_life(np.array([0.0, -0.5]), 300)
    assert bank.used == 0
    assert bank.probabilities.sum() == pytest.approx(1)


def test_a_small_lead_does_not_change_the_memory():
    bank = make_evidence(probabilities=(0.45, 0.55), used=0).choose_half_life(np.zeros(2), 1)
    assert bank.used == 0


def test_scores_of_memories_are_forgotten():
    """However badly a memory predicted long ago, now is another time."""
    bank = make_evidence(probabilities=(1e-12, 1.0), used=1).choose_half_life(np.zeros(2), 1_000_000)
    assert bank.probabilities == pytest.approx(prior_probabilities(2))


def test_halving_keeps_the_evidence_of_every_memory():
    split = Split(np.array([0, 0, 1]), np.array([True, True, False]), np.array([True, False]))
    evidence = np.arange(12.0).reshape(2, 2, 3)
    none = np.zeros((2, 0, 3))
    halved = BinEvidence(evidence, evidence, none, none).split(split)
    assert (halved.precision[:, :2] == 0).all()
    assert (halved.precision[:, 2] == evidence[:, 1]).all()
    assert (halved.past_moment[:, 0] == evidence[:, 0]).all()


def test_predictions_are_scored_by_their_density():
    """Two memories' scores differ as the exact densities of the observations do."""
    rng = np.random.default_rng(0)
    lower = np.array([[0.0], [0.5]])
    smoothness = Kernel(np.array([LENGTHS.tolist().index(0.5)]), 1)
    covariance = smoothness.covariance(lower, lower + 0.5)
    precision, averages = rng.uniform(5, 50, (2, 2)), rng.normal(0, 0.4, (2, 2))
    scores, densities = [], []
    for weight in (1.0, 20.0):
        information = np.stack([np.diag([weight, 2 * weight])] * 2)
        weighted = rng.normal(0, weight / 2, (2, 2))
        evidence = Observations(lower, lower + 0.5, information, weighted)
        scores.append(evidence.predictive_log_density(smoothness, precision, precision * averages))
        total = 0.0
        for arm in range(2):
            posterior = np.linalg.inv(np.linalg.inv(covariance) + information[arm])
            spread = posterior + np.diag(1 / precision[:, arm])
            total += stats.multivariate_normal.logpdf(averages[:, arm], posterior @ weighted[arm], spread)
        densities.append(total)
    assert scores[1] - scores[0] == pytest.approx(densities[1] - densities[0])


def decide_every_bin(spec):
    """A learner that knows its only bin, which is narrow: one arm is clearly worse."""
    learner: Any = learner_for(spec)
    start = learner.start(0)
    precision = np.full((1, 3), 400.0)
    moment = precision * np.array([[0.3, 0.2, -0.5]])
    kernel = {"lengths": np.full(2, len(LENGTHS) - 1), "spread": 0}
    tree = {"axes": np.arange(8) % 2, "depths": np.full(1, 8)}
    state = with_parts(start, **tree, **kernel, precision=precision, moment=moment)
    if state.discounted:
        rows = len(state.discounted.probabilities)
        stacks = {"precision": np.stack([precision] * rows), "moment": np.stack([moment] * rows)}
        evidence = replace(state.discounted.evidence, **stacks)
        state = replace(state, discounted=replace(state.discounted, evidence=evidence))
    return learner, learner.update_arms(learner.compute_posterior(state))


def test_a_dropped_arm_returns_as_its_evidence_fades():
    learner, state = decide_every_bin(make_spec({"algorithm.half_life": 5000}))
    assert state.active.tolist() == [[True, True, False]]
    later = replace(state, n_own_reports=60_000)
    assert learner.update_arms(learner.compute_posterior(learner.fade_evidence(later))).active.all()


def test_without_memory_a_dropped_arm_stays_dropped():
    learner, state = decide_every_bin(make_spec())
    assert learner.update_arms(learner.compute_posterior(replace(state, n_own_reports=60_000))).active.tolist() == [
        [True, True, False]
    ]


@pytest.mark.parametrize("changes", [{}, SHUFFLE], ids=["local", "shuffle"])
def test_decided_bins_still_explore_under_forgetting(changes):
    """Drift needs reports from decided bins. The last policy asks for none."""
    spec = make_spec({**changes, **AUTO})
    learner = learner_for(spec)
    state = replace(learner.start(0), active=np.array([[True, False, False]]))
    policy = learner.policy(state, NewRound(1, 0, 1000))
    policy.check(spec)
    assert policy.bins.tolist() == [0]
    assert policy.shares.tolist() == [[1, 0, 0]]
    assert not len(learner.policy(state, NewRound(2, 0, 0)).bins)
    assert not len(learner_for(make_spec(changes)).policy(replace(state, discounted=None), NewRound(1, 0, 1000)).bins)


def exploration_share(learner, state):
    kinds = learner.allocation.classify_bins(
        learner.build_process(state), state.active, state.posterior.variance, selected=False
    )
    return learner.allocation.exploration_factors(
        kinds, state.n_own_reports, learner.forgetting.half_life(state.discounted), 0.5
    )


def test_forgetting_reduces_late_exploration():
    spec = make_spec({"algorithm.half_life": 3000, "experiment.horizon": 1_000_000})
    learner = learner_for(spec)
    early, late = (replace(learner.start(0), n_own_reports=n_reports) for n_reports in (1000, 50_000))
    plain = learner_for(make_spec({"experiment.horizon": 1_000_000}))
    assert exploration_share(learner, early) == pytest.approx(exploration_share(plain, replace(early, discounted=None)))
    assert exploration_share(learner, late) < 0.7 * exploration_share(plain, replace(late, discounted=None))


def test_an_answer_names_the_half_life_in_use():
    *_, last = rounds(make_spec({**QUICK, **AUTO}), PEAKS)
    first = learner_for(make_spec({**QUICK, **AUTO})).answer(last.state).first_of(HalfLives)
    assert first.candidates == (None, 30_000, 10_000, 3_000)
    assert first.used in first.candidates
    assert sum(first.probabilities) == pytest.approx(1, abs=1e-3)


def test_an_algorithm_without_memory_refuses_it():
    with pytest.raises(SpecError) as refused:
        phased_spec({"algorithm.half_life": "auto"})
    assert refused.value.field == "algorithm.half_life"
    assert refused.value.remedy


def test_rounds_that_grow_too_large_for_the_memory_are_a_concern():
    grows = {"experiment.min_round_fraction": 0.07, "experiment.horizon": 100_000}
    assert make_spec({**grows, "experiment.min_round_fraction": 0.02, **AUTO}).concerns() == []
    assert make_spec({**grows, "algorithm.half_life": 50_000}).concerns() == []
    assert make_spec(grows).concerns() == []
    (concern,) = make_spec({**grows, **AUTO}).concerns()
    assert "experiment.min_round_fraction" in concern
    assert "2,000" in concern


QUICK_WINDOWS = {"privacy.epsilon": 8.0, "experiment.round_size": 500, "experiment.horizon": 12_000}
NOTHING = np.zeros(0)


def gaussian(earlier, recent):
    """Likelihoods of shares of two observations of a standard normal value: (mean, precision) each."""

    def likelihood(old_weight, new_weight):
        precision = 1 + old_weight * earlier[1] + new_weight * recent[1]
        weighted = old_weight * earlier[0] * earlier[1] + new_weight * recent[0] * recent[1]
        return weighted**2 / precision / 2 - math.log(precision) / 2

    return likelihood


def test_evidence_is_the_ratio_of_exact_densities():
    """The weights of earlier on recent observations are 1, an eighth and 0."""
    earlier, recent = (0.8, 40.0), (-0.1, 25.0)

    def density(share):
        precision = 1 + share * earlier[1]
        mean, variance = share * earlier[0] * earlier[1] / precision, 1 / precision + 1 / recent[1]
        return stats.norm.pdf(recent[0], mean, math.sqrt(variance))

    exact = (density(0.0) + density(0.125)) / 2 / density(1.0)
    assert log_evidence_ratio(gaussian(earlier, recent)) == pytest.approx(math.log(exact))
    assert exact > 10


def detection_rate(is_drifting, times=2000, scale=1.0):
    """Share of experiments of one value, seen 200 times in four windows, that are ever said to contradict themselves.

    ``moves``: whether the value is drawn anew halfway. ``scale``: what the precision of observations is taken for.
    """
    rng = np.random.default_rng(0)
    alarms = 0
    for _ in range(times):
        values = np.repeat(rng.normal(0, 1, 2 if is_drifting else 1), 100 if is_drifting else 200)
        values_seen = rng.normal(values, 1.0)
        closed, opened = [], []
        for start in (25, 50, 100):
            for now in range(start + 1, 2 * start + 1):
                earlier = (values_seen[:start].mean(), scale * start)
                recent = (values_seen[start:now].mean(), scale * (now - start))
                window = log_evidence_ratio(gaussian(earlier, recent))
                contradiction = compute_drift_test(np.array([*closed, window]), np.array([*opened, start]))
                if contradiction.detected:
                    break
            closed.append(window)
            opened.append(start)
            if contradiction.detected:
                alarms += 1
                break
    return alarms / times


@pytest.mark.nightly
def test_the_false_alarm_rate_holds_however_often_one_looks():
    """At every observation; 5,000 experiments exceed the rate by chance with probability 1e-6 at the limit."""
    limit = stats.binom.isf(1e-6, 5000, FALSE_ALARM_RATE) / 5000
    assert detection_rate(False, 5000) <= limit


@pytest.mark.nightly
def test_drift_is_detected_and_an_overstated_precision_is_caught():
    """Planted: half of the values move far enough to be seen; observations taken for three times as precise."""
    assert detection_rate(True, 100) > 0.4
    assert detection_rate(False, 500, scale=3.0) > stats.binom.isf(1e-6, 500, FALSE_ALARM_RATE) / 500


def test_windows_share_one_false_alarm_rate():
    limit = -math.log(FALSE_ALARM_RATE)
    assert not compute_drift_test(np.array([limit]), np.array([FIRST_WINDOW_SIZE])).detected, (
        "the first window has half of the weight"
    )
    contradiction = compute_drift_test(
        np.array([limit + 1.0, 0.0]), np.array([FIRST_WINDOW_SIZE, 2 * FIRST_WINDOW_SIZE])
    )
    assert contradiction.detected
    assert contradiction.since == FIRST_WINDOW_SIZE
    assert (
        compute_drift_test(np.array([-1.0, limit + 3.0]), np.array([FIRST_WINDOW_SIZE, 2 * FIRST_WINDOW_SIZE])).since
        == 2 * FIRST_WINDOW_SIZE
    )
    assert compute_drift_test(np.array([1e3]), np.array([FIRST_WINDOW_SIZE])).evidence > 100
    assert compute_drift_test(np.zeros(3), np.arange(3)).evidence == pytest.approx(0)


def test_bins_split_after_the_window_opened_have_no_earlier_evidence():
    depths, paths = np.array([1, 1, 0]), np.array([0, 1, 0])
    evidence = np.arange(6.0).reshape(3, 2)
    before = Window(2000, depths, paths, evidence, -evidence, NOTHING, NOTHING.astype(np.int64))
    precision, moment = before.evidence_for(np.array([2, 1, 0]), np.array([0, 1, 0]))
    assert precision.tolist() == [[0, 0], [2, 3], [4, 5]]
    assert moment.tolist() == [[0, 0], [-2, -3], [-4, -5]]


@pytest.mark.parametrize("memory", ["none", "auto", 3000])
def test_windows_open_when_people_have_doubled_and_a_planted_drift_is_found(memory):
    spec = make_spec({**QUICK_WINDOWS, "algorithm.half_life": memory})
    learner: Any = learner_for(spec)
    n_people = 0

    def drifting_means(contexts):
        nonlocal n_people
        n_people += len(contexts)
        means = PEAKS(contexts)
        return means if n_people <= 5000 else means[:, [1, 2, 0]]

    stable, drifting = (list(rounds(spec, means)) for means in (PEAKS, drifting_means))
    assert learner.detect_change(stable[0].state) is None
    opened = [played.state.window.n_own_reports for played in stable if played.state.window]
    assert sorted(set(opened)) == [2000, 4000, 8000]
    assert not any(learner.detect_change(played.state).detected for played in stable[4:])
    before = [played for played in drifting if played.state.n_own_reports <= 5000][4:]
    assert not any(learner.detect_change(played.state).detected for played in before)
    first = learner.answer(drifting[-1].state).first_of(DriftTest)
    assert first.detected
    assert first.since in (4000, 8000)
    assert first.false_alarm_rate == FALSE_ALARM_RATE
