"""Many arms share what they have in common, and an arm's own part starts from nothing."""

import numpy as np

from privateer_core.algorithms.additive.cells import Cells, ShapeCells
from privateer_server.algorithms.additive.posterior import TermPosterior
from privateer_server.algorithms.additive.shared_terms import shared_terms

ARMS = 40
CELLS = Cells((ShapeCells(0, 8), ShapeCells(1, 8)))
MASSES = np.append(1.0, np.full(16, 1 / 8))


def told(terms: np.ndarray, error: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """What observations of every term with such an error say, (arms, terms, terms) and (arms, terms)."""
    rng = np.random.default_rng(seed)
    information = np.tile(np.eye(CELLS.count) / error**2, (len(terms), 1, 1))
    return information, (terms + error * rng.standard_normal(terms.shape)) / error**2


def waves(rng: np.random.Generator, arms: int) -> np.ndarray:
    """Smooth terms of two features, whose mean is 0."""
    places = np.cos(np.pi * (np.arange(8) + 0.5) / 8)
    return np.concatenate([np.zeros((arms, 1)), *(rng.standard_normal((arms, 1)) * places for _ in range(2))], axis=1)


def test_arms_that_are_alike_are_told_to_be_alike() -> None:
    """All have one shape, observed with errors as large as it: own parts are a fifth of what each arm alone has."""
    terms = np.tile(0.1 * waves(np.random.default_rng(1), 1), (ARMS, 1))
    terms[:, 0] = 0.3
    information, scores = told(terms, 0.1, 2)
    shared = shared_terms(information, scores, CELLS, MASSES, None)
    alone = TermPosterior.of(information, scores, CELLS, MASSES, None)
    assert shared.means[:, 1:].std(axis=0).mean() < alone.means[:, 1:].std(axis=0).mean() / 5
    assert np.abs(shared.means - terms).mean() < np.abs(alone.means - terms).mean() / 2


def test_arms_that_are_not_alike_keep_what_is_their_own_and_its_doubt() -> None:
    """Squared errors by the covariances that are said have a mean of 1 at most: scales that are not known are wide."""
    rng = np.random.default_rng(3)
    terms = 0.08 * waves(rng, 1) + 0.08 * waves(rng, ARMS)
    terms[:, 0] = 0.3 + 0.05 * rng.standard_normal(ARMS)
    information, scores = told(terms, 0.05, 4)
    known = shared_terms(information, scores, CELLS, MASSES, None)
    errors = (known.means - terms)[..., None]
    covariances = known.covariances
    off = np.linalg.solve(covariances, errors).transpose(0, 2, 1) @ errors / CELLS.count
    assert 0.3 < off.mean() < 1.2
    assert np.corrcoef(known.means[:, 1:].ravel(), terms[:, 1:].ravel())[0, 1] > 0.9


def test_nothing_is_known_before_reports() -> None:
    nothing = np.zeros((ARMS, CELLS.count, CELLS.count)), np.zeros((ARMS, CELLS.count))
    known = shared_terms(*nothing, CELLS, MASSES, 0.1)
    assert np.allclose(known.means[:, 0], known.means[0, 0])
    assert np.allclose(known.means[:, 1:], 0)
