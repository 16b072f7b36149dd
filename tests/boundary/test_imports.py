"""The import boundary: arrows between distributions, circles, and dependencies."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from graphlib import CycleError, TopologicalSorter
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import grimp
import pytest
from packaging.requirements import Requirement

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


LOCKS = sorted((ROOT / "requirements").glob("*.txt"))


def name_of(requirement: str) -> str:
    match = re.match(r"[A-Za-z0-9_.-]+", requirement)
    assert match
    return match.group().lower()


def test_every_direct_dependency_is_justified() -> None:
    direct = set()
    for role in ("shared", "client", "shuffler", "issuer", "server", "lab"):
        project = tomllib.loads((ROOT / role / "pyproject.toml").read_text())["project"]
        extras = project.get("optional-dependencies", {}).values()
        direct |= {name_of(requirement) for group in (project["dependencies"], *extras) for requirement in group}
    for source in (ROOT / "requirements").glob("*.in"):
        direct |= {name_of(line) for line in source.read_text().splitlines() if not line.startswith("-")}
    justified = (ROOT / "docs" / "dependencies.md").read_text()
    assert not {name for name in direct if not name.startswith("privateer") and name not in justified}


def test_locks_have_hashes_and_no_addresses() -> None:
    assert len(LOCKS) == 12
    for lock in LOCKS:
        text = lock.read_text()
        assert "://" not in text
        pinned = re.findall(r"^[a-z0-9][^\n]*==[^\n]*", text, re.MULTILINE)
        assert pinned
        assert all(line.endswith("\\") for line in pinned)


def test_make_test_adds_to_what_the_demo_has() -> None:
    demo, everything = (
        set(re.findall(r"^[a-z0-9][^\n]*==[^\n]*", (ROOT / "requirements" / name).read_text(), re.MULTILINE))
        for name in ("demo.txt", "dev.txt")
    )
    assert demo < everything
    assert not {name_of(line) for line in demo} & {"pandas", "polars", "pyarrow", "pytest", "scikit-learn"}


def test_locks_name_the_extras_that_their_packages_ask_for() -> None:
    """Without them, a pip that finds a newer release refuses the lock: only the plain name would be pinned."""
    text = (ROOT / "requirements" / "dev.txt").read_text()
    pinned = dict(re.findall(r"^([a-z0-9.-]+)(\[[a-z,]+\])?==", text, re.MULTILINE))
    required: dict[str, set[str]] = {}
    for name in pinned:
        try:
            lines = requires(name) or []
        except PackageNotFoundError:  # another system's
            continue
        for requirement in map(Requirement, lines):
            if requirement.extras and (not requirement.marker or requirement.marker.evaluate()):
                required[requirement.name] = set(requirement.extras)
    assert required
    missing = {name for name, extras in required.items() if not extras <= set(pinned[name].strip("[]").split(","))}
    assert not missing
