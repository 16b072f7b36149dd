"""What linear learners make of releases: slopes without bias, posteriors that contain the truth, and contexts."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privateer_core.algorithms.linear.design_matrix import DesignMatrix, prior_moments
from privateer_core.policies.policy import Arms
from privateer_core.primitives.bounded_vectors import VectorSums
from privateer_core.primitives.row_ball import second_moments
from privateer_core.spec.columns import FLAG, NUMBER, code_block
from privateer_server.algorithms.linear.context_moments import Contexts, build_frame, compute_slopes, simulate_rows
from privateer_server.algorithms.linear.posterior import (
    _posterior_moments,
    _separate_scale_variances,
    estimate_level,
    fit_posterior,
)
from privateer_server.rounds.schedule import Schedule
from tests.support.row_vectors import vectors_of
from tests.support.specs import linear_spec

RNG = np.random.default_rng(4)
TRUTH = {"identity": np.array([0.5, 0.1, -0.15, 0.1, 0.0]), "logistic": np.array([0.2, 0.4, -0.6, 0.4, 0.0])}


@pytest.mark.parametrize("model", ["local", "shuffle", "none"])
@pytest.mark.parametrize("link", list(TRUTH))
def test_slopes_and_offsets_predict_the_mean_of_simulated_reports(model, link):
    """Mean vectors of 32,768 people against matrices and offsets, within 8 standard errors (both are drawn).

    Planted: slopes that are twice as steep.
    """
    spec = linear_spec(model, link=link)
    policy: Any = Schedule(spec).open(3).policy
    away = policy.means + np.array([[0.02, 0.05, 0, 0, 0.03], [0, 0.1, 0.05, 0, 0]])
    policy = replace(policy, means=away)
    slopes, moments = compute_slopes(policy, prior_moments(policy.design)), prior_moments(policy.design)
    rows = simulate_rows(policy.design, moments, RNG)
    coins = RNG.integers(0, 2**32, len(rows), dtype=np.uint32)
    arms = policy.choose_arms(rows, policy.draw_normals(coins))
    rewards = policy.rewards_link.means(rows @ TRUTH[link])
    reports = policy.contribute((rows[:, 1:] + 1) / 2, coins, Arms(arms), rewards)
    vectors = vectors_of(policy, reports)[:, : policy.means.size]
    observed = vectors.mean(axis=0) / np.sqrt(1 - policy.share)
    errors = vectors.std(axis=0) / np.sqrt(len(rows))
    by_arm = np.einsum("ckij,kj->cki", slopes.matrices, TRUTH[link] - policy.means) + slopes.offsets
    expected = by_arm.mean(axis=0).ravel()
    slack = 0.0 if link == "identity" else 0.008  # the link is taken to be straight between means and truth
    assert (np.abs(observed - expected) <= 8 * errors + slack).all()
    doubled = expected + np.einsum("ckij,kj->cki", slopes.matrices, TRUTH[link] - policy.means).mean(axis=0).ravel()
    assert not (np.abs(observed - doubled) <= 8 * errors + slack).all()


def test_reports_vary_most_along_the_longest_directions():
    """Covariances of 32,768 vectors, within 6 standard errors; directions are ten times as long in one feature.

    Planted: the same spread in every coordinate.
    """
    policy: Any = Schedule(linear_spec("none")).open(3).policy
    policy = replace(policy, telling=policy.telling * np.array([0.1, 1.0, 0.1, 0.1, 0.1]))
    moments = prior_moments(policy.design)
    rows = simulate_rows(policy.design, moments, np.random.default_rng(12))
    coins = np.random.default_rng(13).integers(0, 2**32, len(rows), dtype=np.uint32)
    arms = policy.choose_arms(rows, policy.draw_normals(coins))
    products = np.einsum("nd,nd->n", rows, policy.means[arms])
    rewards = np.random.default_rng(14).random(len(rows)) < policy.rewards_link.means(products)
    reports = policy.contribute((rows[:, 1:] + 1) / 2, coins, Arms(arms), rewards.astype(float))
    gradients = vectors_of(policy, reports)[:, : policy.means.size].reshape(len(rows), 2, 5) / np.sqrt(1 - policy.share)
    squares = np.einsum("nki,nkj->nkij", gradients, gradients)
    errors = squares.std(axis=0) / np.sqrt(len(rows)) + 1e-4
    spreads = compute_slopes(policy, moments).spreads.mean(axis=0)
    assert (np.abs(squares.mean(axis=0) - spreads) < 6 * errors).all()
    planted = np.trace(spreads, axis1=1, axis2=2)[:, None, None] / 5 * np.eye(5)
    assert not (np.abs(squares.mean(axis=0) - planted) < 6 * errors).all()


def test_the_posterior_is_that_of_regression_and_its_prior_follows_the_evidence():
    design = RNG.normal(size=(400, 3))
    deviation, posteriors = 0.3, {}
    for scale in (0.02, 0.4):
        truths = scale * RNG.normal(size=(6, 3))
        observed = design @ truths.T + deviation * RNG.normal(size=(400, 6))
        information = np.tile(design.T @ design / deviation**2, (6, 1, 1))
        posteriors[scale] = fit_posterior(information, (design.T @ observed / deviation**2).T, 1.0, np.eye(3))
        precision = np.linalg.inv(posteriors[scale].covariances)
        off = np.einsum("ki,kij,kj->k", posteriors[scale].means - truths, precision, posteriors[scale].means - truths)
        assert off.sum() < 45  # chi-squared of 18: beyond it in 4 of 10,000 cases
    assert posteriors[0.02].prior[1] < posteriors[0.4].prior[1]


def test_reported_second_moments_replace_the_prior():
    spec = linear_spec("none")
    schedule = Schedule(spec)
    step = schedule.open(1)
    learner: Any = schedule.learner
    rows = np.concatenate([np.ones((20_000, 1)), RNG.uniform(-0.5, 0.5, (20_000, 4))], axis=1)
    arms = Arms(np.zeros(20_000, np.int64))
    reports = step.policy.contribute((rows[:, 1:] + 1) / 2, np.zeros(20_000, np.uint32), arms, rows[:, 0])
    state = learner.learn(
        step.state, step.policy, VectorSums(20_000, vectors_of(step.policy, reports).sum(axis=0), 0.0)
    )
    truth = rows.T @ rows / len(rows)
    assert np.abs(learner.moments(state) - truth).max() < 0.01
    assert np.abs(learner.moments(step.state) - truth).max() > 0.05
    assert learner.doubt(state) < 0.02 < learner.doubt(step.state)


def test_an_arm_without_plays_has_little_information():
    spec = linear_spec("none")
    schedule = Schedule(spec)
    step = schedule.open(1)
    sure: Any = replace(step.policy, means=np.array([[0.9, 0, 0, 0, 0], [0.1, 0, 0, 0, 0]]))
    release = VectorSums(1000, np.zeros(sure.mechanism.ball.coordinates), 0.0)
    state = schedule.learner.learn(step.state, sure, release)
    assert np.isfinite(state.information).all()
    assert np.abs(state.information[1]).max() < 1e-6 * np.abs(state.information[0]).max()


def test_the_level_is_estimated_and_overrules_a_declared_one():
    """Two arms at -.49 and -.47 around the middle, told with a standard deviation of .01."""
    information = np.tile(np.diag([1e4, 0.0]), (2, 1, 1))
    scores = np.array([[-4900.0, 0.0], [-4700.0, 0.0]])
    reward_level = estimate_level(information, scores, 1.0, np.eye(2))
    assert reward_level.shift == pytest.approx(-0.48, abs=1e-3)
    assert reward_level.min_shift == pytest.approx(-0.48 + 0.01 / np.sqrt(2), abs=1e-3)
    no_evidence = np.zeros_like(information)
    assert estimate_level(no_evidence, np.zeros((2, 2)), 1.0, np.eye(2)).min_shift == 0
    assert estimate_level(no_evidence, np.zeros((2, 2)), 0.02, np.eye(2), -0.495).min_shift == pytest.approx(-0.485)
    assert estimate_level(information, scores, 1.0, np.eye(2), 0.3).shift == pytest.approx(-0.48, abs=1e-3)


def test_arms_of_rare_rewards_are_shrunk_to_their_level():
    """An arm is expected at the level of the other arm, within the variation of rare rewards.

    Planted: the prior of fair coins, by which nobody knows whether the other arm is worth .005 or .2.
    """
    information = np.zeros((2, 2, 2))
    information[0, 0, 0], scores = 1e5, np.zeros((2, 2))
    scores[0, 0] = -0.495e5
    level = estimate_level(information, scores, 1.0, np.eye(2))
    rare, coins = (fit_posterior(information, scores, scale, np.eye(2), level.shift) for scale in (0.02, 1.0))
    assert rare.means[1, 0] == pytest.approx(-0.495, abs=2e-3)
    assert np.sqrt(rare.covariances[1, 0, 0]) < 0.006 < 0.05 < np.sqrt(coins.covariances[1, 0, 0])


@pytest.mark.parametrize("link", list(TRUTH))
def test_residuals_of_rare_rewards_have_the_variance_of_rare_rewards(link):
    """First-round policies predict 1/2, and one person in 200 has a reward: within 20 %. Planted: a fair coin's."""
    policy: Any = Schedule(linear_spec("none", link=link)).open(3).policy
    moments, rng = prior_moments(policy.design), np.random.default_rng(8)
    rows = simulate_rows(policy.design, moments, rng)
    coins = rng.integers(0, 2**32, len(rows), dtype=np.uint32)
    arms = policy.choose_arms(rows, policy.draw_normals(coins))
    reports = policy.contribute((rows[:, 1:] + 1) / 2, coins, Arms(arms), (rng.random(len(rows)) < 0.005).astype(float))
    gradients = vectors_of(policy, reports)[:, : policy.means.size].reshape(len(rows), 2, 5) / np.sqrt(1 - policy.share)
    # A residual is -1 or 1 times a direction: what varies is the reward around its rate.
    residuals = np.linalg.norm(gradients, axis=2).sum(axis=1) * np.sign((gradients[:, :, 0]).sum(axis=1) / rows[:, 0])
    stated, coin = (
        np.trace(compute_slopes(policy, moments, **options).spreads.mean(axis=0), axis1=1, axis2=2).sum()
        for options in ({"variance": 0.005 * 0.995}, {})
    )
    assert residuals.var() == pytest.approx(stated, rel=0.2)
    assert residuals.var() != pytest.approx(coin, rel=0.2)


def test_a_logistic_model_represents_rates_below_the_predictions():
    """Devices predict no less than .02; what a model says is below, and its slope is its derivative."""
    policy: Any = Schedule(linear_spec("none", link="logistic")).open(3).policy
    link = policy.rewards_link
    at = link.linear_predictor(0.005)
    assert link.means(np.array(at)) > 0.02
    assert link.unclipped_means(np.array(at)) == pytest.approx(0.005)
    difference = (link.unclipped_means(np.array(at + 1e-4)) - link.unclipped_means(np.array(at - 1e-4))) / 2e-4
    assert link.derivatives(np.array(at)) == pytest.approx(difference, rel=1e-4)


ANSWERS = DesignMatrix((NUMBER, NUMBER, *[code_block(2)] * 10))
SHARE = 0.1


def draw_contexts(seed: int, count: int) -> np.ndarray:
    """Rows of people: numbers near the low end of their range, and answers of which yes is rare, all independent."""
    rng = np.random.default_rng(seed)
    numbers = rng.uniform(-1, 0, (count, 2))
    answers = np.where(rng.random((count, 10)) < np.linspace(0.05, 0.4, 10), 1.0, -1.0)
    return np.concatenate([np.ones((count, 1)), numbers, answers], axis=1)


def test_second_moments_without_noise_equal_the_truth() -> None:
    """50,000 people, no noise: every moment is within .02, which is 4.5 standard errors of the noisiest."""
    contexts, rows = Contexts(ANSWERS), draw_contexts(0, 50_000)
    sums = np.sqrt(SHARE) * second_moments(rows @ contexts.moment_matrix).sum(axis=0)
    scales = len(rows) * contexts.moment_scales(contexts.moment_matrix, SHARE)
    estimate = contexts.estimate_features(*contexts.weigh_sums(sums, scales, len(rows), 0.0))
    assert np.abs(contexts.build_row_moments(estimate) - rows.T @ rows / len(rows)).max() < 0.02
    assert estimate.doubt < 0.02


def test_noisy_second_moments_are_shrunk() -> None:
    """5,000 people with a symbol's noise in ten draws: moments are nearer the truth than if all were kept or assumed.

    Planted: everything that is told is believed, which is twice as far off on average.
    """
    contexts, rows = Contexts(ANSWERS), draw_contexts(1, 5000)
    truth, assumed, shrunk, unshrunk = rows.T @ rows / len(rows), [], [], []
    totals = np.sqrt(SHARE) * second_moments(rows @ contexts.moment_matrix).sum(axis=0)
    scales = len(rows) * contexts.moment_scales(contexts.moment_matrix, SHARE)
    rng, noise = np.random.default_rng(2), 0.5 * len(rows)
    for _ in range(10):
        sums, precision = contexts.weigh_sums(
            totals + rng.normal(scale=np.sqrt(noise), size=len(totals)), scales, len(rows), noise
        )
        shrunk.append(np.linalg.norm(contexts.build_row_moments(contexts.estimate_features(sums, precision)) - truth))
        unshrunk.append(
            np.linalg.norm(
                contexts.build_row_moments(contexts.estimate_features(1e9 * sums / precision, 1e9 + 0 * sums)) - truth
            )
        )
        assumed.append(np.linalg.norm(prior_moments(ANSWERS) - truth))
    assert max(shrunk) < 0.7 * assumed[0]
    assert np.mean(unshrunk) > 2 * np.mean(shrunk)


def test_estimated_moments_belong_to_a_distribution_within_bounds() -> None:
    """Means inside their bounds and answers' squares 1, however wild the noise."""
    contexts, rng = Contexts(DesignMatrix((NUMBER, FLAG, code_block(2), code_block(5)))), np.random.default_rng(3)
    d = contexts.design.dimension
    for _ in range(20):
        matrix = 30 * rng.normal(size=(d, d))
        row_moments = contexts.build_row_moments(contexts.estimate_features(matrix + matrix.T, np.ones((d, d))))
        assert row_moments[3, 3] == pytest.approx(1.0)
        assert (np.abs(row_moments[0, 1:4]) <= 1).all()
        assert (np.diag(row_moments)[1:] >= row_moments[0, 1:] ** 2).all()


def test_simulated_contexts_have_the_estimated_moments() -> None:
    """32,768 people; 5 standard errors. Planted: answers drawn as numbers, which are neither 1 nor -1."""
    truth = np.array([0.05, 0.5, 0.9])
    design, middle = DesignMatrix((code_block(2),) * 3), 2 * truth - 1
    row = np.concatenate([np.ones(1), middle])
    moments = np.outer(row, row)
    moments[1:, 1:] += np.diag(1 - middle**2)
    rows = simulate_rows(design, moments, np.random.default_rng(4))
    assert set(np.unique(rows[:, 1:])) == {-1.0, 1.0}
    assert (np.abs((rows[:, 1:] > 0).mean(axis=0) - truth) < 5 * np.sqrt(truth * (1 - truth) / len(rows))).all()
    numbers = simulate_rows(DesignMatrix((NUMBER,) * 3), moments, np.random.default_rng(4))
    assert len(np.unique(numbers[:, 1:])) > 2


def test_coordinates_without_effect_are_shrunk_alone() -> None:
    """Of 20 coordinates two matter, in 20 draws: errors are below those of any common scale.

    Planted: the scale that makes the error smallest, which the truth alone tells.
    """
    rng, deviation = np.random.default_rng(5), 0.1
    truth = np.zeros((2, 21))
    truth[:, 1:3] = [[0.4, -0.5], [-0.4, 0.3]]
    information = np.tile(np.eye(21) / deviation**2, (2, 1, 1))
    separate, common = [], []
    for _ in range(20):
        observed = truth + deviation * rng.normal(size=truth.shape)
        posterior = fit_posterior(information, observed / deviation**2, 1.0, np.eye(21))
        shrunk = [observed * scale**2 / (scale**2 + deviation**2) for scale in (0.03, 0.06, 0.12, 0.25, 0.5)]
        separate.append(np.square(posterior.means - truth)[:, 1:].sum())
        common.append(min(np.square(means - truth)[:, 1:].sum() for means in shrunk))
        assert (posterior.prior[1:3] > 0.2).all()
    assert np.sum(separate) < 0.7 * np.sum(common)


def test_equal_slopes_share_one_prior_scale() -> None:
    """Eight equal slopes, half of them with fewer reports, in 40 draws: errors are below those with separate scales.

    Planted: a scale for each.
    """
    rng, deviations = np.random.default_rng(6), np.array([0.02] * 5 + [0.15] * 4)
    information = np.tile(np.diag(deviations**-2), (2, 1, 1))
    n_common, alike, separate = 0, 0.0, 0.0
    for _ in range(40):
        truth = 0.12 * rng.normal(size=(2, 9))
        scores = (truth + deviations * rng.normal(size=truth.shape)) / deviations**2
        posterior = fit_posterior(information, scores, 1.0, np.eye(9))
        n_common += np.ptp(posterior.prior[1:]) < 1e-9
        means = _posterior_moments(information, scores, _separate_scale_variances(information, scores, 1.0))[0]
        alike += np.square(posterior.means - truth).sum()
        separate += np.square(means - truth).sum()
    assert n_common > 25
    assert alike < 0.95 * separate


def test_the_prior_without_evidence_is_wide() -> None:
    """A prior of the smallest scales would exclude an arm for ever in some runs."""
    posterior = fit_posterior(np.zeros((2, 4, 4)), np.zeros((2, 4)), 1.0, np.eye(4))
    assert np.allclose(posterior.prior[1:], posterior.prior[1])
    assert posterior.prior[1] > 0.2
    assert posterior.prior[0] > 0.1


def test_the_prior_is_about_the_mean_context() -> None:
    """Slopes at rare answers must not make the reward of all people uncertain."""
    row = np.array([1.0, -0.9, 0.3])
    moments = np.outer(row, row) + np.diag([0.0, 0.19, 0.16])
    posterior = fit_posterior(np.zeros((1, 3, 3)), np.zeros((1, 3)), 1.0, build_frame(moments))
    assert row @ posterior.covariances[0] @ row == pytest.approx(posterior.prior[0] ** 2)
    assert (
        row @ fit_posterior(np.zeros((1, 3, 3)), np.zeros((1, 3)), 1.0, np.eye(3)).covariances[0] @ row
        > posterior.prior[0] ** 2
    )
