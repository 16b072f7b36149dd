"""Specs of experiments on convex sets: what is refused names the field, the constraint and the remedy."""

import numpy as np
import pytest

from privateer_core.algorithms import parse_spec
from privateer_core.algorithms.convex.spec import ConvexSpec, Domain
from privateer_core.errors import SpecError

ONE = {"feedback": "one-point", "strong_convexity": 0.0}
WINDOW = {"conversion_window_seconds": 60.0}
PUBLISHED = {"algorithm": {"name": "paper-2-convex"}}
HIDDEN = {"model": "shuffle", "epsilon": 1.0, "delta": 1e-6, "arm_visibility": "hidden"}


def tables(**changes):
    """Return the tables of a spec with the given changes."""
    data = ConvexSpec.instances()["local"].model_dump(mode="json", exclude_none=True)
    for section, keys in changes.items():
        data[section] |= keys
    return data


@pytest.mark.parametrize(
    ("changes", "field", "says"),
    [
        ({"domain": {"shape": "cube"}}, "domain.shape", "'ball' or 'box'"),
        ({"domain": {"dimension": 65}}, "domain.dimension", "64"),
        ({"domain": {"radius": float("nan")}}, "domain.radius", ""),
        ({"algorithm": {"feedback": "three-point"}}, "algorithm.feedback", "'one-point' or 'two-point'"),
        ({"algorithm": {"estimator": "sphere"}}, "algorithm.estimator", "is no longer a key"),
        ({"algorithm": {"lipschitz": None, **ONE}}, "algorithm.lipschitz", "strong_convexity"),
        ({"algorithm": {"smoothness": 1.0}}, "algorithm.smoothness", "does nothing"),
        ({"algorithm": {"lipschitz": None}}, "algorithm.lipschitz", "missing"),
        ({"algorithm": {"lipschitz": float("inf")}}, "algorithm.lipschitz", ""),
        ({"algorithm": {"standard_deviation": 1.1}}, "algorithm.standard_deviation", "at most 1, the range of rewards"),
        ({"algorithm": {"standard_deviation": 0.1, **ONE}}, "algorithm.standard_deviation", "does nothing"),
        (
            {"algorithm": ONE, "experiment": {"min_round_fraction": 0.1}},
            "experiment.min_round_fraction",
            "strong_convexity",
        ),
        ({"experiment": {"round_size": 5000}}, "experiment.round_size", "horizon"),
        (
            {"experiment": WINDOW, "privacy": {"delta": 1e-5}, **PUBLISHED},
            "experiment.conversion_window_seconds",
            "a direction of its own",
        ),
        ({"experiment": WINDOW, "privacy": HIDDEN}, "experiment.conversion_window_seconds", "'visible'"),
        (PUBLISHED, "privacy.delta", "at least 1e-15"),
        (
            {"privacy": {"model": "shuffle", "epsilon": 1.0, "delta": 1e-6, "min_batch": 2000}},
            "privacy.min_batch",
            "round_size",
        ),
    ],
    ids=str,
)
def test_a_refusal_names_the_field(changes, field, says):
    parse_spec(tables())
    with pytest.raises(SpecError) as refused:
        parse_spec(tables(**changes))
    assert refused.value.field == field
    assert says in str(refused.value)
    assert refused.value.remedy


@pytest.mark.parametrize("name", ["local", "shuffle", "central", "none", "local-ellipsoid", "local-smooth"])
def test_outcomes_may_come_late(name):
    data = ConvexSpec.instances()[name].model_dump(mode="json", exclude_none=True)
    data["experiment"] |= WINDOW
    assert parse_spec(data).experiment.conversion_window_seconds == 60.0


def test_long_rounds_of_losses_without_curvature_are_a_concern():
    assert parse_spec(tables()).concerns() == []
    assert len(parse_spec(tables(algorithm=ONE)).concerns()) == 1


@pytest.mark.parametrize("shape", ["ball", "box"])
def test_a_projection_is_the_nearest_point_of_the_set(shape):
    domain, rng = Domain(shape=shape, dimension=3, radius=2.0), np.random.default_rng(1)
    inside = np.array([domain.project(point) for point in rng.normal(size=(200, 3)) * 2])
    assert domain.contains(inside)
    for point in rng.normal(size=(20, 3)) * 4:
        nearest = domain.project(point)
        assert np.linalg.norm(point - nearest) <= np.linalg.norm(point - inside, axis=1).min() + 1e-12
        assert domain.contains(domain.project(point, 0.5) + 0.499 * np.eye(3))
    assert not domain.contains(np.array([[2.1, 0.0, 0.0]]))
    assert not domain.contains(np.array([[np.nan, 0.0, 0.0]]))
