"""The notebook of docs/: its cells as Python, and their outputs run anew by a plain interpreter."""

import ast
import base64
import contextlib
import io
import json
import warnings
from pathlib import Path
from typing import Any

PATH = Path(__file__).parents[2] / "docs" / "notebook.ipynb"


def cells(text: str) -> list[dict[str, Any]]:
    """The code cells of a notebook, in order."""
    return [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]


def run(sources: list[str]) -> list[list[dict[str, Any]]]:
    """The outputs of code cells, run in order in one namespace."""
    names: dict[str, Any] = {"__name__": "__main__"}
    return [_outputs(source, names, number) for number, source in enumerate(sources, 1)]


def _outputs(source: str, names: dict[str, Any], number: int) -> list[dict[str, Any]]:
    tree = ast.parse(source)
    last: Any = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed), warnings.catch_warnings():
        warnings.simplefilter("error")
        exec(compile(tree, f"cell {number}", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": _lines(printed.getvalue())})
    if value is not None:
        output = {"data": _bundle(value), "execution_count": number, "metadata": {}, "output_type": "execute_result"}
        outputs.append(output)
    return outputs


def _bundle(value: Any) -> dict[str, Any]:
    """Return what a notebook keeps of a value: its text, its table, its picture."""
    bundle: dict[str, Any] = {"text/plain": _lines(repr(value))}
    if hasattr(value, "_repr_png_"):
        bundle["image/png"] = base64.b64encode(value._repr_png_()).decode() + "\n"
    elif hasattr(value, "_repr_html_"):
        bundle["text/html"] = _lines(value._repr_html_())
    return bundle


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def documents() -> dict[Path, str]:
    """The notebook with its outputs made anew."""
    notebook = json.loads(PATH.read_text())
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, (c, outputs) in enumerate(zip(code, run(["".join(c["source"]) for c in code]), strict=True), 1):
        c["execution_count"], c["outputs"] = number, outputs
    return {PATH: json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"}
