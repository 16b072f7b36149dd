"""Our distributions as wheels, and an index of strangers: for tests of what an installation takes from where."""

import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable
from email import message_from_string
from email.message import Message
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
ROLES = ("shared", "client", "shuffler", "issuer", "server", "lab", "papers")
OURS = "privateer"


def projects(root: Path = ROOT) -> dict[str, dict[str, Any]]:
    """The project table of every distribution, by its name."""
    tables = [tomllib.loads((root / role / "pyproject.toml").read_text())["project"] for role in ROLES]
    return {table["name"]: table for table in tables}


def required(project: dict[str, Any]) -> list[str]:
    """All that a distribution requires, its extras too."""
    return [
        *project["dependencies"],
        *(requirement for group in project.get("optional-dependencies", {}).values() for requirement in group),
    ]


def distribution_name(requirement: str) -> str:
    """The name of the distribution that a requirement is about."""
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert match
    return match[0].lower()


def pip(*arguments: str | Path, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run pip with the named packages alone."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)]
    isolated = {key: value for key, value in os.environ.items() if not key.startswith("PIP_")}
    isolated |= {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_COMPILE": "1"}
    return subprocess.run(command, env=environment or isolated, capture_output=True, text=True)


def build(folder: Path) -> list[Path]:
    """Build all wheels."""
    completed_process = pip(
        "wheel", "--no-index", "--no-deps", "--no-build-isolation", "-w", folder, *(ROOT / role for role in ROLES)
    )
    assert completed_process.returncode == 0, completed_process.stderr
    return sorted(folder.glob("*.whl"))


def read(wheel: Path) -> Message:
    """The metadata of a wheel."""
    with zipfile.ZipFile(wheel) as opened:
        [name] = [name for name in opened.namelist() if name.endswith(".dist-info/METADATA")]
        return message_from_string(opened.read(name).decode())


def with_changed_metadata(wheel: Path, folder: Path, old: str, new: str) -> Path:
    """A copy of a wheel whose metadata say something else."""
    copy = folder / wheel.name
    with zipfile.ZipFile(wheel) as opened, zipfile.ZipFile(copy, "w") as other:
        for name in opened.namelist():
            data = opened.read(name)
            if name.endswith(".dist-info/METADATA"):
                assert old.encode() in data
                data = data.replace(old.encode(), new.encode())
            other.writestr(name, data)
    return copy


def index(folder: Path, wheels: Iterable[Path]) -> Path:
    """A folder with empty wheels of every third party at the version that is installed here, and with strangers.

    Strangers have names of ours: the one that is taken on the package index, and ours in our versions and newer ones.
    """
    folder.mkdir()
    names = {distribution_name(wheel_) for wheel in wheels for wheel_ in read(wheel).get_all("Requires-Dist", [])}
    for name in sorted(wheel_ for wheel_ in names if not wheel_.startswith(OURS)):
        try:
            _empty(folder, name, metadata.version(name))
        except metadata.PackageNotFoundError:  # of an extra that tests have no use for
            continue
    for name, project in projects().items():
        _empty(folder, name, project["version"])
        _empty(folder, name, "999.0")
    _empty(folder, OURS, "2.1.1")
    return folder


def _empty(folder: Path, name: str, version: str) -> None:
    stem = f"{name.replace('-', '_')}-{version}"
    extras = "".join(f"Provides-Extra: {extra}\n" for extra in ("binary", "core", "serving", "workbench", "notebook"))
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as zip_file:
        zip_file.writestr(
            f"{stem}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{extras}"
        )
        zip_file.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        zip_file.writestr(f"{stem}.dist-info/RECORD", "")


def strangers(report: Path, wheels: Path) -> set[str]:
    """Whatever pip's report says of our names that it did not take from the folder of our wheels."""
    rows = json.loads(report.read_text())["install"]
    urls = {
        row["metadata"]["name"]: row["download_info"]["url"] for row in rows if row["metadata"]["name"].startswith(OURS)
    }
    assert urls, "nothing of ours was installed"
    return {name for name, url in urls.items() if Path(url.removeprefix("file://")).parent != wheels}
