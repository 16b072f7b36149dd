"""Covers of a box: points, refinement, names, and the cells between points."""

import hashlib
import itertools

import numpy as np
import pytest
from scipy.optimize import minimize

from privateer_core.algorithms.phased import PhasedSpec
from privateer_core.spec.box import Box
from tests.support.phased import phased_spec


def unit_box(dimension: int, degree: int = 2) -> Box:
    return Box(-np.ones(dimension), np.ones(dimension), degree)


@pytest.mark.parametrize("dimension", range(1, 7))
def test_covers_are_nested_and_the_finest_has_the_most_points_that_fit(dimension):
    box = unit_box(dimension)
    rows = [box.list_rows(level) for level in range(box.first_level, box.last_level + 1)]
    assert len(rows) >= 2
    for coarse, fine in itertools.pairwise(rows):
        assert set(coarse.tolist()) < set(fine.tolist())
    assert len(rows[-1]) == box.count_points(box.last_level) <= 20_000
    assert len(rows[0]) <= 1_000
    assert box.last_level == 7 or box.count_points(box.last_level + 1) > 20_000
    assert np.abs(box.locate(rows[0])).max() == 1.0


def test_a_refined_cover_has_the_points_of_the_next_within_a_step():
    box = unit_box(2)
    rows = box.list_rows(2)[[0, 7, 12]]
    fine = box.list_rows(3)
    gaps = np.abs(box.locate(fine)[:, None] - box.locate(rows)).max(axis=2).min(axis=1)
    assert box.refine(rows, 2).tolist() == fine[gaps <= 2.0**-2].tolist()
    assert box.refine(box.list_rows(2), 2).tolist() == fine.tolist()


def test_terms_are_the_polynomials_of_the_degree_with_length_one_at_most():
    points = np.random.default_rng(3).uniform(-1, 1, (200, 3))
    for degree, count in ((1, 4), (2, 10)):
        box = unit_box(3, degree)
        terms = box.compute_terms(points)
        assert terms.shape == (200, count) == (200, box.term_count)
        assert np.linalg.norm(terms, axis=1).max() <= 1
        assert np.linalg.norm(box.compute_terms(np.ones((1, 3)))) == pytest.approx(1.0)
        value = (1 + points[:, 0] - 2 * points[:, 2] + (points[:, 1] * points[:, 2]) * (degree - 1)) / np.sqrt(count)
        fitted = terms @ np.linalg.lstsq(terms, value, rcond=None)[0]
        assert fitted == pytest.approx(value)


@pytest.mark.parametrize("degree", [1, 2])
def test_the_best_point_is_not_better_than_the_nearest_by_more_than_the_bound(degree):
    """The bound is attained to within a half somewhere, so that a quarter of it would fail."""
    box, rng, worst = unit_box(2, degree), np.random.default_rng(5), 0.0

    def lose(point, theta):
        return -float((box.compute_terms(point[None]) @ theta)[0])

    for _ in range(200):
        theta = rng.normal(size=box.term_count)
        start = box.locate(box.list_rows(7))
        start = start[int(np.argmax(box.compute_terms(start) @ theta))]
        best = minimize(lose, start, args=(theta,), bounds=[(-1, 1)] * 2)
        step = 2.0 ** (1 - box.first_level)
        nearest = np.round(best.x / step)[None] * step
        loss = -best.fun - float((box.compute_terms(nearest) @ theta)[0])
        bound = box.bound_loss(np.abs(theta[box.quadratic_terms]), box.first_level)
        assert loss <= bound + 1e-12
        worst = max(worst, loss / bound if bound else 0.0)
    assert worst > 0.5 if degree == 2 else worst == 0.0


def test_points_are_named_by_their_coordinates():
    box = Box(np.array([0.0, -10.0]), np.array([1.0, 10.0]), 2)
    names = box.name_points()
    assert (names[0], names[1], names[-1]) == ("(0, -10)", "(0, -9.84375)", "(1, 10)")
    assert len(set(names)) == len(names) == 129**2
    assert names[5000] == "({}, {})".format(*(f"{x:.10g}" for x in box.list_points(np.array([5000]))[0]))
    assert phased_spec({"actions": {"low": [0.0, -10.0], "high": [1.0, 10.0]}}).options == names
    small = Box(np.array([0.0]), np.array([3e-4]), 1).name_points()
    assert (small[0], small[64], small[-1]) == ("(0)", "(0.00015)", "(0.0003)")


def test_the_actions_of_a_box_are_its_terms_at_the_finest_cover():
    spec = phased_spec({"actions": {"low": [0.0, -10.0, 1.0], "high": [1.0, 10.0, 5.0]}})
    assert isinstance(spec, PhasedSpec)
    assert spec.actions.shape == spec.actions.matrix.shape == (17**3, 10)
    assert spec.comparison_failure_probability == 1 / (17**3 * spec.experiment.horizon)
    assert spec.actions.box is not None
    middle = int(np.flatnonzero((spec.actions.matrix[:, 1:4] == 0).all(axis=1))[0])
    assert spec.actions.box.list_points(np.array([middle])).tolist() == [[0.5, 0.0, 3.0]]


@pytest.mark.parametrize(
    ("low", "high", "row", "name"),
    [
        (1 / 256, 128 + 1 / 256, 0, "(0.0039063)"),
        (-1 / 256, 128 - 1 / 256, 0, "(-0.0039063)"),
        (-0.27685546875, -0.26123046875, 2, "(-0.27661132813)"),
    ],
)
def test_a_tie_of_decimals_is_rounded_away_from_zero(low, high, row, name):
    """The names are in sdk/js/test/offline.test.js, too."""
    assert Box(np.array([low]), np.array([high]), 1).name_points()[row] == name


def test_names_are_those_of_the_client_in_javascript():
    """The digest is in sdk/js/test/offline.test.js, too."""
    options = PhasedSpec.instances()["box"].options
    digest = hashlib.sha256(",".join(options).encode()).hexdigest()
    assert digest == "b876cce275720545328498d2d1457935cc14fe0a37dd9227c816d640649cf8f3"
