"""Complete exports are read; damaged exports and exports of another version are refused."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privateer_core.answer.export import read_export
from privateer_core.errors import SpecError
from tests.documents import exports, vectors, wire

_, SPEC, PUBLICATION = vectors.cases()[0]
DOCUMENT = exports.decode_export(exports.build_export(SPEC, PUBLICATION))


def test_an_export_survives_being_written_by_another_program() -> None:
    document = json.loads(json.dumps(DOCUMENT, indent=4, sort_keys=True))
    assert read_export(document, "FILE").publication_bytes == PUBLICATION


def test_the_vectors_hold_refused_exports() -> None:
    for case in json.loads((wire.FEW / "exports.json").read_text())["refused"]:
        if case["refused"] is None or "contradict" in case["refused"]:
            continue
        with pytest.raises(SpecError) as caught:
            read_export(case["document"], "FILE")
        assert caught.value.detail.startswith(case["refused"])
        assert caught.value.remedy


def leaf_paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every leaf of a document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    paths = [leaf_path for key, item in items for leaf_path in leaf_paths(item, (*path, key))]
    return paths or [path]


LEAVES = leaf_paths(DOCUMENT)


@given(st.sampled_from(LEAVES), st.sampled_from([None, 7, "x", 0.5, True, [], {}]))
def test_a_change_anywhere_is_found(path: tuple[Any, ...], value: Any) -> None:
    changed = json.loads(json.dumps(DOCUMENT))
    at = changed
    for key in path[:-1]:
        at = at[key]
    if at[path[-1]] == value and type(at[path[-1]]) is type(value):
        return
    at[path[-1]] = value
    with pytest.raises(SpecError, match=r"damaged|not an export"):
        read_export(changed, "FILE")


@pytest.mark.parametrize("document", [None, [], "text", {}, {"format": 7}, {"format": "privateer/export/x"}])
def test_a_document_that_is_no_export_is_refused(document: Any) -> None:
    with pytest.raises(SpecError, match="is not an export"):
        read_export(document, "FILE")
