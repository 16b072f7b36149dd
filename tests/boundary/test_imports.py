"""The trust boundary is the import boundary."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROLES = ("shared", "client", "shuffler", "issuer", "server", "lab", "papers")
PLANTED = {
    "shuffler/privateer_shuffler/shuffle.py": "import privateer_core.codec",
    "server/privateer_server/intake/intake.py": "from privateer_core.algorithms.bandit import BanditPolicy",
    "shared/privateer_core/algorithms/phased.py": "import privateer_core.algorithms.linear.design_matrix",
    "server/privateer_server/algorithms/bandit/posterior.py": "import privateer_server.algorithms.sparse.coefficients",
}
"""Imports that break a contract each."""
LINT = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]


def imported_by(code: str) -> set[str]:
    """Names in ``sys.modules`` after running ``code`` in a fresh interpreter: sees dynamic imports too."""
    process = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"], capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    return set(process.stdout.split())


def packages(names: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize(
    ("role", "other"), [("privateer_shuffler", "privateer_issuer"), ("privateer_issuer", "privateer_shuffler")]
)
def test_shuffler_and_issuer_have_nothing_that_reads_or_opens_a_report(role: str, other: str) -> None:
    names = imported_by(f"import {role}.app")
    assert not packages(names) & {
        "numpy",
        "scipy",
        "fastapi",
        "privateer_server",
        "privateer_client",
        "privateer_lab",
        other,
    }
    core = {name for name in names if name.startswith("privateer_core.")}
    assert {name.split(".")[1] for name in core} <= {"wire", "errors", "clock", "serving", "prepared_types"}


@pytest.mark.parametrize("role", ["privateer_server.app", "privateer_lab"])
def test_linear_algebra_has_one_thread_unless_the_environment_sets_more(role: str) -> None:
    """Compares a process without the setting with a process that sets two threads."""
    code, thread_counts = f"import {role}, os; print(os.environ['OPENBLAS_NUM_THREADS'])", []
    for setting in ({}, {"OPENBLAS_NUM_THREADS": "2"}):
        clean = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
        process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=clean | setting)
        thread_counts.append(process.stdout.strip())
    assert thread_counts == ["1", "2"]


@pytest.mark.parametrize(
    ("role", "others"),
    [
        ("privateer_server.app", {"privateer_client", "privateer_shuffler", "privateer_issuer", "privateer_lab"}),
        ("privateer_client", {"privateer_server", "privateer_shuffler", "privateer_issuer", "privateer_lab"}),
    ],
)
def test_roles_do_not_import_each_other(role: str, others: set[str]) -> None:
    assert not packages(imported_by(f"import {role}")) & others


def test_httpx_and_asyncio_are_imported_only_when_a_transport_is_given(tmp_path: Path) -> None:
    """An application imports the SDK at its start; httpx is imported only for a transport of the caller's."""
    call = f"Client('http://127.0.0.1:59999', ledger='{tmp_path}/l.db'{{}}).arm('test', {{{{}}}}, default='a').name"
    code = "from privateer_client import Client; assert {} == 'a'"
    assert not packages(imported_by("import privateer_client")) & {"httpx", "asyncio"}
    imported = imported_by(code.format(call.format("")))
    assert "http.client" in imported
    assert not packages(imported) & {"httpx", "asyncio"}
    assert "httpx" in imported_by(code.format(call.format(", transport=object()")))


@pytest.mark.parametrize("name", ["privateer_lab.load.command", "privateer_lab.environments"])
def test_the_load_driver_needs_no_service_and_nothing_of_the_workbench(name: str) -> None:
    workbench = {"joblib", "matplotlib", "pyarrow", "ray", "typer"}
    assert not packages(imported_by(f"import {name}")) & {
        "privateer_server",
        "privateer_shuffler",
        "privateer_issuer",
        *workbench,
    }


def test_evaluation_of_a_log_imports_no_database() -> None:
    assert "sqlalchemy" not in packages(imported_by("import privateer_lab.cli.evaluate"))


def test_the_core_imports_nothing_by_itself() -> None:
    assert not {name for name in imported_by("import privateer_core") if name.startswith("privateer_core.")}


def test_the_contracts_catch_planted_imports(tmp_path: Path) -> None:
    for role in ROLES:
        shutil.copytree(ROOT / role, tmp_path / role, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    path = ":".join(str(tmp_path / role) for role in ROLES)
    run = {"cwd": tmp_path, "env": {"PYTHONPATH": path}, "capture_output": True, "text": True}
    assert subprocess.run(LINT, **run).returncode == 0  # type: ignore[call-overload]
    for file, line in PLANTED.items():
        planted = tmp_path / file
        planted.write_text(f"{planted.read_text()}\n{line}\n")
    broken = subprocess.run(LINT, **run)  # type: ignore[call-overload]
    assert broken.returncode != 0
    assert broken.stdout.count("BROKEN") == len(PLANTED)
