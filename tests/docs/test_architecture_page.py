"""The page about the architecture names folders and files that are there, and every part of the house."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "architecture.md").read_text()
PATHS = sorted(set(re.findall(r"`((?:shared|client|server|shuffler|issuer|lab|papers|sdk|tests)/[\w/.-]*)`", TEXT)))
PACKAGES = ("shared/privateer_core", "server/privateer_server")


@pytest.mark.parametrize("named", PATHS)
def test_what_the_page_names_is_there(named: str) -> None:
    assert (ROOT / named).exists()


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_of_the_core_and_the_server_is_named(package: str) -> None:
    folders = {f"{package}/{path.parent.name}/" for path in (ROOT / package).glob("*/__init__.py")}
    assert folders - set(PATHS) == set()


def test_every_folder_of_the_lab_is_named() -> None:
    [row] = [line for line in TEXT.splitlines() if line.startswith("| `lab/privateer_lab/` |")]
    assert all((ROOT / "lab" / "privateer_lab" / name).is_dir() for name in re.findall(r"`(\w+/)`", row))
