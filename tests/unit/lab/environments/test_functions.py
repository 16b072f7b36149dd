"""Mean rewards by formula are those of the papers, or of their function number."""

import numpy as np
import pytest

from privateer_core.policies.policy import Arms
from privateer_lab.environments.functions import SHAPES, PeaksSection, QuadrantsSection, SmoothSection
from privateer_lab.environments.synthetic import Synthetic


def smooth(function, shape, arms, contexts):
    return SmoothSection(function=function, shape=shape).means(contexts, arms)


@pytest.mark.parametrize(("function", "arms", "regret"), [(PeaksSection(), 3, 0.41388), (QuadrantsSection(), 2, 1 / 6)])
def test_regret_of_the_uniform_policy(function, arms, regret):
    """Midpoints of a 1000 x 1000 grid: the error of the integral is far below the tolerance."""
    side = (np.arange(1000) + 0.5) / 1000
    means = function.means(np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2), arms)
    assert (means.max(axis=1) - means.mean(axis=1)).mean() == pytest.approx(regret, abs=2e-5)
    assert means.min() >= 0
    assert means.max() <= 1


def test_rewards_have_their_means():
    """400,000 coins; a false alarm at 5 standard deviations, below 1e-6."""
    rng = np.random.default_rng(0)
    people = Synthetic(PeaksSection(), 3, 2)
    contexts = people.contexts(0, 400_000, rng)
    arms = rng.integers(0, 3, 400_000)
    rewards = people.rewards(contexts, Arms(arms), rng)
    expected = people.means(contexts)[np.arange(400_000), arms]
    assert abs((rewards - expected).mean()) < 5 * 0.5 / 400_000**0.5


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("features", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("arms", [2, 16])
def test_smooth_functions_have_every_size(shape, features, arms):
    contexts = np.random.default_rng(0).random((500, features))
    means = smooth(1, shape, arms, contexts)
    assert means.shape == (500, arms)
    assert means.min() > 0
    assert means.max() < 1
    assert np.ptp(means, axis=0).min() > 0.01


@pytest.mark.parametrize("shape", SHAPES)
def test_most_functions_have_something_to_learn(shape):
    """Of 20 functions of three arms, 15 at least have a best arm that depends on the context."""
    contexts = np.random.default_rng(0).random((500, 2))
    best = [smooth(number, shape, 3, contexts).argmax(axis=1) for number in range(20)]
    assert sum(len(np.unique(arms)) > 1 for arms in best) >= 15


def test_a_number_names_one_function():
    """The function of a number is pinned, so that another version of numpy cannot change it unnoticed."""
    contexts = np.array([[0.1, 0.9], [0.5, 0.5]])
    means = smooth(7, "gentle", 3, contexts)
    assert means == pytest.approx(np.array(PINNED), abs=1e-12)
    assert (means != smooth(8, "gentle", 3, contexts)).all()
    assert (means != smooth(7, "rough", 3, contexts)).all()


PINNED = [
    [0.3942735446345371, 0.39112500054189964, 0.15225847829853792],
    [0.12001474740181815, 0.5678299304008827, 0.6150155742193016],
]


def logits(shape, features):
    """Of 400 functions at two places, one length apart along each feature, for the first two arms; (400, 2, 2)."""
    step = SHAPES[shape].length
    contexts = np.stack([np.full(features, 0.3), np.full(features, 0.3 + step)])
    means = np.array([smooth(number, shape, 2, contexts) for number in range(400)])
    return np.log(means / (1 - means)) / 1.5


@pytest.mark.parametrize("features", [1, 2, 5])
@pytest.mark.parametrize("shape", ["gentle", "rough", "close"])
def test_smooth_functions_have_the_moments_they_claim(shape, features):
    """Variance 1; correlation exp(-1/2) one length apart in each of d features, and ``shared`` between arms.

    400 functions: the error of a correlation is about 1/20, of a variance 1/14; a false alarm at 5, below 1e-6.
    """
    values = logits(shape, features)
    assert values.var() == pytest.approx(1.0, abs=5 / 14)
    assert np.corrcoef(values[:, 0, 0], values[:, 1, 0])[0, 1] == pytest.approx(np.exp(-0.5), abs=5 / 20)
    assert np.corrcoef(values[:, 0, 0], values[:, 0, 1])[0, 1] == pytest.approx(SHAPES[shape].shared, abs=5 / 20)


def test_a_ridge_has_one_direction():
    contexts = np.random.default_rng(1).random((50, 3))
    step = 1e-5 * np.eye(3)

    def slopes(shape):
        two = [(smooth(3, shape, 2, contexts + shift) - smooth(3, shape, 2, contexts - shift))[:, 0] for shift in step]
        return np.linalg.svd(np.stack(two, axis=1), compute_uv=False)

    assert slopes("ridge")[1] < 1e-4 * slopes("ridge")[0]
    assert slopes("rough")[1] > 0.1 * slopes("ridge")[0]
