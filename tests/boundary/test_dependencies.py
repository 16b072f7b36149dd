"""Dependencies are justified, pinned with hashes, and name no registry."""

import re
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
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
    assert len(LOCKS) == 11
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
