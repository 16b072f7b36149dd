"""Every night a search that is guided by coverage looks for bytes that a decoder neither reads nor refuses."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.decoders import DECODERS

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not importlib.util.find_spec("atheris"), reason="needs atheris (make nightly)"),
]
RUNS = 200_000


def fuzz(name: str, runs: int, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.fuzz.guided", name, str(runs), str(folder)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize("name", DECODERS)
def test_bytes_that_reach_new_code_are_refused_or_read(name: str, tmp_path: Path) -> None:
    process = fuzz(name, RUNS, tmp_path)
    assert process.returncode == 0, process.stdout[-3000:] + process.stderr[-3000:]
    assert f"Done {RUNS // DECODERS[name].costly} runs" in process.stderr


def test_a_fault_behind_four_signs_is_reached(tmp_path: Path) -> None:
    """Planted: a reader that trusts an index; blind changes meet its signs once in four billion."""
    process = fuzz("planted", RUNS, tmp_path)
    assert "IndexError" in process.stdout + process.stderr
    assert process.returncode != 0
