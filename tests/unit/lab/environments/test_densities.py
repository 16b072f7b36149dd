"""Densities: what is drawn has the masses that are stated, and points and weights integrate over boxes.

Fixed seeds; each comparison had a probability of 1e-6 to fail a right implementation when its seed was picked.
"""

import itertools

import mpmath
import numpy as np
import pytest

from privateer_lab.environments.density import AtomsDensity, ShiftedDensity, UniformDensity, VariedDensity
from tests.support.statistics import fits

DENSITIES = {
    "uniform": UniformDensity(),
    "shifted-0.2": ShiftedDensity(gamma=0.2),
    "shifted-2": ShiftedDensity(gamma=2.0),
    "shifted-5.5": ShiftedDensity(gamma=5.5),
    "varied": VariedDensity(seed=1),
    "atoms": AtomsDensity(share=0.4, seed=2),
}
CASES = list(itertools.product(DENSITIES, [1, 2, 3, 5]))


def grid(features, side):
    """Corners of side^d boxes."""
    low = np.stack(np.meshgrid(*[np.arange(side) / side] * features, indexing="ij"), axis=-1).reshape(-1, features)
    return low, low + 1 / side


def counts(contexts, side):
    cells = np.minimum((contexts * side).astype(int), side - 1)
    return np.bincount(np.ravel_multi_index(tuple(cells.T), [side] * contexts.shape[1]), minlength=side ** len(cells.T))


def uneven(features):
    """Boxes of a partition that no cell of a grid lines up with."""
    cuts = [[0.0, 0.11, 0.5, 0.83, 1.0], [0.0, 0.3, 0.61, 1.0], [0.0, 0.47, 1.0], [0.0, 0.52, 1.0], [0.0, 0.9, 1.0]]
    parts = [list(itertools.pairwise(cut)) for cut in cuts[:features]]
    corners = np.array(list(itertools.product(*parts)))
    return corners[..., 0], corners[..., 1]


@pytest.mark.parametrize(("name", "features"), CASES)
def test_people_come_as_often_as_masses_say(name, features):
    density = DENSITIES[name]
    side = {1: 64, 2: 16, 3: 6, 5: 3}[features]
    contexts = density.sample(200_000, features, np.random.default_rng(3))
    assert contexts.shape == (200_000, features)
    assert contexts.min() >= 0
    assert contexts.max() <= 1
    assert fits(counts(contexts, side), 200_000 * density.masses(*grid(features, side)))


def test_the_authors_sampler_is_caught():
    """Planted: the distance to the power 1/(d (gamma + 1)), which at two features is the density of twice the gamma."""
    rng = np.random.default_rng(3)
    gamma = 0.2
    x = rng.random((200_000, 2)) - 0.5
    distance = rng.random(200_000) ** (1 / (2 * (gamma + 1))) / 2
    theirs = 0.5 + x * (distance / np.abs(x).max(axis=1))[:, None]
    low, high = grid(2, 16)
    assert not fits(counts(theirs, 16), 200_000 * ShiftedDensity(gamma=gamma).masses(low, high))
    assert fits(counts(theirs, 16), 200_000 * ShiftedDensity(gamma=2 * gamma).masses(low, high))


@pytest.mark.parametrize(("name", "features"), CASES)
def test_masses_add_up(name, features):
    density = DENSITIES[name]
    for boxes in (grid(features, 4), uneven(features)):
        assert density.masses(*boxes).sum() == pytest.approx(1.0, abs=1e-12)
        assert density.masses(*boxes).min() > 0
    whole = np.zeros((1, features)), np.ones((1, features))
    assert density.masses(*whole) == pytest.approx(np.ones(1), abs=1e-12)


@pytest.mark.parametrize(("name", "features"), CASES)
def test_points_integrate_over_a_box(name, features):
    """Against the people among 200,000 who are in the box: 5 standard errors, below 1e-6."""
    density = DENSITIES[name]
    people = density.sample(200_000, features, np.random.default_rng(4))
    for low, high in ((np.zeros(features), np.ones(features)), (np.full(features, 0.25), np.full(features, 0.75))):
        points, weights = density.quadrature(low, high)
        inside = people[((people >= low) & (people < high)).all(axis=1)]
        values = (inside**2).sum(axis=1)
        average = np.average((points**2).sum(axis=1), weights=weights)
        assert abs(average - values.mean()) < 5 * values.std() / len(inside) ** 0.5


@pytest.mark.parametrize("gamma", [0.2, 1.0, 2.5, 20.0, 100.0])
def test_shifted_masses_where_one_feature_is_farthest(gamma):
    """There the density depends on the first feature alone, and its integral is elementary; in 40 digits."""
    for low, high in (
        ([0.75], [0.875]),
        ([0.875, 0.25], [1.0, 0.3]),
        ([0.0, 0.5, 0.4], [0.01, 0.75, 0.6]),
        ([0.75, 0.5, 0.5, 0.25, 0.375], [1.0, 0.75, 0.625, 0.5, 0.5]),
    ):
        features = len(low)
        mass = ShiftedDensity(gamma=gamma).masses(np.array([low]), np.array([high]))[0]
        with mpmath.workdps(40):
            near, far = sorted(abs(mpmath.mpf(x) - 0.5) for x in (low[0], high[0]))
            scale = mpmath.mpf(2) ** gamma * (features + gamma) / features
            others = mpmath.fprod(mpmath.mpf(b) - mpmath.mpf(a) for a, b in zip(low[1:], high[1:], strict=True))
            truth = scale * others * (far ** (gamma + 1) - near ** (gamma + 1)) / (gamma + 1)
        assert mass == pytest.approx(float(truth), rel=1e-11)


@pytest.mark.parametrize("features", [1, 2, 5])
def test_shifted_masses_of_the_smallest_bins(features):
    """A bin of depth 40 near a corner and at the middle: as its density times its volume, and never negative."""
    width = 2.0 ** -(40 // features)
    gamma = 1.7
    density = ShiftedDensity(gamma=gamma)
    corner = np.full((1, features), 1 - width)
    scale = 2**gamma * (features + gamma) / features
    expected = scale * (0.5 - width / 2) ** gamma * width**features
    assert density.masses(corner, np.ones((1, features)))[0] == pytest.approx(expected, rel=4 * width + 1e-9)
    middle = np.full((1, features), 0.5)
    orthant = (2 * width) ** (features + gamma) / 2**features
    assert density.masses(middle, middle + width)[0] == pytest.approx(orthant, rel=1e-9)


@pytest.mark.parametrize(("gamma", "features"), [(0.2, 2), (2.0, 3), (5.5, 4), (5.5, 5)])
def test_points_of_the_whole_cube_are_fine_enough(gamma, features):
    """Squares under the shifted density: the distance r has E r^2 = (d+g)/(d+g+2)/4, the rest of a face is uniform."""
    points, weights = ShiftedDensity(gamma=gamma).quadrature(np.zeros(features), np.ones(features))
    power = features + gamma
    truth = power / (power + 2) / 4 * (1 + (features - 1) / 3)
    assert np.average(((points - 0.5) ** 2).sum(axis=1), weights=weights) == pytest.approx(truth, abs=2e-4)


def test_varied_spans_its_ratio():
    density = VariedDensity()
    masses = density.masses(*grid(2, 4))
    assert masses.max() / masses.min() == pytest.approx(40.0)
    assert (VariedDensity(seed=1).masses(*grid(2, 4)) != masses).any()


def test_an_atom_on_an_edge_is_in_one_bin(monkeypatch):
    """As a policy places it: with the upper half, and with the last bin where the cube ends."""
    monkeypatch.setattr(AtomsDensity, "places", lambda self, features: np.array([[0.5], [1.0]]))
    density = AtomsDensity(share=1.0, points=2)
    masses = density.masses(np.array([[0.0], [0.5]]), np.array([[0.5], [1.0]]))
    assert masses.tolist() == [0.0, 1.0]
