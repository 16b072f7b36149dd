"""The population section: every key has its constraint, and errors name keys as the file has them."""

import math
from contextlib import suppress
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privateer_core.errors import SpecError
from privateer_lab.environments import check_population
from tests.support.specs import make_spec

GOOD = [
    {"name": "peaks"},
    {"name": "quadrants", "density": {"name": "uniform"}},
    {"name": "peaks", "density": {"name": "shifted", "gamma": 0.2}, "drift": {"name": "swap", "period": 100}},
    {"name": "smooth", "function": 0, "shape": "close", "density": {"name": "varied", "ratio": 40, "side": 2}},
    {"name": "quadrants", "drift": {"name": "slide", "period": 1, "step": -0.5}},
    {"name": "csv", "path": "a.csv", "label": "kind", "rewards": [[0, 1], [0.5, 1]], "classes": ["a", "b"]},
    {"name": "csv", "path": "a.csv", "label": "kind", "project": {"numbers": ["age"]}, "missing": "drop"},
    {"name": "adult", "path": "adult.data", "task": "income", "cohort": "target", "projected": True},
]
SHIFTED, VARIED = {"name": "shifted"}, {"name": "varied"}
SMOOTH, CSV = {"name": "smooth"}, {"name": "csv", "path": "a", "label": "b"}
BAD = [
    ({}, "population.name", "missing"),
    ({"name": "martians"}, "population.name", "'smooth'"),
    ({"name": ["peaks"]}, "population.name", "'smooth'"),
    ({"name": "linear"}, "population.name", "'smooth'"),
    ({"name": "peaks", "path": "a.csv"}, "population.path", "unknown key"),
    ({"name": "peaks", "function": 3}, "population.function", "unknown key"),
    ({"name": "peaks", "density": "shifted"}, "population.density", None),
    ({"name": "peaks", "density": {"gamma": 1}}, "population.density.name", "missing"),
    ({"name": "peaks", "density": {"name": "normal"}}, "population.density.name", "'varied'"),
    ({"name": "peaks", "density": SHIFTED}, "population.density.gamma", "required"),
    ({"name": "peaks", "density": {**SHIFTED, "gamma": -0.1}}, "population.density.gamma", "greater than or equal"),
    ({"name": "peaks", "density": {**SHIFTED, "gamma": math.nan}}, "population.density.gamma", None),
    ({"name": "peaks", "density": {**SHIFTED, "gamma": 1, "seed": 1}}, "population.density.seed", "unknown key"),
    ({"name": "peaks", "density": {**VARIED, "ratio": 0.5}}, "population.density.ratio", "greater than or equal"),
    ({"name": "peaks", "density": {**VARIED, "side": 3}}, "population.density.side", "2 or 4"),
    ({"name": "peaks", "drift": {"name": "jump", "period": 3}}, "population.drift.name", "'slide'"),
    ({"name": "peaks", "drift": {"name": "swap"}}, "population.drift.period", "required"),
    ({"name": "peaks", "drift": {"name": "swap", "period": 0}}, "population.drift.period", "greater than or equal"),
    ({"name": "peaks", "drift": {"name": "slide", "period": 9, "step": math.inf}}, "population.drift.step", None),
    (SMOOTH, "population.function", "required"),
    ({**SMOOTH, "function": -1}, "population.function", "greater than or equal"),
    ({**SMOOTH, "function": 1, "shape": "square"}, "population.shape", "'gentle'"),
    ({"name": "csv", "label": "b"}, "population.path", "required"),
    ({**CSV, "path": ""}, "population.path", "at least 1"),
    ({**CSV, "classes": ["a"]}, "population.classes", "two or more"),
    ({**CSV, "classes": ["a", "a"]}, "population.classes", "distinct"),
    ({**CSV, "rewards": [[0.1], [0.1, 0.2]]}, "population.rewards", "equal length"),
    ({**CSV, "rewards": [[0.1, 1.2]]}, "population.rewards.0.1", "less than or equal to 1"),
    ({**CSV, "missing": "guess"}, "population.missing", "'refuse' or 'drop'"),
    ({**CSV, "project": {}}, "population.project", "name columns"),
    ({**CSV, "density": {"name": "uniform"}}, "population.density", "unknown key"),
    ({"name": "adult"}, "population.path", "required"),
    ({"name": "adult", "path": "a", "task": "wage"}, "population.task", "'offers', 'income' or 'effects'"),
]


@pytest.mark.parametrize("table", GOOD, ids=str)
def test_valid_population_sections_are_accepted(table):
    check_population(make_spec({"population": table}))


@pytest.mark.parametrize(("table", "field", "constraint"), BAD, ids=lambda value: str(value)[:70])
def test_invalid_keys_are_named_as_in_the_file(table, field, constraint):
    source = {"name": "clinic", "participants": 10, "epsilon": 1.0, "shares": [1, 0, 0], "population": table}
    for changes, prefix in (({"population": table}, ""), ({"sources": [source]}, "sources.0.")):
        with pytest.raises(SpecError) as refused:
            check_population(make_spec(changes))
        assert refused.value.field == prefix + field
        assert constraint is None or constraint in refused.value.detail
        assert refused.value.remedy


@given(
    st.sampled_from(["name", "density", "drift", "function", "path", "label", "rewards", "project", "density.name"]),
    st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5), st.lists, max_leaves=5),
)
def test_any_value_in_any_place_is_a_spec_error_or_fine(key, value):
    for good in GOOD:
        table: Any = deepcopy(good)
        data = {"population": table}
        *path, last = key.split(".")
        for part in path:
            table = table.setdefault(part, {})
        table[last] = value
        with suppress(SpecError):
            check_population(make_spec(data))
