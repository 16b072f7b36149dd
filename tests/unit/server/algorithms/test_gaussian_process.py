"""What sums say of values: against normal regression by hand, calibration on drawn processes, and fitting."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from privateer_server.algorithms.partition.bin_tree import BinTree, Space
from privateer_server.algorithms.partition.gaussian_process import BinEvidence, BinProcess
from privateer_server.algorithms.partition.kernel import LENGTHS, Kernel, PriorScale
from privateer_server.algorithms.partition.observations import Observations, observe_bins
from tests.support.statistics import FALSE_ALARM

SIDE = 8


def grid(dimension=2):
    axes = np.meshgrid(*[np.arange(SIDE) / SIDE] * dimension, indexing="ij")
    lower = np.stack(axes, axis=-1).reshape(-1, dimension)
    return lower, lower + 1 / SIDE


def draw_evidence(smoothness, rng, arms, precision):
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
    design = np.zeros((5, len(lower)))
    design[np.arange(4), [0, 3, 9, 40]] = 1
    design[4, :16] = 1 / 16
    precision, observed = rng.uniform(1, 30, 5), rng.normal(0, 0.5, 5)
    evidence = Observations(
        lower, upper, (design.T @ (precision[:, None] * design))[None], (design.T @ (precision * observed))[None]
    )
    prior = smoothness.covariance(lower, upper)
    gain = prior @ design.T @ np.linalg.inv(design @ prior @ design.T + np.diag(1 / precision))
    means, variances = evidence.posterior(smoothness)
    assert means[:, 0] == pytest.approx(gain @ observed, abs=1e-6)
    assert variances[:, 0] == pytest.approx(np.diag(prior - gain @ design @ prior), abs=1e-6)
    law = stats.multivariate_normal(cov=design @ prior @ design.T + np.diag(1 / precision))
    other = Kernel(np.array([2, 9]), 1)
    against = stats.multivariate_normal(cov=design @ other.covariance(lower, upper) @ design.T + np.diag(1 / precision))
    likelihoods = [evidence.log_density(kernel) for kernel in (smoothness, other)]
    beforehand = [
        -((np.log(LENGTHS[kernel.lengths] / 0.5) ** 2).sum() + (np.log(spread / 0.5) / 0.5) ** 2) / 2
        for kernel, spread in ((smoothness, 0.75), (other, 0.5))
    ]
    expected = law.logpdf(observed) - against.logpdf(observed) + beforehand[0] - beforehand[1]
    assert likelihoods[0] - likelihoods[1] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("wrong", [1.0, 8.0])
def test_standardized_errors_of_drawn_processes_have_variance_1(wrong):
    """Compare errors of one bin in 40 processes of 3 arms by chi-square; planted: precision 8 times what it is."""
    smoothness, rng = Kernel(np.array([3, 7]), 1), np.random.default_rng(2)
    scores = []
    for _ in range(40):
        values, evidence = draw_evidence(smoothness, rng, 3, 5.0)
        claimed = Observations(evidence.lower, evidence.upper, wrong * evidence.information, wrong * evidence.weighted)
        means, variances = claimed.posterior(smoothness)
        scores.append(((means - values.T) / np.sqrt(variances))[20])
    total = float((np.array(scores) ** 2).sum())
    inside = stats.chi2.ppf(FALSE_ALARM, 120) < total < stats.chi2.isf(FALSE_ALARM, 120)
    assert inside == (wrong == 1.0)


def test_the_fitted_kernel_finds_the_feature_that_matters():
    truth = Kernel(np.array([2, len(LENGTHS) - 1]), 2)
    start = Kernel(np.array([5, 5]), 1)
    for seed in range(5):
        _, evidence = draw_evidence(truth, np.random.default_rng(seed), 3, 50.0)
        fitted = evidence.fit_kernel(start)
        assert LENGTHS[fitted.lengths[0]] < 0.4
        assert LENGTHS[fitted.lengths[1]] >= 1.5
        assert evidence.log_density(fitted) >= evidence.log_density(start)


def test_fitting_stays_on_the_grids():
    lower, upper = grid(1)
    flat = Observations(lower, upper, 1e6 * np.eye(SIDE)[None], np.full((1, SIDE), 3e5))
    wild = Observations(lower, upper, 1e6 * np.eye(SIDE)[None], 1e6 * (-1.0) ** np.arange(SIDE)[None])
    assert flat.fit_kernel(Kernel(np.array([5]), 1)).lengths[0] >= 5
    assert wild.fit_kernel(Kernel(np.array([5]), 1)).lengths[0] <= 1


def halves(past, people):
    """Return a process of one feature with evidence on the average over both halves alone."""
    tree, split = BinTree.root().with_level(0).split(np.array([True]))
    evidence = BinEvidence(np.full((1, 2), past), np.full((1, 2), past / 2), *[np.zeros((0, 2))] * 2).split(split)
    kernel, space = Kernel(np.array([5]), 1), Space.numbers(1)
    return BinProcess(tree, evidence, np.array(people), kernel, space, np.arange(1), 1)


def test_a_bin_that_was_split_is_an_average_over_its_halves_by_their_people():
    process = halves(1e6, [0.8, 0.2])
    means, variances = process.posterior()
    assert np.array([0.8, 0.2]) @ means == pytest.approx([0.5, 0.5], abs=1e-4)
    assert variances[0, 0] < variances[1, 0]
    (bins, observations) = process.correlated_groups[0]
    assert bins == slice(0, 2)
    assert observations.information[0] == pytest.approx(1e6 * np.outer([0.8, 0.2], [0.8, 0.2]))


def test_means_of_parts_are_those_of_their_bins_on_average():
    process = halves(40.0, [0.5, 0.5])
    quarters, split = process.tree.with_level(0).split(np.ones(2, np.bool_))
    means = process.means(split.copies, quarters)
    assert means.reshape(2, 2, 2).mean(axis=1) == pytest.approx(process.posterior()[0], abs=1e-3)
    assert process.half_difference_variances(quarters).max() < process.half_difference_variances(process.tree).min()


def test_boxes_outside_the_bins_have_a_posterior():
    process = halves(0.0, [0.5, 0.5])
    box = observe_bins(np.array([[0.0]]), np.array([[1.0]]), np.full((1, 2), 1e6), np.full((1, 2), 2e5))
    bin_process = BinProcess(
        process.tree, process.evidence, process.people, process.kernel, process.space, process.columns, 1, box
    )
    assert bin_process.posterior_of_other_boxes()[0] == pytest.approx(np.full((1, 2), 0.2), abs=1e-4)
    assert bin_process.posterior()[0].mean(axis=0) == pytest.approx([0.2, 0.2], abs=1e-3)
    near, far = (
        BinEvidence(np.full((2, 2), 9.0), np.full((2, 2), moment), *[np.zeros((1, 2))] * 2) for moment in (2, 9)
    )
    assert bin_process.predictive_log_density(near) - process.predictive_log_density(
        near
    ) > bin_process.predictive_log_density(far) - process.predictive_log_density(far)


def test_values_are_normal_around_their_level_with_the_scale_of_the_prior():
    """Against regression by hand; differences, and what values vary within bins, are on the same scale."""
    whole = halves(0.0, [0.5, 0.5])
    posterior = np.array([[900.0, 0.0], [400.0, 0.0]]), np.array([[-855.0, 0.0], [-392.0, 0.0]])
    evidence = BinEvidence(*posterior, *[np.zeros((1, 2))] * 2)
    prior = PriorScale(-0.96, 0.9)
    plain, scaled = replace(whole, evidence=evidence), replace(whole, evidence=evidence, prior=prior)
    covariance = prior.scale**2 * whole.kernel.covariance(*whole.box)
    posterior = np.linalg.inv(np.linalg.inv(covariance) + np.diag(evidence.precision[:, 0]))
    means, variances = scaled.posterior()
    expected = posterior @ (evidence.moment[:, 0] + np.linalg.solve(covariance, np.full(2, prior.level)))
    assert means[:, 0] == pytest.approx(expected)
    assert variances[:, 0] == pytest.approx(np.diag(posterior))
    assert means[:, 1] == pytest.approx([prior.level] * 2)
    assert scaled.means(np.arange(2), scaled.tree) == pytest.approx(means, abs=1e-5)
    expected = prior.scale**2 * plain.half_difference_variances(plain.tree)
    assert scaled.half_difference_variances(scaled.tree) == pytest.approx(expected)
    assert scaled.variance == pytest.approx(prior.scale**2 * plain.variance)
    assert means[:, 0] != pytest.approx(plain.posterior()[0][:, 0], abs=1e-4)


def fit_prior_scale(precision, level, cells=1, spread=0.5):
    """The scale after cells of such a precision each, all of which found the same."""
    return PriorScale.from_observations(np.full(cells, float(precision)), np.full(cells, level * precision), spread)


@pytest.mark.parametrize("cells", [1, 100])
@pytest.mark.parametrize(("precision", "level"), [(0.5, -1.0), (1e4, -0.99), (1e9, -1.0), (30.0, 0.1)])
def test_the_prior_scale_has_a_lower_bound(precision, level, cells):
    prior = fit_prior_scale(precision, 1.2 * level, cells)
    assert abs(prior.level) <= 1
    assert prior.sure <= abs(prior.level)
    assert prior.scale > 0
    values = prior.clip_values(np.array([-1.0, 0.0, 1.0]))
    assert (np.abs(prior.shrink_to_level(values)) < 1).all()


def test_a_level_within_the_noise_is_uncertain():
    """Planted: a level of one standard deviation from 0, and the same of a hundred."""
    noisy, clear = fit_prior_scale(1.0, 0.1, cells=100), fit_prior_scale(1e4, 0.1, cells=100_000)
    assert noisy.scale == pytest.approx(1.0)
    assert clear.scale == pytest.approx(1 - 0.1**2, rel=1e-3)


def test_the_expected_level_does_not_follow_the_most_played_cells():
    """Planted: weights by precision alone, by which values would be expected where the best arms are."""
    precision = np.array([1e5, 1e2] * 50)
    means = np.array([0.9, -0.5] * 50)
    assert PriorScale.from_observations(precision, precision * means, 0.5).level == pytest.approx(0.2, abs=0.02)
    assert precision @ means / precision.sum() > 0.89
    rare = PriorScale.from_observations(precision, precision * -0.99, 0.5)
    assert rare.level == pytest.approx(-0.99, abs=1e-3)
    assert rare.scale < 0.05
