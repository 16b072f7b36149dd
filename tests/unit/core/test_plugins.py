"""Algorithms are loaded by entry points; a broken algorithm is named in an error and stops no other algorithm."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from privateer_core.errors import PluginError
from privateer_core.plugins import Plugins

GROUP = "privateer.algorithms"


def install_distribution(folder: Path, distribution: str, **points: str) -> None:
    """Declare entry points as an installed distribution does."""
    metadata = folder / f"{distribution.replace('-', '_')}-1.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Name: {distribution}\nVersion: 1\n")
    lines = "".join(f"{name} = {value}\n" for name, value in points.items())
    (metadata / "entry_points.txt").write_text(f"[{GROUP}]\n{lines}")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("strangers_")]:
        del sys.modules[name]


def algorithms() -> Plugins[object]:
    return Plugins(GROUP, "distribution", "algorithm.name")


def test_another_distribution_adds_an_algorithm(folder: Path) -> None:
    (folder / "strangers_own.py").write_text("ALGORITHM = 'theirs'")
    install_distribution(folder, "strangers", ours="strangers_own:ALGORITHM")
    plugins = algorithms()
    assert {"ours", "trial"} <= set(plugins)
    assert plugins["ours"] == "theirs"
    assert plugins.problems() == []


def test_an_algorithm_that_cannot_be_imported_stops_no_other(folder: Path) -> None:
    (folder / "strangers_broken.py").write_text("1 / 0")
    install_distribution(folder, "strangers", broken="strangers_broken:ALGORITHM", gone="strangers_gone:ALGORITHM")
    plugins = algorithms()
    assert plugins["trial"]
    broken, absent = plugins.problems()
    assert str(broken) == (
        "algorithm.name: 'broken' of strangers cannot be imported: ZeroDivisionError in strangers_broken:ALGORITHM "
        "(mend or uninstall strangers)"
    )
    assert "ModuleNotFoundError in strangers_gone" in str(absent)


def test_two_algorithms_of_a_name_are_both_refused(folder: Path) -> None:
    (folder / "strangers_own.py").write_text("ALGORITHM = 'theirs'")
    install_distribution(folder, "strangers", trial="strangers_own:ALGORITHM")
    plugins = algorithms()
    (problem,) = plugins.problems()
    assert "privateer-core and strangers both bring 'trial'" in str(problem)
    assert problem.remedy == "uninstall one of them"
    with pytest.raises(PluginError, match="both bring"):
        plugins["trial"]
    assert plugins["bandit"]


def test_a_missing_algorithm_is_refused_with_the_installed_ones() -> None:
    with pytest.raises(PluginError, match=r"must be one of additive, bandit, .*trial") as refusal:
        algorithms()["no-such"]
    assert refusal.value.field == "algorithm.name"


def test_reading_the_names_imports_no_algorithm() -> None:
    code = """import sys
from privateer_core.algorithms import ALGORITHMS
assert "importlib.metadata" not in sys.modules or "_entry_points" not in vars(ALGORITHMS)
assert "trial" in ALGORITHMS
sys.exit(any(name.startswith("privateer_core.algorithms.") for name in sys.modules))
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
