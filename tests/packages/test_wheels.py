"""Our wheels, installed from a folder, take nothing of ours from an index, and can be imported."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.docs.test_readme import blocks
from tests.support.wheels import OURS, ROLES, ROOT, build, changed, index, pip, projects, read, strangers

WANTED = ("privateer-lab[workbench,notebook]", "privateer-client[openfeature]")
USES = [
    "privateer_lab.cli.command_line",
    "privateer_lab.load.command",
    "privateer_client.openfeature",
    "privateer_server.app",
]
"""What imports most of each distribution; the others are imported by these, or by name."""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return build(tmp_path_factory.mktemp("wheels"))


def environment(folder: Path) -> Path:
    """A Python with nothing installed, not even pip."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return folder / "bin" / "python"


def installed(python: Path, wheels: list[Path], wanted: tuple[str, ...], offered: Path) -> Path:
    """Install wheels and what else is wanted, where an index offers the rest; return pip's report."""
    report = python.parents[1] / "report.json"
    where = ("--no-index", "--find-links", offered, "--report", report)
    done = pip("--python", python, "install", "--quiet", *where, *wheels, *wanted)
    assert done.returncode == 0, done.stderr
    return report


@pytest.mark.nightly
def test_wheels_have_what_a_package_page_shows(wheels: list[Path]) -> None:
    assert {read(wheel)["Name"] for wheel in wheels} == set(projects())
    for wheel in wheels:
        shown = read(wheel)
        assert shown["Author"] == "the Privateer authors"
        assert shown["License-Expression"] == "Apache-2.0"
        assert shown["Description-Content-Type"] == "text/markdown"
        assert str(shown.get_payload()).startswith(f"# {shown['Name']}\n")
        listed = subprocess.run([sys.executable, "-m", "zipfile", "-l", wheel], capture_output=True, text=True).stdout
        assert ".dist-info/licenses/LICENSE" in listed
        assert "py.typed" in listed


@pytest.mark.parametrize("role", ROLES)
def test_sources_have_the_license_and_the_readme_too(role: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", tmp_path]
    subprocess.run(command, cwd=ROOT / role, check=True, capture_output=True)
    [made] = tmp_path.iterdir()
    with tarfile.open(made) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    assert {"LICENSE", "README.md", "pyproject.toml", "PKG-INFO"} <= names
    assert not [name for name in names if "__pycache__" in name]


@pytest.mark.nightly
def test_an_installation_takes_nothing_of_ours_from_an_index(wheels: list[Path], tmp_path: Path) -> None:
    """Although the index offers all our names, in our versions and newer ones. Third parties are this Python's."""
    python = environment(tmp_path / "venv")
    report = installed(python, wheels, WANTED, index(tmp_path / "index", wheels))
    assert strangers(report, wheels[0].parent) == set()
    names = [name.replace("-", "_") for name in projects()]
    third = [path for path in sys.path if path.endswith("site-packages")]
    code = f"import sys; sys.path += {third}; " + "; ".join(f"import {name}" for name in [*names, *USES])
    code += f"; print(*(sys.modules[name].__file__ for name in {names}), sep='\\n')"
    done = subprocess.run([python, "-c", code], cwd=tmp_path, env={"PATH": os.defpath}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [Path(line).is_relative_to(tmp_path / "venv") for line in done.stdout.split()] == [True] * len(names)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("planted", "taken"),
    [("privateer[core]", "privateer"), ("privateer-core[core]", "privateer-core")],
    ids=["old name", "no pin"],
)
def test_a_planted_requirement_takes_a_stranger(planted: str, taken: str, wheels: list[Path], tmp_path: Path) -> None:
    offered = index(tmp_path / "index", wheels)
    [client] = [wheel for wheel in wheels if wheel.name.startswith("privateer_client")]
    (tmp_path / "ours").mkdir()
    made = changed(client, tmp_path / "ours", "privateer-core[core]==0.1.0", planted)
    report = installed(environment(tmp_path / "venv"), [made], (), offered)
    assert strangers(report, tmp_path / "ours") == {taken}


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_the_docs_installation_works_with_third_parties_from_the_index(tmp_path: Path) -> None:
    """What docs/notebook.md says of wheels, as it stands there, and the readmes' snippets that need no service."""
    report, home = tmp_path / "report.json", tmp_path / "home"
    home.mkdir()
    environment = os.environ | {"HOME": str(home), "PIP_REPORT": str(report), "VENV": sys.prefix, "PIP_NO_COMPILE": "1"}
    page = (ROOT / "docs" / "notebook.md").read_text()
    [commands] = [block for block in blocks("sh", page) if "pip install" in block]
    done = subprocess.run(["bash", "-ec", commands], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert strangers(report, ROOT / "dist") == set()
    python = home / "privateer" / "bin" / "python"
    snippets = [
        text for role in ("shared", "lab") for text in blocks("python", (ROOT / role / "README.md").read_text())
    ]
    for code in [*snippets, *(f"import {name}" for name in USES if "openfeature" not in name)]:
        ran = subprocess.run(
            [python, "-c", code],
            cwd=tmp_path,
            env={"PATH": os.defpath, "HOME": str(home)},
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 0, ran.stderr
    version = subprocess.run(
        [python.with_name(OURS), "--version"], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    assert projects()["privateer-lab"]["version"] in version


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_device_is_light(wheels: list[Path], tmp_path: Path) -> None:
    """What a device installs, with third parties from the index, has no scipy; its size, and what its import takes.

    Processor time is in multiples of what the import of numpy, pydantic and httpx takes in the same minute: 2.
    """
    python = environment(tmp_path / "venv")
    ours = [wheel for wheel in wheels if wheel.name.startswith(("privateer_client", "privateer_core"))]
    environment_ = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = pip("--python", python, "install", "--quiet", *ours, environment=environment_ | {"PIP_NO_COMPILE": "1"})
    assert done.returncode == 0, done.stderr
    [packages] = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    assert not list(packages.glob("scipy*"))
    megabytes = sum(path.stat().st_size for path in packages.rglob("*") if path.is_file()) / 1e6

    def seconds(imported: str) -> float:
        """Least of five, after one that compiles."""
        code = f"{imported}; import sys, time; assert 'scipy' not in sys.modules; print(time.process_time())"
        runs = [subprocess.run([python, "-c", code], capture_output=True, text=True, check=True) for _ in range(6)]
        return min(float(run.stdout) for run in runs[1:])

    times = seconds("from privateer_client import Client") / seconds("import numpy, pydantic, httpx")
    print(f"a device: {megabytes:.0f} MB, imported in {times:.1f} times what its libraries take")
    assert megabytes < 120
    assert times < 3
