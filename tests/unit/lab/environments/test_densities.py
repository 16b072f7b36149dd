"""Densities: contexts have the distribution of their section.

Fixed seeds; each comparison had a probability of 1e-6 to fail a right implementation when its seed was picked.
"""

import numpy as np
import pytest

from privateer_lab.environments.synthetic import ShiftedDensity, UniformDensity, VariedDensity

PEOPLE = 200_000


def share_near_the_middle(contexts):
    return float((np.abs(contexts - 0.5).max(axis=1) < 0.25).mean())


@pytest.mark.parametrize("features", [1, 2, 5])
@pytest.mark.parametrize("gamma", [0.0, 0.2, 2.0, 5.5])
def test_shifted_people_are_as_far_from_the_middle_as_the_density_says(gamma, features):
    """Within r of the middle are (2 r)^(d + gamma). Planted: the authors' sampler has that of gamma d."""
    density = UniformDensity() if gamma == 0 else ShiftedDensity(gamma=gamma)
    contexts = density.sample(PEOPLE, features, np.random.default_rng(3))
    assert contexts.shape == (PEOPLE, features)
    assert 0 <= contexts.min() <= contexts.max() <= 1
    assert contexts.mean(axis=0) == pytest.approx(np.full(features, 0.5), abs=0.006)
    truth = 0.5 ** (features + gamma)
    error = 5 * (truth * (1 - truth) / PEOPLE) ** 0.5
    assert share_near_the_middle(contexts) == pytest.approx(truth, abs=error)
    authors_share = 0.5 ** (features * (gamma + 1))
    assert (gamma == 0 or features == 1) or abs(authors_share - truth) > error


def test_varied_spans_its_ratio():
    density = VariedDensity()
    cells = np.floor(4 * density.sample(PEOPLE, 2, np.random.default_rng(3))).astype(int)
    counts = np.bincount(4 * cells[:, 0] + cells[:, 1], minlength=16)
    assert counts.max() / counts.min() == pytest.approx(40.0, rel=0.2)  # 8 errors of the smallest count
    other = VariedDensity(seed=1).sample(PEOPLE, 2, np.random.default_rng(3))
    assert (np.floor(4 * other) != cells).any()
