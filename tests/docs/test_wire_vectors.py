"""The committed vectors of the wire format are what code and services do; ``make documents`` writes them anew."""

import json
from typing import Any

import pytest

from tests.documents import exports, families, logs, offline, schemas, tokens, uploads, vectors


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
    "documents",
    [vectors, pytest.param(families, marks=pytest.mark.nightly), uploads, exports, offline, schemas, logs, tokens],
)
def test_the_vectors_are_what_devices_do_and_services_answer(documents: Any) -> None:
    for path, text in documents.documents().items():
        assert same(json.loads(path.read_text()), json.loads(text)), f"{path} is not what is made: run make documents"


def test_a_changed_number_is_caught() -> None:
    assert same({"delta": [1e-9, 1]}, {"delta": [1e-9 * (1 + 1e-14), 1]})
    for other in ({"delta": [1.001e-9, 1]}, {"delta": [1e-9, 2]}, {"delta": [1e-9, 1.0]}, {"delta": [1e-9]}, {}):
        assert not same({"delta": [1e-9, 1]}, other)
