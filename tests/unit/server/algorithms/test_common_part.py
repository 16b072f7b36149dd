"""A part that arms have in common: against the joint normal distribution of all values, by conditioning it."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from privateer_server.algorithms.partition.kernel import Kernel
from privateer_server.algorithms.partition.posterior.common_part import CommonPart
from privateer_server.algorithms.partition.posterior.observations import Observations

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
    precision, found = rng.uniform(1, 40, (ARMS, SEEN)), rng.normal(-0.7, 1.0, (ARMS, SEEN))
    lower, upper = boxes()
    information = np.einsum("koi,ko,koj->kij", about, precision, about)
    weighted = np.einsum("koi,ko->ki", about, precision * found)
    return about, precision, found, Observations(lower[:BINS], upper[:BINS], information, weighted)


def joint(kernel):
    """Means and covariance of the values of all arms in all boxes, (arms * boxes), and the evidence, by hand."""
    about, precision, found, _ = observations()
    lower, upper = boxes()
    own, common = kernel.covariance(lower, upper), kernel.common_covariance(lower, upper)
    prior = np.kron(np.eye(ARMS), own) + np.kron(np.ones((ARMS, ARMS)), common)
    seen = np.zeros((ARMS, SEEN, ARMS, len(lower)))
    seen[np.arange(ARMS), :, np.arange(ARMS), :BINS] = about
    seen = seen.reshape(ARMS * SEEN, -1)
    told = seen @ prior @ seen.T + np.diag(1 / precision.ravel())
    gain = prior @ seen.T @ np.linalg.inv(told)
    density = float(stats.multivariate_normal(cov=told).logpdf(found.ravel()))
    return gain @ found.ravel(), prior - gain @ seen @ prior, density


@pytest.mark.parametrize("planted", [False, True])
def test_posteriors_are_those_of_the_joint_normal_distribution(planted):
    """Planted: observations of one arm are taken to say nothing of the others."""
    kernel = replace(KERNEL, common=not planted)
    means, covariance, _ = joint(KERNEL)
    means, variances = means.reshape(ARMS, -1).T, np.diagonal(covariance).reshape(ARMS, -1).T
    lower, upper = boxes()
    known = observations()[-1]
    found = [known.posterior(kernel)[0], known.elsewhere(kernel, lower[BINS:], upper[BINS:]), known.variances(kernel)]
    agree = [
        np.allclose(one, right, atol=1e-6)
        for one, right in zip(found, [means[:BINS], means[BINS:], variances[:BINS]], strict=True)
    ]
    assert all(agree) if not planted else not any(agree)


def test_the_variance_that_choices_depend_on_leaves_out_what_moves_all_arms_alike():
    """If the common part is known an arm has the variance P_k; by what the part moves all arms alike nothing is added.

    Arms that are observed alike differ by their own parts alone.
    """
    known = observations()[-1]
    alike = Observations(
        known.lower,
        known.upper,
        np.repeat(known.information[:1], ARMS, axis=0),
        np.repeat(known.weighted[:1], ARMS, axis=0),
    )
    prior = KERNEL.covariance(known.lower, known.upper)
    alone = np.diagonal(np.linalg.inv(np.linalg.inv(prior) + known.information[0]))
    apart = alike.posterior(KERNEL)[1]
    assert apart == pytest.approx(np.repeat(alone[:, None], ARMS, axis=1), abs=1e-9)
    assert (alike.variances(KERNEL) > 1.05 * apart).all()


@pytest.mark.parametrize("planted", [False, True])
def test_likelihoods_are_those_of_the_joint_normal_distribution(planted):
    """Of two kernels, of which one has a common part: that counts for e^3 less beforehand.

    Planted: the common part's determinant is forgotten.
    """
    other = Kernel(KERNEL.lengths, KERNEL.spread)
    about, precision, found, known = observations()
    lower, upper = boxes()
    own = other.covariance(lower[:BINS], upper[:BINS])
    alone = sum(
        float(stats.multivariate_normal(cov=one @ own @ one.T + np.diag(1 / of)).logpdf(seen))
        for one, of, seen in zip(about, precision, found, strict=True)
    )
    difference = known.likelihood(KERNEL) + 3 - known.likelihood(other)
    if planted:
        covariance = KERNEL.common_covariance(lower[:BINS], upper[:BINS])
        posterior = np.linalg.inv(np.linalg.inv(own) + known.information)
        part = CommonPart(posterior, known.information, known.weighted, covariance)
        told = (known.information - known.information @ posterior @ known.information).sum(axis=0)
        difference += np.linalg.slogdet(np.eye(BINS) + covariance @ told)[1] / 2
        assert part.likelihood() < difference
    assert (abs(difference - (joint(KERNEL)[2] - alone)) < 1e-6) == (not planted)


def test_what_further_observations_are_predicted_to_be_is_a_ratio_of_densities():
    known = observations()[-1]
    precision, moment = np.full((2, ARMS), 7.0), np.linspace(-3, 3, 2 * ARMS).reshape(2, ARMS)
    information, weighted = known.information.copy(), known.weighted.copy()
    information[:, [0, 1], [0, 1]] += precision.T
    weighted[:, :2] += moment.T
    after = Observations(known.lower, known.upper, information, weighted)
    expected = after.likelihood(KERNEL) - known.likelihood(KERNEL)
    assert known.predicted(KERNEL, precision, moment) == pytest.approx(expected, abs=1e-9)
