"""What sums say of values: against normal regression by hand, calibration on drawn processes, and fitting."""

import numpy as np
import pytest
from scipy import stats

from privateer_server.algorithms.partition.gaussian_process import Observations
from privateer_server.algorithms.partition.kernel import LENGTHS, Kernel
from tests.support.statistics import FALSE_ALARM

SIDE = 8


def grid(dimension=2):
    axes = np.meshgrid(*[np.arange(SIDE) / SIDE] * dimension, indexing="ij")
    lower = np.stack(axes, axis=-1).reshape(-1, dimension)
    return lower, lower + 1 / SIDE


def drawn(smoothness, rng, arms, precision):
    """Values of a process on the grid, and evidence of the given precision on every bin."""
    lower, upper = grid(len(smoothness.lengths))
    factor = np.linalg.cholesky(smoothness.covariance(lower, upper))
    values = (factor @ rng.standard_normal((len(lower), arms))).T
    observed = values + rng.standard_normal(values.shape) / np.sqrt(precision)
    information = np.repeat(precision * np.eye(len(lower))[None], arms, axis=0)
    return values, Observations(lower, upper, information, precision * observed)


def test_posteriors_are_those_of_normal_regression():
    """Observations of single bins and of a union, by conditioning the joint normal distribution."""
    smoothness = Kernel(np.array([4, 6]), 2)
    lower, upper = grid()
    rng = np.random.default_rng(1)
    seen = np.zeros((5, len(lower)))
    seen[np.arange(4), [0, 3, 9, 40]] = 1
    seen[4, :16] = 1 / 16
    precision, observed = rng.uniform(1, 30, 5), rng.normal(0, 0.5, 5)
    evidence = Observations(
        lower, upper, (seen.T @ (precision[:, None] * seen))[None], (seen.T @ (precision * observed))[None]
    )
    prior = smoothness.covariance(lower, upper)
    gain = prior @ seen.T @ np.linalg.inv(seen @ prior @ seen.T + np.diag(1 / precision))
    means, variances = evidence.posterior(smoothness)
    assert means[:, 0] == pytest.approx(gain @ observed, abs=1e-6)
    assert variances[:, 0] == pytest.approx(np.diag(prior - gain @ seen @ prior), abs=1e-6)
    law = stats.multivariate_normal(cov=seen @ prior @ seen.T + np.diag(1 / precision))
    other = Kernel(np.array([2, 9]), 1)
    against = stats.multivariate_normal(cov=seen @ other.covariance(lower, upper) @ seen.T + np.diag(1 / precision))
    found = [evidence.likelihood(one) for one in (smoothness, other)]
    beforehand = [
        -((np.log(LENGTHS[one.lengths] / 0.5) ** 2).sum() + (np.log(spread / 0.5) / 0.5) ** 2) / 2
        for one, spread in ((smoothness, 0.75), (other, 0.5))
    ]
    expected = law.logpdf(observed) - against.logpdf(observed) + beforehand[0] - beforehand[1]
    assert found[0] - found[1] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("wrong", [1.0, 8.0])
def test_standardized_errors_of_drawn_processes_have_variance_1(wrong):
    """40 processes of 3 arms: a chi-square of one bin's errors each; planted: precision 8 times what it is."""
    smoothness, rng = Kernel(np.array([3, 7]), 1), np.random.default_rng(2)
    scores = []
    for _ in range(40):
        values, evidence = drawn(smoothness, rng, 3, 5.0)
        claimed = Observations(evidence.lower, evidence.upper, wrong * evidence.information, wrong * evidence.weighted)
        means, variances = claimed.posterior(smoothness)
        scores.append(((means - values.T) / np.sqrt(variances))[20])
    total = float((np.array(scores) ** 2).sum())
    inside = stats.chi2.ppf(FALSE_ALARM, 120) < total < stats.chi2.isf(FALSE_ALARM, 120)
    assert inside == (wrong == 1.0)


def test_a_feature_that_matters_is_told_from_one_that_does_not():
    truth = Kernel(np.array([2, len(LENGTHS) - 1]), 2)
    start = Kernel(np.array([5, 5]), 1)
    for seed in range(5):
        _, evidence = drawn(truth, np.random.default_rng(seed), 3, 50.0)
        found = evidence.fitted(start)
        assert LENGTHS[found.lengths[0]] < 0.4
        assert LENGTHS[found.lengths[1]] >= 1.5
        assert evidence.likelihood(found) >= evidence.likelihood(start)


def test_fitting_stays_on_the_grids():
    lower, upper = grid(1)
    flat = Observations(lower, upper, 1e6 * np.eye(SIDE)[None], np.full((1, SIDE), 3e5))
    wild = Observations(lower, upper, 1e6 * np.eye(SIDE)[None], 1e6 * (-1.0) ** np.arange(SIDE)[None])
    assert flat.fitted(Kernel(np.array([5]), 1)).lengths[0] >= 5
    assert wild.fitted(Kernel(np.array([5]), 1)).lengths[0] <= 1
