"""Our wheels, installed from a folder, take nothing of ours from an index, and can be imported."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.docs.test_readme import blocks
from tests.support.wheels import OURS, ROLES, ROOT, build, index, pip, projects, read, strangers, with_changed_metadata

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


def install_wheels(python: Path, wheels: list[Path], extra_requirements: tuple[str, ...], index_folder: Path) -> Path:
    """Install wheels and extra requirements, with all others from a folder as the index; return pip's report."""
    report = python.parents[1] / "report.json"
    source_options = ("--no-index", "--find-links", index_folder, "--report", report)
    completed_process = pip("--python", python, "install", "--quiet", *source_options, *wheels, *extra_requirements)
    assert completed_process.returncode == 0, completed_process.stderr
    return report


@pytest.mark.nightly
def test_wheels_have_what_a_package_page_shows(wheels: list[Path]) -> None:
    assert {read(wheel)["Name"] for wheel in wheels} == set(projects())
    for wheel in wheels:
        metadata = read(wheel)
        assert metadata["Author"] == "the Privateer authors"
        assert metadata["License-Expression"] == "Apache-2.0"
        assert metadata["Description-Content-Type"] == "text/markdown"
        assert str(metadata.get_payload()).startswith(f"# {metadata['Name']}\n")
        contents = subprocess.run([sys.executable, "-m", "zipfile", "-l", wheel], capture_output=True, text=True).stdout
        assert ".dist-info/licenses/LICENSE" in contents
        assert "py.typed" in contents


@pytest.mark.parametrize("role", ROLES)
def test_sources_have_the_license_and_the_readme_too(role: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", tmp_path]
    subprocess.run(command, cwd=ROOT / role, check=True, capture_output=True)
    [archive_path] = tmp_path.iterdir()
    with tarfile.open(archive_path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "pyproject.toml", "PKG-INFO"} <= names
    assert not [name for name in names if "__pycache__" in name]


@pytest.mark.nightly
def test_an_installation_takes_nothing_of_ours_from_an_index(wheels: list[Path], tmp_path: Path) -> None:
    """Although the index offers all our names, in our versions and newer ones. Third parties are this Python's."""
    python = environment(tmp_path / "venv")
    report = install_wheels(python, wheels, WANTED, index(tmp_path / "index", wheels))
    assert strangers(report, wheels[0].parent) == set()
    names = [name.replace("-", "_") for name in projects()]
    third = [path for path in sys.path if path.endswith("site-packages")]
    code = f"import sys; sys.path += {third}; " + "; ".join(f"import {name}" for name in [*names, *USES])
    code += f"; print(*(sys.modules[name].__file__ for name in {names}), sep='\\n')"
    proc = subprocess.run([python, "-c", code], cwd=tmp_path, env={"PATH": os.defpath}, capture_output=True, text=True)
    assert proc.returncode == 0, proc.stderr
    assert [Path(line).is_relative_to(tmp_path / "venv") for line in proc.stdout.split()] == [True] * len(names)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("planted", "extra"),
    [("privateer[core]", "privateer"), ("privateer-core[core]", "privateer-core")],
    ids=["old name", "no pin"],
)
def test_a_planted_requirement_takes_a_stranger(planted: str, extra: str, wheels: list[Path], tmp_path: Path) -> None:
    index_folder = index(tmp_path / "index", wheels)
    [client] = [wheel for wheel in wheels if wheel.name.startswith("privateer_client")]
    (tmp_path / "ours").mkdir()
    changed_wheel = with_changed_metadata(client, tmp_path / "ours", "privateer-core[core]==0.1.0", planted)
    report = install_wheels(environment(tmp_path / "venv"), [changed_wheel], (), index_folder)
    assert strangers(report, tmp_path / "ours") == {extra}


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_the_docs_installation_works_with_third_parties_from_the_index(tmp_path: Path) -> None:
    """What docs/notebook.md says of wheels, as it stands there, and the readmes' snippets that need no service."""
    report, home = tmp_path / "report.json", tmp_path / "home"
    home.mkdir()
    environment = os.environ | {"HOME": str(home), "PIP_REPORT": str(report), "VENV": sys.prefix, "PIP_NO_COMPILE": "1"}
    page = (ROOT / "docs" / "notebook.md").read_text()
    [commands] = [block for block in blocks("sh", page) if "pip install" in block]
    process = subprocess.run(["bash", "-ec", commands], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    assert strangers(report, ROOT / "dist") == set()
    python = home / "privateer" / "bin" / "python"
    snippets = [
        text for role in ("shared", "lab") for text in blocks("python", (ROOT / role / "README.md").read_text())
    ]
    for code in [*snippets, *(f"import {name}" for name in USES if "openfeature" not in name)]:
        completed = subprocess.run(
            [python, "-c", code],
            cwd=tmp_path,
            env={"PATH": os.defpath, "HOME": str(home)},
            capture_output=True,
            text=True,
        )
        assert completed.returncode == 0, completed.stderr
    version = subprocess.run(
        [python.with_name(OURS), "--version"], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    assert projects()["privateer-lab"]["version"] in version


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_an_installed_device_is_small_and_imports_fast(wheels: list[Path], tmp_path: Path) -> None:
    """A device has neither scipy nor httpx, takes 95 MB at most, and is imported in 3 times its libraries' time.

    Its size is that after imports: without the bytecode of what it never imports, such as numpy's tests.

    Processor time is in multiples of what the import of numpy, pydantic and http.client takes in the same minute: 2.
    """
    python = environment(tmp_path / "venv")
    our_wheels = [wheel for wheel in wheels if wheel.name.startswith(("privateer_client", "privateer_core"))]
    environment_ = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    completed_process = pip(
        "--python", python, "install", "--quiet", "--no-compile", *our_wheels, environment=environment_
    )
    assert completed_process.returncode == 0, completed_process.stderr
    [packages] = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    assert not [*packages.glob("scipy*"), *packages.glob("httpx*")]

    def seconds(imported: str) -> float:
        """Least of five, after one that compiles."""
        code = f"{imported}; import sys, time; assert 'scipy' not in sys.modules; print(time.process_time())"
        command, options = [python, "-c", code], {"capture_output": True, "text": True, "check": True}
        runs = [subprocess.run(command, env=environment_, **options) for _ in range(6)]
        return min(float(run.stdout) for run in runs[1:])

    times = seconds("from privateer_client import Client") / seconds("import numpy, pydantic.types, http.client")
    megabytes = sum(path.stat().st_size for path in packages.rglob("*") if path.is_file()) / 1e6
    print(f"a device: {megabytes:.0f} MB, imported in {times:.1f} times what its libraries take")
    assert megabytes < 95
    assert times < 3
