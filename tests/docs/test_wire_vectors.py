"""The vectors of the wire format in git are what code and services do; ``make documents`` writes them anew."""

import json
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.documents import families, wire

COMMITTED = Path(__file__).parents[2] / wire.FEW


@pytest.mark.parametrize(
    "module", [pytest.param(one, marks=pytest.mark.nightly) if one is families else one for one in wire.MODULES]
)
def test_the_vectors_are_what_devices_do_and_services_answer(module: ModuleType) -> None:
    """And those in git show every way of being accepted or refused that all of them show."""
    for name, found in module.files().items():
        made, text = json.loads(wire.text(found)), (COMMITTED / f"{name}.json").read_text()
        assert wire.text(wire.few(made)) + "\n" == text, f"{name} is not what is made: run make documents"
        committed = json.loads(text)
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
