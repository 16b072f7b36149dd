"""Many arms share their common terms, and an arm's own part starts at zero."""

import numpy as np

from privateer_core.algorithms.additive.cells import Cells, ShapeCells
from privateer_server.algorithms.additive.posterior import TermPosterior
from privateer_server.algorithms.additive.shared_terms import fit_shared_terms

ARMS = 40
CELLS = Cells((ShapeCells(0, 8), ShapeCells(1, 8)))
MASSES = np.append(1.0, np.full(16, 1 / 8))


def simulate_statistics(terms: np.ndarray, error: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """What observations of every term with such an error say, (arms, terms, terms) and (arms, terms)."""
    rng = np.random.default_rng(seed)
    information = np.tile(np.eye(CELLS.count) / error**2, (len(terms), 1, 1))
    return information, (terms + error * rng.standard_normal(terms.shape)) / error**2


def waves(rng: np.random.Generator, arms: int) -> np.ndarray:
    """Smooth terms of two features, whose mean is 0."""
    places = np.cos(np.pi * (np.arange(8) + 0.5) / 8)
    return np.concatenate([np.zeros((arms, 1)), *(rng.standard_normal((arms, 1)) * places for _ in range(2))], axis=1)


def test_equal_arms_are_shrunk_to_their_common_terms() -> None:
    """All arms have one shape, observed with errors as large: own parts are a fifth of those of separate arms."""
    terms = np.tile(0.1 * waves(np.random.default_rng(1), 1), (ARMS, 1))
    terms[:, 0] = 0.3
    information, scores = simulate_statistics(terms, 0.1, 2)
    shared = fit_shared_terms(information, scores, CELLS, MASSES, None)
    separate = TermPosterior.from_statistics(information, scores, CELLS, MASSES, None)
    assert shared.means[:, 1:].std(axis=0).mean() < separate.means[:, 1:].std(axis=0).mean() / 5
    assert np.abs(shared.means - terms).mean() < np.abs(separate.means - terms).mean() / 2


def test_different_arms_keep_their_own_terms_and_variance() -> None:
    """Squared errors by the covariances that are said have a mean of 1 at most: scales that are not known are wide."""
    rng = np.random.default_rng(3)
    terms = 0.08 * waves(rng, 1) + 0.08 * waves(rng, ARMS)
    terms[:, 0] = 0.3 + 0.05 * rng.standard_normal(ARMS)
    information, scores = simulate_statistics(terms, 0.05, 4)
    term_posterior = fit_shared_terms(information, scores, CELLS, MASSES, None)
    errors = (term_posterior.means - terms)[..., None]
    covariances = term_posterior.covariances
    off = np.linalg.solve(covariances, errors).transpose(0, 2, 1) @ errors / CELLS.count
    assert 0.3 < off.mean() < 1.2
    assert np.corrcoef(term_posterior.means[:, 1:].ravel(), terms[:, 1:].ravel())[0, 1] > 0.9


def test_the_prior_of_shared_terms_has_no_effects() -> None:
    no_evidence = np.zeros((ARMS, CELLS.count, CELLS.count)), np.zeros((ARMS, CELLS.count))
    term_posterior = fit_shared_terms(*no_evidence, CELLS, MASSES, 0.1)
    assert np.allclose(term_posterior.means[:, 0], term_posterior.means[0, 0])
    assert np.allclose(term_posterior.means[:, 1:], 0)
