"""A part that arms have in common: against the joint normal distribution of all values, by conditioning it."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from privateer_server.algorithms.partition.kernel import Kernel
from privateer_server.algorithms.partition.observations import CommonPart, Observations

ARMS = 3
KERNEL = Kernel(np.array([4, 6]), 1, common=True)
"""Two numbers: a bin's corners are (bins, 2)."""
BINS, SEEN = 6, 5
"""Bins that observations are about, and how many of each arm there are."""


def boxes():
    """Four quarters of the square, a half and a narrow strip; then two boxes elsewhere."""
    corners = [(0, 0, 1, 1), (1, 0, 2, 1), (0, 1, 1, 2), (1, 1, 2, 2), (0, 0, 2, 1), (0, 0, 0.25, 2)]
    corners += [(0, 0.5, 0.5, 1), (1.5, 1.5, 2, 2)]
    box = np.array(corners) / 2
    return box[:, :2], box[:, 2:]


def observations():
    """Observations of single bins and of unions, arm by arm: averages, precisions, what was found; then summed up."""
    rng = np.random.default_rng(3)
    about = rng.dirichlet(np.ones(BINS), (ARMS, SEEN)) * (rng.random((ARMS, SEEN, 1)) < 0.5)
    about[:, np.arange(3), np.arange(3)] += 1
    precision, averages = rng.uniform(1, 40, (ARMS, SEEN)), rng.normal(-0.7, 1.0, (ARMS, SEEN))
    lower, upper = boxes()
    information = np.einsum("koi,ko,koj->kij", about, precision, about)
    weighted = np.einsum("koi,ko->ki", about, precision * averages)
    return about, precision, averages, Observations(lower[:BINS], upper[:BINS], information, weighted)


def condition_jointly(kernel):
    """Means and covariance of the values of all arms in all boxes, (arms * boxes), and the evidence, by hand."""
    about, precision, averages, _ = observations()
    lower, upper = boxes()
    own_covariance, common = kernel.covariance(lower, upper), kernel.common_covariance(lower, upper)
    prior = np.kron(np.eye(ARMS), own_covariance) + np.kron(np.ones((ARMS, ARMS)), common)
    design = np.zeros((ARMS, SEEN, ARMS, len(lower)))
    design[np.arange(ARMS), :, np.arange(ARMS), :BINS] = about
    design = design.reshape(ARMS * SEEN, -1)
    observed_covariance = design @ prior @ design.T + np.diag(1 / precision.ravel())
    gain = prior @ design.T @ np.linalg.inv(observed_covariance)
    density = float(stats.multivariate_normal(cov=observed_covariance).logpdf(averages.ravel()))
    return gain @ averages.ravel(), prior - gain @ design @ prior, density


@pytest.mark.parametrize("planted", [False, True])
def test_posteriors_are_those_of_the_joint_normal_distribution(planted):
    """Planted: observations of an arm are taken as uninformative on the other arms."""
    kernel = replace(KERNEL, common=not planted)
    means, covariance, _ = condition_jointly(KERNEL)
    means, variances = means.reshape(ARMS, -1).T, np.diagonal(covariance).reshape(ARMS, -1).T
    lower, upper = boxes()
    observed = observations()[-1]
    estimates = [
        observed.posterior(kernel)[0],
        observed.predict_boxes(kernel, lower[BINS:], upper[BINS:]),
        observed.variances_with_common_part(kernel),
    ]
    agree = [
        np.allclose(estimate, right, atol=1e-6)
        for estimate, right in zip(estimates, [means[:BINS], means[BINS:], variances[:BINS]], strict=True)
    ]
    assert all(agree) if not planted else not any(agree)


def test_the_variance_for_choices_excludes_the_common_part():
    """Given the common part an arm has the variance P_k, without the variance that all arms share.

    Arms that are observed alike differ by their own parts alone.
    """
    observed = observations()[-1]
    alike = Observations(
        observed.lower,
        observed.upper,
        np.repeat(observed.information[:1], ARMS, axis=0),
        np.repeat(observed.weighted[:1], ARMS, axis=0),
    )
    prior = KERNEL.covariance(observed.lower, observed.upper)
    single_arm_variances = np.diagonal(np.linalg.inv(np.linalg.inv(prior) + observed.information[0]))
    own_variances = alike.posterior(KERNEL)[1]
    assert own_variances == pytest.approx(np.repeat(single_arm_variances[:, None], ARMS, axis=1), abs=1e-9)
    assert (alike.variances_with_common_part(KERNEL) > 1.05 * own_variances).all()


@pytest.mark.parametrize("planted", [False, True])
def test_likelihoods_are_those_of_the_joint_normal_distribution(planted):
    """Of two kernels, of which one has a common part: that counts for e^3 less beforehand.

    Planted: the common part's determinant is forgotten.
    """
    other = Kernel(KERNEL.lengths, KERNEL.spread)
    about, precision, averages, observed = observations()
    lower, upper = boxes()
    kernel = other.covariance(lower[:BINS], upper[:BINS])
    log_density = sum(
        float(stats.multivariate_normal(cov=matrix @ kernel @ matrix.T + np.diag(1 / weights)).logpdf(means))
        for matrix, weights, means in zip(about, precision, averages, strict=True)
    )
    difference = observed.log_density(KERNEL) + 3 - observed.log_density(other)
    if planted:
        covariance = KERNEL.common_covariance(lower[:BINS], upper[:BINS])
        posterior = np.linalg.inv(np.linalg.inv(kernel) + observed.information)
        part = CommonPart(posterior, observed.information, observed.weighted, covariance)
        reduced = (observed.information - observed.information @ posterior @ observed.information).sum(axis=0)
        difference += np.linalg.slogdet(np.eye(BINS) + covariance @ reduced)[1] / 2
        assert part.log_density_gain() < difference
    assert (abs(difference - (condition_jointly(KERNEL)[2] - log_density)) < 1e-6) == (not planted)


def test_the_predictive_density_is_a_ratio_of_likelihoods():
    observed = observations()[-1]
    precision, moment = np.full((2, ARMS), 7.0), np.linspace(-3, 3, 2 * ARMS).reshape(2, ARMS)
    information, weighted = observed.information.copy(), observed.weighted.copy()
    information[:, [0, 1], [0, 1]] += precision.T
    weighted[:, :2] += moment.T
    after = Observations(observed.lower, observed.upper, information, weighted)
    expected = after.log_density(KERNEL) - observed.log_density(KERNEL)
    assert observed.predictive_log_density(KERNEL, precision, moment) == pytest.approx(expected, abs=1e-9)
