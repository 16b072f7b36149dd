"""What linear learners make of what people tell of contexts, and of coordinates that do not matter."""

import numpy as np
import pytest

from privateer_core.algorithms.linear.design_matrix import DesignMatrix, prior_moments
from privateer_core.algorithms.linear.reports import moments
from privateer_core.spec.columns import FLAG, NUMBER, coded
from privateer_server.algorithms.linear.context_moments import Contexts, frame, people
from privateer_server.algorithms.linear.posterior import _apart, _under, posterior

ANSWERS = DesignMatrix((NUMBER, NUMBER, *[coded(2)] * 10))
SHARE = 0.1


def asked(seed: int, count: int) -> np.ndarray:
    """Rows of people: numbers near the low end of their range, and answers of which yes is rare, all independent."""
    rng = np.random.default_rng(seed)
    numbers = rng.uniform(-1, 0, (count, 2))
    answers = np.where(rng.random((count, 10)) < np.linspace(0.05, 0.4, 10), 1.0, -1.0)
    return np.concatenate([np.ones((count, 1)), numbers, answers], axis=1)


def test_what_contexts_tell_without_noise_is_the_truth() -> None:
    """50,000 people, no noise: every moment is within .02, which is 4.5 standard errors of the noisiest."""
    contexts, rows = Contexts(ANSWERS), asked(0, 50_000)
    sums = np.sqrt(SHARE) * moments(rows @ contexts.telling).sum(axis=0)
    known = contexts.features(*contexts.weighed(sums, len(rows), 0.0, SHARE))
    assert np.abs(contexts.moments(known) - rows.T @ rows / len(rows)).max() < 0.02
    assert known.doubt < 0.02


def test_noise_is_not_taken_for_covariances() -> None:
    """5,000 people with a symbol's noise in ten draws: moments are nearer the truth than if all were kept or assumed.

    Planted: everything that is told is believed, which is twice as far off on average.
    """
    contexts, rows = Contexts(ANSWERS), asked(1, 5000)
    truth, assumed, shrunk, kept = rows.T @ rows / len(rows), [], [], []
    told = np.sqrt(SHARE) * moments(rows @ contexts.telling).sum(axis=0)
    rng, noise = np.random.default_rng(2), 0.5 * len(rows)
    for _ in range(10):
        sums, precision = contexts.weighed(
            told + rng.normal(scale=np.sqrt(noise), size=len(told)), len(rows), noise, SHARE
        )
        shrunk.append(np.linalg.norm(contexts.moments(contexts.features(sums, precision)) - truth))
        kept.append(np.linalg.norm(contexts.moments(contexts.features(1e9 * sums / precision, 1e9 + 0 * sums)) - truth))
        assumed.append(np.linalg.norm(prior_moments(ANSWERS) - truth))
    assert max(shrunk) < 0.7 * assumed[0]
    assert np.mean(kept) > 2 * np.mean(shrunk)


def test_believed_moments_are_those_of_some_people() -> None:
    """Means inside their bounds and answers' squares 1, however wild the noise."""
    contexts, rng = Contexts(DesignMatrix((NUMBER, FLAG, coded(2), coded(5)))), np.random.default_rng(3)
    d = contexts.design.dimension
    for _ in range(20):
        told = 30 * rng.normal(size=(d, d))
        found = contexts.moments(contexts.features(told + told.T, np.ones((d, d))))
        assert found[3, 3] == pytest.approx(1.0)
        assert (np.abs(found[0, 1:4]) <= 1).all()
        assert (np.diag(found)[1:] >= found[0, 1:] ** 2).all()


def test_people_drawn_answer_as_often_as_is_known() -> None:
    """32,768 people; 5 standard errors. Planted: answers drawn as numbers, which are neither 1 nor -1."""
    truth = np.array([0.05, 0.5, 0.9])
    design, middle = DesignMatrix((coded(2),) * 3), 2 * truth - 1
    row = np.concatenate([np.ones(1), middle])
    found = np.outer(row, row)
    found[1:, 1:] += np.diag(1 - middle**2)
    drawn = people(design, found, np.random.default_rng(4))
    assert set(np.unique(drawn[:, 1:])) == {-1.0, 1.0}
    assert (np.abs((drawn[:, 1:] > 0).mean(axis=0) - truth) < 5 * np.sqrt(truth * (1 - truth) / len(drawn))).all()
    numbers = people(DesignMatrix((NUMBER,) * 3), found, np.random.default_rng(4))
    assert len(np.unique(numbers[:, 1:])) > 2


def test_coordinates_that_do_not_matter_are_shrunk_and_the_others_kept() -> None:
    """Two of 20 coordinates matter, in 20 draws: errors are below those of any one scale for all.

    Planted: the scale that makes the error smallest, which the truth alone tells.
    """
    rng, deviation = np.random.default_rng(5), 0.1
    truth = np.zeros((2, 21))
    truth[:, 1:3] = [[0.4, -0.5], [-0.4, 0.3]]
    information = np.tile(np.eye(21) / deviation**2, (2, 1, 1))
    own, single = [], []
    for _ in range(20):
        observed = truth + deviation * rng.normal(size=truth.shape)
        found = posterior(information, observed / deviation**2, 1.0, np.eye(21))
        shrunk = [observed * scale**2 / (scale**2 + deviation**2) for scale in (0.03, 0.06, 0.12, 0.25, 0.5)]
        own.append(np.square(found.means - truth)[:, 1:].sum())
        single.append(min(np.square(one - truth)[:, 1:].sum() for one in shrunk))
        assert (found.prior[1:3] > 0.2).all()
    assert np.sum(own) < 0.7 * np.sum(single)


def test_slopes_that_are_alike_have_one_scale() -> None:
    """Eight slopes alike, half of them reported of less, in 40 draws: errors are below those with a scale for each.

    Planted: a scale for each.
    """
    rng, deviations = np.random.default_rng(6), np.array([0.02] * 5 + [0.15] * 4)
    information = np.tile(np.diag(deviations**-2), (2, 1, 1))
    one, alike, apart = 0, 0.0, 0.0
    for _ in range(40):
        truth = 0.12 * rng.normal(size=(2, 9))
        scores = (truth + deviations * rng.normal(size=truth.shape)) / deviations**2
        found = posterior(information, scores, 1.0, np.eye(9))
        one += np.ptp(found.prior[1:]) < 1e-9
        own = _under(information, scores, _apart(information, scores, 1.0))[0]
        alike += np.square(found.means - truth).sum()
        apart += np.square(own - truth).sum()
    assert one > 25
    assert alike < 0.95 * apart


def test_before_anybody_tells_nothing_is_shut_out() -> None:
    """Were the prior one of the smallest scales then, some runs would never play an arm again."""
    found = posterior(np.zeros((2, 4, 4)), np.zeros((2, 4)), 1.0, np.eye(4))
    assert np.allclose(found.prior[1:], found.prior[1])
    assert found.prior[1] > 0.2
    assert found.prior[0] > 0.1


def test_the_prior_is_about_the_mean_context() -> None:
    """Slopes at rare answers must not make the reward of all people uncertain."""
    row = np.array([1.0, -0.9, 0.3])
    moments = np.outer(row, row) + np.diag([0.0, 0.19, 0.16])
    found = posterior(np.zeros((1, 3, 3)), np.zeros((1, 3)), 1.0, frame(moments))
    assert row @ found.covariances[0] @ row == pytest.approx(found.prior[0] ** 2)
    assert (
        row @ posterior(np.zeros((1, 3, 3)), np.zeros((1, 3)), 1.0, np.eye(3)).covariances[0] @ row
        > found.prior[0] ** 2
    )
