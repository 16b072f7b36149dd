"""The vectors of the wire format in git agree with code and services; ``make documents`` writes them anew."""

import json
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.documents import families, wire

COMMITTED = Path(__file__).parents[2] / wire.FEW


@pytest.mark.parametrize(
    "module", [pytest.param(m, marks=pytest.mark.nightly) if m is families else m for m in wire.MODULES]
)
def test_the_vectors_in_git_agree_with_devices_and_services(module: ModuleType) -> None:
    """The vectors in git have every verdict that all vectors have."""
    for name, content in module.files().items():
        document, text = json.loads(wire.text(content)), (COMMITTED / f"{name}.json").read_text()
        assert wire.text(wire.select_few(document)) + "\n" == text, f"{name} is not what is made: run make documents"
        committed = json.loads(text)
        for committed_list, full_list in zip(_lists(committed), _lists(document), strict=True):
            assert {wire.verdict(vector) for vector in committed_list} == {wire.verdict(vector) for vector in full_list}


def _lists(content: Any) -> list[list[Any]]:
    lists = list(content.values()) if isinstance(content, dict) else [content]
    return [entry for entry in lists if isinstance(entry, list) and isinstance(entry[0], dict)]


def test_ten_of_a_family_are_in_git() -> None:
    terms = [
        {"name": f"{name}: {at}", "publication": "", "refused": None}
        for name in ("linear", "trial")
        for at in range(30)
    ]
    vectors = {"terms": [*terms, {"name": "phased", "publication": "", "refused": "late"}], "key": "aa"}
    selected = wire.select_few(vectors)
    assert selected["key"] == "aa"
    assert Counter(term["name"].split(":")[0] for term in selected["terms"]) == {"linear": 10, "trial": 10, "phased": 1}
    assert len(wire.select_few([{"people": [{}] * 40}] * 40)) == 10
    assert wire.select_few([{"people": [{}] * 40}]) == [{"people": [{}] * wire.PEOPLE}]
    assert wire.select_few(["a"] * 40) == ["a"] * 40


@pytest.mark.parametrize(
    "value", [{}, [], 1.5, None, {"a": []}, [[]], {"a": {"b": ["x" * 100, {"c": 1e-9}]}, "[": "]"}]
)
def test_the_text_is_json_of_the_same(value: Any) -> None:
    assert json.loads(wire.text(value)) == value
