"""The vectors of the wire format in git are what code and services do; ``make documents`` writes them anew."""

import json
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.documents import families, wire

COMMITTED = Path(__file__).parents[2] / wire.FEW


def same(committed: Any, made: Any) -> bool:
    """Equal, but for the last digits of fractions, which differ from one processor to another."""
    if isinstance(made, float) and isinstance(committed, float):
        return committed == pytest.approx(made, rel=1e-12, abs=0)
    if isinstance(made, dict) and isinstance(committed, dict):
        return list(committed) == list(made) and all(same(committed[key], made[key]) for key in made)
    if isinstance(made, list) and isinstance(committed, list):
        return len(committed) == len(made) and all(map(same, committed, made))
    return type(committed) is type(made) and bool(committed == made)


@pytest.mark.parametrize(
    "module", [pytest.param(one, marks=pytest.mark.nightly) if one is families else one for one in wire.MODULES]
)
def test_the_vectors_are_what_devices_do_and_services_answer(module: ModuleType) -> None:
    """And those in git show every way of being accepted or refused that all of them show."""
    for name, found in module.files().items():
        made = json.loads(wire.text(found))
        committed = json.loads((COMMITTED / f"{name}.json").read_text())
        assert same(committed, wire.few(made)), f"{name} is not what is made: run make documents"
        for some, every in zip(_lists(committed), _lists(made), strict=True):
            assert {wire.verdict(one) for one in some} == {wire.verdict(one) for one in every}


def _lists(found: Any) -> list[list[Any]]:
    lists = list(found.values()) if isinstance(found, dict) else [found]
    return [one for one in lists if isinstance(one, list) and isinstance(one[0], dict)]


def test_ten_of_a_family_are_in_git() -> None:
    terms = [
        {"name": f"{name}: {at}", "publication": "", "refused": None}
        for name in ("linear", "trial")
        for at in range(30)
    ]
    found = {"terms": [*terms, {"name": "phased", "publication": "", "refused": "late"}], "key": "aa"}
    few = wire.few(found)
    assert few["key"] == "aa"
    assert Counter(one["name"].split(":")[0] for one in few["terms"]) == {"linear": 10, "trial": 10, "phased": 1}
    assert len(wire.few([{"people": [{}] * 40}] * 40)) == 10
    assert wire.few([{"people": [{}] * 40}]) == [{"people": [{}] * wire.PEOPLE}]
    assert wire.few(["a"] * 40) == ["a"] * 40


@pytest.mark.parametrize(
    "value", [{}, [], 1.5, None, {"a": []}, [[]], {"a": {"b": ["x" * 100, {"c": 1e-9}]}, "[": "]"}]
)
def test_the_text_is_json_of_the_same(value: Any) -> None:
    assert json.loads(wire.text(value)) == value


def test_a_changed_number_is_caught() -> None:
    assert same({"delta": [1e-9, 1]}, {"delta": [1e-9 * (1 + 1e-14), 1]})
    for other in ({"delta": [1.001e-9, 1]}, {"delta": [1e-9, 2]}, {"delta": [1e-9, 1.0]}, {"delta": [1e-9]}, {}):
        assert not same({"delta": [1e-9, 1]}, other)
