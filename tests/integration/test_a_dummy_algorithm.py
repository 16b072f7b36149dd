"""Two files and an entry point of each make an algorithm, and a row of a table a trust model: nothing else changes."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DUMMY = ROOT / "tests" / "support" / "ucb"
ROLES = ("shared", "client", "shuffler", "server", "lab", "papers")
LINES = {
    "shared": (
        'trial = "privateer_core.algorithms.trial:ALGORITHM"',
        'ucb = "privateer_core.algorithms.ucb:ALGORITHM"',
    ),
    "server": (
        'trial = "privateer_server.algorithms.trial:learner"',
        'ucb = "privateer_server.algorithms.ucb:UcbLearner"',
    ),
}
"""The line of each distribution that makes the dummy algorithm an entry point, and the line before it."""
ROW = """        Trust(
            name="stricter",
            sees="reports that are twice as private as promised",
            endpoint=Recipient.SERVER,
            curator=Curator.NOBODY,
            noise=NoiseOrigin.DEVICES,
            crowd=Crowd.NOBODY,
            delta_least=0.0,
            reader="everybody together",
            assumes=(_HONEST_CLIENTS_ASSUMPTION,),
            example={"epsilon": 4.0},
            event=lambda mechanism, _: mechanism.report_event,
            serves={
                KeyedMeans: Serving((SignedSymbol,), _stricter_means),
                SmallDomainMeans: Serving((SignedSymbol,), _stricter_means),
                KeyedHits: Serving((NamedSymbol,), _stricter_hits),
                VectorSum: Serving((VectorSymbol,), _stricter_vectors, norms=("max",)),
                L2VectorSum: Serving((VectorSymbol,), _stricter_vectors, norms=("l2",)),
                SecondMoments: Serving((VectorSymbol,), _stricter_symbols, norms=("l2",)),
            },
        ),
"""
CALIBRATIONS = """def _stricter_means(
    privacy: Promise, _honest: int, question: KeyedMeans, _share: Allotment | None
) -> AnyMechanism:
    return SignedSymbol.calibrated(question, privacy.bound / 2, 0.0, 0, privacy.local_epsilon_max)


def _stricter_hits(privacy: Promise, _honest: int, question: KeyedHits, _share: Allotment | None) -> AnyMechanism:
    return NamedSymbol.calibrated(question, privacy.bound / 2)


def _stricter_vectors(privacy: Promise, _honest: int, question: VectorSum, _share: Allotment | None) -> AnyMechanism:
    return VectorSymbol.calibrated(question.ball, privacy.bound / 2, question.seed)


def _stricter_symbols(
    privacy: Promise, _honest: int, question: SecondMoments, _share: Allotment | None
) -> AnyMechanism:
    return VectorSymbol.calibrated(question.ball, privacy.bound / 2, question.seed, question.classes)


"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the whole tree with the dummy algorithm."""
    for part in (*ROLES, "tests"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copy(DUMMY / "public.py", tmp_path / "shared" / "privateer_core" / "algorithms" / "ucb.py")
    shutil.copy(DUMMY / "learner.py", tmp_path / "server" / "privateer_server" / "algorithms" / "ucb.py")
    for role, (after, line) in LINES.items():
        insert_text(tmp_path / role / "pyproject.toml", f"{line}\n", after=f"{after}\n")
        write_entry_points(tmp_path, role)
    return tmp_path


def write_entry_points(copy: Path, role: str) -> None:
    """Tell the copy's Python which entry points a distribution has, as an installation does."""
    project = tomllib.loads((copy / role / "pyproject.toml").read_text())["project"]
    groups = project["entry-points"].items()
    text = "".join(f"[{group}]\n" + "".join(f"{n} = {at}\n" for n, at in points.items()) for group, points in groups)
    metadata = copy / role / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
    (metadata / "entry_points.txt").write_text(text)


def insert_text(path: Path, text: str, *, after: str) -> None:
    """Add text to a file, where it is written for people to do so."""
    source = path.read_text()
    assert source.count(after) == 1
    path.write_text(source.replace(after, after + text))


def run(copy: Path, *arguments: str, minutes: float = 5) -> str:
    """Run Python on the copy alone."""
    path = os.pathsep.join(str(copy / role) for role in ROLES)
    home = {"HOME": str(copy), "OPENBLAS_NUM_THREADS": "1"}
    environment = {key: value for key, value in os.environ.items() if not key.startswith("COV_")}
    process = subprocess.run(
        [sys.executable, *arguments],
        cwd=copy,
        env=environment | home | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60 * minutes,
    )
    assert process.returncode == 0, process.stdout[-4000:] + process.stderr[-4000:]
    return process.stdout


def battery(copy: Path, words: str) -> int:
    """Run the batteries for what has these words in its name; return how many tests passed."""
    plain = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts=--import-mode=importlib")
    output = run(copy, "-m", "pytest", *plain, "tests/contract", "-k", words)
    summary = output.strip().splitlines()[-1]
    assert "failed" not in summary
    return int(summary.partition(" passed")[0].split()[-1])


def dashboard_drawings(copy: Path) -> dict[str, Any]:
    """Return what the dashboard's modules make of the policies that were published, by trust model."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("everything but the dashboard takes the algorithm: its modules need Node")
    command = [node, "tests/support/ucb/draw.mjs", "published.json"]
    process = subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=60)
    assert process.returncode == 0, process.stderr
    return dict(json.loads(process.stdout))


def test_the_battery_takes_a_new_algorithm(copy: Path) -> None:
    assert battery(copy, "ucb") > 4 * 20


@pytest.mark.parametrize(
    "models", [["shuffle"], pytest.param(["local", "shuffle", "central", "none"], marks=pytest.mark.nightly)]
)
def test_everything_takes_a_new_algorithm(copy: Path, models: list[str]) -> None:
    """In one process and over HTTP; the dashboard draws every policy. By day batteries have all trust models."""
    output = run(copy, "tests/support/ucb/everything.py", str(copy), "ucb", *models)
    assert output.strip().splitlines()[-1].split() == models
    drawings = dashboard_drawings(copy)
    assert list(drawings) == models
    for drawing in drawings.values():
        assert drawing["bins"] == 16
        phrases = ("A = a, ahead in", "16 bins of the policy as a table", "x1: 0.25 to 0.5")
        assert all(words in drawing["text"] for words in phrases)
        assert not any(words in drawing["text"] for words in ("does not know how to draw", "undefined", "NaN"))


@pytest.mark.nightly
def test_everything_takes_a_new_trust_model(copy: Path) -> None:
    trust = copy / "shared" / "privateer_core" / "privacy" / "trust.py"
    rows, table = "    for row in (\n", "TRUST: Final[dict[str, Trust]] = {\n"
    insert_text(trust, ROW, after=rows)
    source = trust.read_text()
    trust.write_text(source.replace(table, CALIBRATIONS + table))
    assert battery(copy, "stricter") > 3 * 20
    assert "stricter" in run(copy, "tests/support/ucb/everything.py", str(copy), "ucb", "stricter")
