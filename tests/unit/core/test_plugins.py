"""Algorithms are found by entry points: what is wrong with one is said, and stops no other."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from privateer_core.errors import PluginError
from privateer_core.plugins import Plugins

GROUP = "privateer.algorithms"


def installed(folder: Path, distribution: str, **points: str) -> None:
    """Declare entry points as an installed distribution does."""
    made = folder / f"{distribution.replace('-', '_')}-1.dist-info"
    made.mkdir(parents=True)
    (made / "METADATA").write_text(f"Name: {distribution}\nVersion: 1\n")
    lines = "".join(f"{name} = {value}\n" for name, value in points.items())
    (made / "entry_points.txt").write_text(f"[{GROUP}]\n{lines}")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("strangers_")]:
        del sys.modules[name]


def algorithms() -> Plugins[object]:
    return Plugins(GROUP, "distribution", "algorithm.name")


def test_another_distribution_brings_one(folder: Path) -> None:
    (folder / "strangers_own.py").write_text("ALGORITHM = 'theirs'")
    installed(folder, "strangers", ours="strangers_own:ALGORITHM")
    found = algorithms()
    assert {"ours", "trial"} <= set(found)
    assert found["ours"] == "theirs"
    assert found.problems() == []


def test_one_that_cannot_be_imported_stops_no_other(folder: Path) -> None:
    (folder / "strangers_broken.py").write_text("1 / 0")
    installed(folder, "strangers", broken="strangers_broken:ALGORITHM", gone="strangers_gone:ALGORITHM")
    found = algorithms()
    assert found["trial"]
    broken, gone = found.problems()
    assert str(broken) == (
        "algorithm.name: 'broken' of strangers cannot be imported: ZeroDivisionError in strangers_broken:ALGORITHM "
        "(mend or uninstall strangers)"
    )
    assert "ModuleNotFoundError in strangers_gone" in str(gone)


def test_of_two_of_one_name_neither_is_taken(folder: Path) -> None:
    (folder / "strangers_own.py").write_text("ALGORITHM = 'theirs'")
    installed(folder, "strangers", trial="strangers_own:ALGORITHM")
    found = algorithms()
    (problem,) = found.problems()
    assert "privateer-core and strangers both bring 'trial'" in str(problem)
    assert problem.remedy == "uninstall one of them"
    with pytest.raises(PluginError, match="both bring"):
        found["trial"]
    assert found["bandit"]


def test_one_that_is_not_installed_is_named_among_those_that_are() -> None:
    with pytest.raises(PluginError, match=r"must be one of additive, bandit, .*trial") as refusal:
        algorithms()["no-such"]
    assert refusal.value.field == "algorithm.name"


def test_reading_the_names_imports_none() -> None:
    code = """import sys
from privateer_core.algorithms import ALGORITHMS
assert "importlib.metadata" not in sys.modules or "_found" not in vars(ALGORITHMS)
assert "trial" in ALGORITHMS
sys.exit(any(name.startswith("privateer_core.algorithms.") for name in sys.modules))
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
