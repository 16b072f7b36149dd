"""No module of ours imports itself in a circle, be it late in a function or for types alone."""

from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

PACKAGES = (
    "privateer_core",
    "privateer_client",
    "privateer_shuffler",
    "privateer_issuer",
    "privateer_server",
    "privateer_lab",
)


def circle(*packages: str) -> list[str]:
    """Return the modules of one circle, the first again as the last; empty: there is none.

    Imports count wherever they stand: in a function, or under TYPE_CHECKING, where a circle says as well that neither
    module can be understood without the other. That an import runs the `__init__` of a package does not count.
    """
    graph = grimp.build_graph(*packages, cache_dir=None)
    imports = {module: sorted(graph.find_modules_directly_imported_by(module)) for module in sorted(graph.modules)}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    assert circle(*PACKAGES) == []


@pytest.mark.parametrize(
    "back",
    [
        "import planted_circle.knot.first",
        "def f() -> None:\n    from planted_circle.knot import first",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from planted_circle.knot.first import First",
    ],
    ids=["plain", "late", "types"],
)
def test_a_planted_circle_is_found(back: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three modules, each of which imports the next."""
    package = tmp_path / "planted_circle"
    (package / "knot").mkdir(parents=True)
    files = {"__init__": "", "second": "import planted_circle.third\n", "third": "", "knot/__init__": ""}
    files["knot/first"] = "import planted_circle.second\n"
    monkeypatch.syspath_prepend(tmp_path)
    for third, expected in (("", 0), (back, 4)):
        for name, text in (files | {"third": third}).items():
            (package / f"{name}.py").write_text(text)
        assert len(circle("planted_circle")) == expected
