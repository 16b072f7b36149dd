"""Linear learners: estimated second moments of contexts, and shrinkage of coordinates without effect."""

import numpy as np
import pytest

from privateer_core.algorithms.linear.design_matrix import DesignMatrix, prior_moments, second_moments
from privateer_core.spec.columns import FLAG, NUMBER, code_block
from privateer_server.algorithms.linear.context_moments import Contexts, build_frame, simulate_rows
from privateer_server.algorithms.linear.posterior import _posterior_moments, _separate_scale_variances, fit_posterior

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
    estimate = contexts.estimate_features(*contexts.weigh_sums(sums, len(rows), 0.0, SHARE))
    assert np.abs(contexts.build_row_moments(estimate) - rows.T @ rows / len(rows)).max() < 0.02
    assert estimate.doubt < 0.02


def test_noisy_second_moments_are_shrunk() -> None:
    """5,000 people with a symbol's noise in ten draws: moments are nearer the truth than if all were kept or assumed.

    Planted: everything that is told is believed, which is twice as far off on average.
    """
    contexts, rows = Contexts(ANSWERS), draw_contexts(1, 5000)
    truth, assumed, shrunk, unshrunk = rows.T @ rows / len(rows), [], [], []
    totals = np.sqrt(SHARE) * second_moments(rows @ contexts.moment_matrix).sum(axis=0)
    rng, noise = np.random.default_rng(2), 0.5 * len(rows)
    for _ in range(10):
        sums, precision = contexts.weigh_sums(
            totals + rng.normal(scale=np.sqrt(noise), size=len(totals)), len(rows), noise, SHARE
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
