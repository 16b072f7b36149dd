"""The notebook's cells run in order and give the outputs that it shows; the page's snippets run as they stand."""

import json
from typing import Any

import pytest

from tests.docs.test_readme import ROOT, blocks
from tests.documents import notebook

PAGE = (ROOT / "docs" / "notebook.md").read_text()


def texts(outputs: list[dict[str, Any]]) -> list[str]:
    """What outputs say, without their pictures."""
    return ["".join(output.get("text") or output["data"]["text/plain"]) for output in outputs]


def test_the_cells_give_the_outputs_that_are_stored() -> None:
    cells = notebook.cells(notebook.PATH.read_text())
    outputs = notebook.run(["".join(cell["source"]) for cell in cells])
    for cell, cell_outputs in zip(cells, outputs, strict=True):
        assert texts(cell_outputs) == texts(cell["outputs"]), "".join(cell["source"])
        assert ["data" in output and list(output["data"]) for output in cell_outputs] == [
            "data" in output and list(output["data"]) for output in cell["outputs"]
        ]


def test_a_planted_output_is_found(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = {"cells": [{"cell_type": "code", "source": ["1 + 1"], "outputs": notebook.run(["1 + 2"])[0]}]}
    monkeypatch.setattr(notebook, "PATH", tmp_path / "planted.ipynb")
    notebook.PATH.write_text(json.dumps(planted))
    with pytest.raises(AssertionError):
        test_the_cells_give_the_outputs_that_are_stored()


def test_the_pages_snippets_work() -> None:
    """Run the snippets in a common namespace, in order: later snippets go on with earlier results."""
    names: dict[str, Any] = {}
    snippets = blocks("python", PAGE)
    assert len(snippets) >= 4
    for snippet in snippets:
        exec(compile(snippet, "docs/notebook.md", "exec"), names)
