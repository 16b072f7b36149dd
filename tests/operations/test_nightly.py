"""Faults of a year of operation, on real processes, disks and databases. CONTRIBUTING.md says how to run one."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from tests.operations.alert_history import promtool
from tests.operations.catalog import FAULTS, case
from tests.operations.disk import can_mount
from tests.operations.outcome import run

FIRST = int(os.environ.get("PRIVATEER_OPERATIONS_SEED", "0"))
RUNS = int(os.environ.get("PRIVATEER_OPERATIONS_RUNS", str(len(FAULTS))))
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not promtool(), reason="promtool is not on this machine"),
]
_HEAD = "seed | fault | alerts | readiness | doctor | cured | acknowledged/lost/doubled"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose path is short, as sockets and mounts want it."""
    with tempfile.TemporaryDirectory(prefix="privateer-") as path:
        yield Path(path)


@pytest.fixture(scope="session")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file with a line for each fault."""
    named = os.environ.get("PRIVATEER_OPERATIONS_TABLE")
    path = Path(named) if named else tmp_path_factory.mktemp("operations") / "faults.txt"
    if not path.exists():
        path.write_text(_HEAD + "\n")
    print(f"\n{path}")
    return path


def seeds() -> list[ParameterSet]:
    """The seeds of a night; some need PostgreSQL."""
    marks = {"postgres": [pytest.mark.postgres], "sqlite": []}
    return [pytest.param(seed, marks=marks[case(seed).store]) for seed in range(FIRST, FIRST + RUNS)]


@pytest.mark.parametrize("seed", seeds())
def test_a_fault_is_seen_and_cured_and_loses_nothing(seed, folder, table, request):
    fault_case = case(seed)
    if fault_case.fault.disk and not can_mount():
        pytest.skip("only root may mount a disk")
    outcome = run(fault_case, folder, request.getfixturevalue("postgres") if fault_case.store == "postgres" else None)
    line = " | ".join(outcome.row())
    with table.open("a") as file:
        file.write(f"{line}\n")
    print(line)
    logs = "\n".join(path.read_text() for path in sorted(folder.glob("*.log")))
    assert outcome.faults() == [], f"{line}\n{logs}"
