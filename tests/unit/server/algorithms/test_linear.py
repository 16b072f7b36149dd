"""What linear learners make of releases: slopes without bias, posteriors that contain the truth."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privateer_core.algorithms.linear.design_matrix import prior_moments
from privateer_core.policies.policy import Arms
from privateer_core.primitives.bounded_vectors import VectorSums
from privateer_server.algorithms.linear.context_moments import compute_slopes, simulate_rows
from privateer_server.algorithms.linear.posterior import estimate_level, fit_posterior
from privateer_server.rounds.loop import Schedule
from tests.support.linears import linear_spec

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
    observed = reports.values[:, : policy.means.size].mean(axis=0) / np.sqrt(1 - policy.share)
    errors = reports.values[:, : policy.means.size].std(axis=0) / np.sqrt(len(rows))
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
    policy = replace(policy, whitening=policy.whitening * np.array([1.0, 10.0, 1.0, 1.0, 1.0]))
    moments = prior_moments(policy.design)
    rows = simulate_rows(policy.design, moments, np.random.default_rng(12))
    coins = np.random.default_rng(13).integers(0, 2**32, len(rows), dtype=np.uint32)
    arms = policy.choose_arms(rows, policy.draw_normals(coins))
    products = np.einsum("nd,nd->n", rows, policy.means[arms])
    rewards = np.random.default_rng(14).random(len(rows)) < policy.rewards_link.means(products)
    reports = policy.contribute((rows[:, 1:] + 1) / 2, coins, Arms(arms), rewards.astype(float))
    gradients = reports.values[:, : policy.means.size].reshape(len(rows), 2, 5) / np.sqrt(1 - policy.share)
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
    state = learner.learn(step.state, step.policy, VectorSums(20_000, reports.values.sum(axis=0), 0.0))
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
    gradients = reports.values[:, : policy.means.size].reshape(len(rows), 2, 5) / np.sqrt(1 - policy.share)
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
