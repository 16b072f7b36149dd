"""Bandits that forget: half-lives side by side, the arms that are always tried, and intervals of what is remembered."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from privateer_core.algorithms import parse_spec
from privateer_core.answer.parts import HalfLives
from privateer_core.errors import SpecError
from privateer_core.spec.spec import example_promises
from privateer_server.algorithms import NewRound, learner_for
from privateer_server.algorithms.bandit.posterior import ArmPosterior, SuccessCounts
from privateer_server.algorithms.forgetting import ForgettingRule
from tests.support.people import rounds

FLIP_AT = 6000
HIGH, LOW = 0.7, 0.3


def make_bandit(model="none", horizon=12_000, round_size=500, **algorithm):
    experiment = {"name": "test", "arms": ["a", "b", "c"], "horizon": horizon, "round_size": round_size}
    tables = {"experiment": experiment, "privacy": example_promises()[model]}
    return parse_spec(tables | {"algorithm": {"name": "bandit", **algorithm}})


def make_flip():
    """Mean rewards of which the best is the first arm's, and from `FLIP_AT` people on the second's."""
    n_people = 0

    def means(contexts):
        nonlocal n_people
        n_people += len(contexts)
        best = int(n_people > FLIP_AT)
        return np.tile(np.where(np.arange(3) == best, HIGH, LOW), (len(contexts), 1))

    return means


def make_counts(people, means):
    people = np.array(people, float)
    return SuccessCounts.from_means(people, np.array(means), 4 * people)


def make_posterior(people, means):
    counts, zeros = make_counts(people, means), np.zeros(len(people))
    precision = 4 * counts.people
    return ArmPosterior(counts.people, precision, precision * np.array(means), zeros, counts)


def share_of_new_best_arm(spec):
    """Return the share of the people after the horizon who get the arm that is best then."""
    *_, last = rounds(spec, make_flip(), seed=3)
    learner: Any = learner_for(spec)
    return learner.policy(last.state, NewRound(99, 1, 500)).active_shares[1]


@pytest.mark.parametrize("half_life", ["auto", 3000])
def test_a_best_arm_that_falls_is_left(half_life):
    assert share_of_new_best_arm(make_bandit(half_life=half_life)) > 0.9


def test_without_forgetting_the_fallen_arm_is_kept():
    """Planted: the learner that weighs all reports alike."""
    assert share_of_new_best_arm(make_bandit()) < 0.1


def test_the_endless_half_life_equals_a_learner_without_forgetting():
    learner: Any = learner_for(make_bandit())
    state = learner.start(0)
    for played in rounds(make_bandit(half_life="auto"), make_flip()):
        state = learner.learn(state, played.policy, played.release)
        last = played.state
    endless, shortest = last.discounted.endless, last.discounted.evidence.select(3)
    assert endless.weighted == pytest.approx(state.posterior.weighted)
    assert endless.counts.successes == pytest.approx(state.posterior.counts.successes)
    assert (shortest.people < 0.8 * endless.people).all()
    assert (last.posterior.people == last.discounted.current.people).all()


@pytest.mark.parametrize(("model", "period", "share"), [("none", 1, 0.01), ("local", 1, 0.01), ("central", 10, 0.1)])
def test_the_arm_that_is_remembered_least_is_always_tried(model, period, share):
    """As many people in total, whatever hides the arm; planted: without forgetting nobody tries it."""
    shares = {}
    for half_life in ("auto", "none"):
        learner: Any = learner_for(make_bandit(model, 100_000, 1000, half_life=half_life))
        state, arms = learner.start(0), make_posterior([40_000, 2000, 300], [0.9, 0.2, 0.2])
        discounted = state.discounted and replace(
            state.discounted, evidence=arms.map_arrays(lambda values: np.tile(values, (4, 1)))
        )
        state = replace(state, posterior=arms, reported=42_300, discounted=discounted)
        shares[half_life] = [
            learner.shares(replace(state, rounds=played), NewRound(9, 1, 1000)).tolist() for played in range(2 * period)
        ]
    tried = [
        pytest.approx([1 - share, 0, share]) if (played + 1) % period == 0 else [1, 0, 0]
        for played in range(2 * period)
    ]
    assert shares["auto"] == tried
    assert shares["none"] == [[1, 0, 0]] * (2 * period)


def test_half_lives_are_scored_by_the_density_of_a_round():
    """Scores of two posteriors differ as exact normal densities do, under the uniform prior's mean and variance."""
    latest = make_counts([50, 0, 30], [0.7, 0.5, 0.2])
    scores, densities = [], []
    for people, means in (([400, 300, 200], [0.3, 0.4, 0.2]), ([20, 10, 10], [0.6, 0.5, 0.3])):
        counts = make_counts(people, means)
        scores.append(counts.predictive_log_density(latest))
        precision = 12 + 1 / counts.variances
        prior_means = (6 + counts.means / counts.variances) / precision
        deviations = np.sqrt(prior_means * (1 - prior_means) / 50 + 1 / precision)
        deviations[2] = math.sqrt(prior_means[2] * (1 - prior_means[2]) / 30 + 1 / precision[2])
        densities.append(stats.norm.logpdf([0.7, 0.2], prior_means[[0, 2]], deviations[[0, 2]]).sum())
    assert scores[1] - scores[0] == pytest.approx(densities[1] - densities[0])
    assert scores[1] > scores[0] + 3


def count_misses(n_runs=400, failure=0.05):
    """Count runs in which an interval misses the remembered mean, and the same with precision that never fades."""
    rng, rule, misses = np.random.default_rng(5), ForgettingRule((math.inf, 500.0), chooses=False), [0, 0]
    truths = np.repeat([[0.5, 0.3], [0.3, 0.6]], 40, axis=0)
    for _ in range(n_runs):
        discounted, averages = rule.start(ArmPosterior.empty(2)), []
        for round_number, means in enumerate(truths):
            latest = make_posterior([100, 100], rng.binomial(100, means) / 100)
            discounted = rule.add_evidence(discounted, latest, 200 * (round_number + 1), lambda *_: 0.0)
            averages.append(means)
        weights = 0.5 ** (200 * np.arange(len(truths))[::-1] / 500)
        errors = np.abs(discounted.current.interval_centres - weights @ np.array(averages) / weights.sum())
        misses[0] += bool((errors > discounted.current.radii(failure)).any())
        misses[1] += bool((errors > discounted.endless.radii(failure)).any())
    return misses


def test_intervals_of_what_is_remembered_hold():
    """At most 20 of 400 are expected to miss; 37 would be a false alarm below 1e-3. Planted: precision never fades."""
    misses, planted = count_misses()
    assert misses <= 36
    assert planted > 36


def test_an_answer_has_the_half_life_and_wider_intervals():
    spec = make_bandit(half_life="auto")
    *_, last = rounds(spec, make_flip(), seed=3)
    answer = learner_for(spec).answer(last.state)
    half_lives = answer.first_of(HalfLives)
    assert half_lives.used in half_lives.candidates
    assert half_lives.used is not None
    assert answer.recommended == "b"
    interval = answer.estimates[1]
    assert interval.high - interval.low > 1.9 * last.state.posterior.radii(0.05)[1]


@pytest.mark.parametrize("objective", ["moving", "adversarial", "best-arm", "best-arms"])
def test_objectives_that_need_all_reports_refuse_a_half_life(objective):
    with pytest.raises(SpecError) as refused:
        make_bandit(objective=objective, half_life="auto")
    assert refused.value.field == "algorithm.half_life"
    assert make_bandit(objective=objective, half_life="none").algorithm.half_lives == ()


def test_a_half_life_is_no_shorter_than_a_round_and_rounds_do_not_outgrow_it():
    with pytest.raises(SpecError) as refused:
        make_bandit(half_life=499)
    assert refused.value.field == "algorithm.half_life"
    assert any("too large" in concern for concern in make_bandit(round_size=3000, half_life="auto").concerns())


def test_new_arms_and_continued_experiments_keep_every_half_life():
    spec = make_bandit(half_life="auto")
    *_, last = rounds(spec, make_flip())
    learner: Any = learner_for(spec)
    state = learner.keep_evidence_only(last.state)
    assert (state.reported, state.discounted.n_own_reports) == (0, 0)
    assert (state.discounted.evidence.people == last.state.discounted.evidence.people).all()
    grown = state.discounted.with_arms(1)
    assert grown.evidence.people.shape == (4, 4)
    assert not grown.evidence.counts.trials[:, 3].any()
