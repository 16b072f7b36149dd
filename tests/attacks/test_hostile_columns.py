"""Specs and policies with more levels, columns and halvings than anybody needs: refused, or followed at little cost."""

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privateer_client.inputs import context_vector
from privateer_core.algorithms.partition import DEPTH_MAX, PartitionPolicy
from privateer_core.errors import InputError, Malformed, SpecError
from privateer_core.spec.context import COLUMNS_MAX, FEATURES_MAX
from privateer_server.rounds.loop import Schedule
from tests.support.specs import make_spec

WIDEST = {f"x{j}": {"low": 0, "high": 1, "missing": True} for j in range(FEATURES_MAX)}
"""There may be so many columns and no more."""
TOO_MUCH: dict[str, Any] = {
    "levels without end": {"x": {"levels": list(range(100_000))}},
    "levels as long as books": {"x": {"levels": ["a" * 100_000, "b"]}},
    "cut points without end": {"x": {"quantiles": list(range(100_000))}},
    "columns without end": {f"x{j}": {"levels": list(range(256))} for j in range(FEATURES_MAX)},
    "features without end": {f"x{j}": {"boolean": True} for j in range(10_000)},
    "names as long as books": {"x" * 100_000: {"boolean": True}},
    "cut points too close": {"x": {"quantiles": [0, 5e-324, 1]}},
    "cut points too far": {"x": {"quantiles": [-1.7e308, 0, 1.7e308]}},
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_a_spec_that_asks_for_too_much_is_refused_at_once(name: str) -> None:
    began = time.process_time()
    with pytest.raises(SpecError, match=r"context\.features") as refused:
        make_spec({"context.features": TOO_MUCH[name]})
    assert time.process_time() - began < 2
    assert refused.value.remedy


def widest_policy(axes: np.ndarray, depth: int) -> tuple[Any, PartitionPolicy]:
    """A policy that halves as often as it may, one half of each bin again."""
    spec = make_spec({"context.features": WIDEST})
    policy = Schedule(spec).open(0).policy
    assert isinstance(policy, PartitionPolicy)
    depths = np.append(np.arange(1, depth + 1), depth)
    paths = np.append((np.int64(1) << np.arange(1, depth + 1)) - 2, (1 << depth) - 1)
    active = np.zeros((depth + 1, 3), bool)
    active[:, 0] = True
    terms = replace(policy.terms, batch=0)
    return spec, replace(
        policy, axes=axes, depths=depths, paths=paths, active=active, bins=np.zeros(0, np.int64), terms=terms
    )


@pytest.mark.parametrize("column", [0, 1, COLUMNS_MAX - 1])
def test_one_column_halved_to_the_end_costs_a_device_nothing(column: int) -> None:
    """Also a flag, which has two values: the device is somewhere, and takes no time over it."""
    spec, policy = widest_policy(np.full(DEPTH_MAX, column), DEPTH_MAX)
    contexts = context_vector({name: None if int(name[1:]) % 2 else 1 for name in WIDEST}, spec.features)
    began = time.process_time()
    for _ in range(100):
        bins = policy.locate(contexts)
    assert time.process_time() - began < 2
    assert 0 <= bins[0] <= DEPTH_MAX


@given(st.integers(0, 2**32), st.integers(1, DEPTH_MAX))
def test_every_encoded_context_has_just_one_bin(seed: int, depth: int) -> None:
    rng = np.random.default_rng(seed)
    spec, policy = widest_policy(rng.integers(0, COLUMNS_MAX, DEPTH_MAX), depth)
    values = [{name: None if rng.random() < 0.3 else rng.normal() for name in WIDEST} for _ in range(5)]
    contexts = np.concatenate([context_vector(one, spec.features) for one in values])
    lower, upper = policy.edges()
    found = policy.locate(contexts)
    inside = (contexts >= lower[found]) & ((contexts < upper[found]) | (upper[found] == 1))
    assert inside.all()


@pytest.mark.parametrize("dimension", [1, COLUMNS_MAX - 1, COLUMNS_MAX + 1, FEATURES_MAX, 10**9, 0, -1])
def test_a_policy_for_other_columns_is_refused(dimension: int) -> None:
    spec, policy = widest_policy(np.zeros(DEPTH_MAX, np.int64), 3)
    with pytest.raises(Malformed):
        replace(policy, dimension=dimension).check(spec)


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.lists(st.integers(), max_size=2),
    st.complex_numbers(),
)
KINDS = {
    "n": {"low": -1, "high": 1},
    "m": {"low": 0, "high": 1, "missing": True},
    "q": {"quantiles": [0, 0, 1]},
    "l": {"levels": ["a", 1, -7], "missing": True},
    "o": {"levels": [1, 2, 3], "ordered": True},
    "b": {"boolean": True},
}


@pytest.mark.filterwarnings("ignore::privateer_core.errors.UnfitValueWarning")  # which says so, on the device alone
@given(st.dictionaries(st.sampled_from([*KINDS, "other"]), VALUES))
def test_whatever_an_application_passes_is_encoded_or_refused_by_name(values: dict[str, Any]) -> None:
    features = make_spec({"context.features": KINDS}).features
    refused: list[str] = []
    try:
        found = context_vector(values, features)
    except InputError as error:
        refused.append(error.field or "")
    complete = set(values) == set(KINDS)
    assert complete is not bool(refused)
    assert refused[0] in (*KINDS, "other") if refused else ((found >= 0) & (found <= 1)).all()
