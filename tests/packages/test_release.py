"""Releases: metadata of all packages, versions and changelog."""

import copy
import json
import re
import shutil
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from deploy.release import artifacts, checks, version
from tests.documents import addresses
from tests.support.wheels import OURS, ROLES, ROOT, distribution_name, projects, required

CHANGELOG = "# Changelog\n\n## Unreleased\n\n### Added\n- A door.\n\n## 0.1.0 - 2026-01-02\n\n### Added\n- A house.\n"
DAY = date(2026, 3, 4)


def test_the_changelogs_entry_is_that_of_the_version() -> None:
    assert artifacts.entry(CHANGELOG, "0.1.0") == ("0.1.0 - 2026-01-02", "### Added\n- A house.")


def test_a_version_without_an_entry_has_the_unreleased_notes() -> None:
    assert artifacts.entry(CHANGELOG, "0.2.0") == ("Unreleased", "### Added\n- A door.")
    with pytest.raises(artifacts.ReleaseError, match=r"no entry for 0\.3\.0"):
        artifacts.entry(version.dated(CHANGELOG, "0.2.0", DAY), "0.3.0")


def test_a_new_version_dates_the_unreleased_notes() -> None:
    changed = version.dated(CHANGELOG, "0.2.0", DAY)
    assert "## Unreleased\n\n## 0.2.0 - 2026-03-04\n\n### Added\n- A door.\n" in changed
    with pytest.raises(artifacts.ReleaseError, match="choose a higher version"):
        version.dated(CHANGELOG, "0.1.0", DAY)


@pytest.mark.parametrize("role", ROLES)
def test_a_new_version_is_written_wherever_ours_is_named_and_nowhere_else(role: str) -> None:
    text = (ROOT / role / "pyproject.toml").read_text()
    old = artifacts.version()
    changed = version.written(text, old, "9.8.7")
    assert old not in changed.replace(f">={old}", "")
    assert version.written(changed, "9.8.7", old) == text


@pytest.mark.parametrize("name", ["package.json", "package-lock.json"])
def test_a_new_version_changes_nothing_else_of_a_package(name: str, tmp_path: Path) -> None:
    path = Path(shutil.copy(ROOT / "sdk" / "js" / name, tmp_path))
    before = path.read_text()
    version.set_json(path, "9.8.7")
    changed = [line for line in path.read_text().splitlines() if line not in before.splitlines()]
    assert changed in (['  "version": "9.8.7",'], ['  "version": "9.8.7",', '      "version": "9.8.7",'])
    assert json.loads(path.read_text())["version"] == "9.8.7"
    version.set_json(path, artifacts.version())
    assert path.read_text() == before


def test_a_planted_file_has_no_checksum(tmp_path: Path) -> None:
    (tmp_path / "python").mkdir()
    (tmp_path / "python" / "one.whl").write_bytes(b"one")
    artifacts.checksums(tmp_path)
    assert checks.checksums(tmp_path) == "sha256sum: 1 files"
    (tmp_path / "python" / "two.whl").write_bytes(b"two")
    with pytest.raises(artifacts.ReleaseError, match=r"without a checksum: python/two\.whl"):
        checks.checksums(tmp_path)


def test_a_changed_file_is_found(tmp_path: Path) -> None:
    (tmp_path / "one.whl").write_bytes(b"one")
    artifacts.checksums(tmp_path)
    (tmp_path / "one.whl").write_bytes(b"two")
    with pytest.raises(artifacts.ReleaseError, match="sha256sum"):
        checks.checksums(tmp_path)


def test_a_failing_program_is_named_with_what_it_said() -> None:
    with pytest.raises(artifacts.ReleaseError, match=r"ended with 3:\nno room"):
        artifacts.run("sh", "-c", "echo no room >&2; exit 3")


def test_an_inventory_without_a_package_is_found(tmp_path: Path) -> None:
    (tmp_path / "sbom").mkdir()
    for role in artifacts.IMAGES:
        lines = (ROOT / "requirements" / f"{role}.txt").read_text().splitlines()
        names = [line.split("==")[0].split("[")[0] for line in lines if "==" in line]
        listed: dict[str, Any] = {"bomFormat": "CycloneDX", "components": [{"name": name} for name in names]}
        (tmp_path / "sbom" / f"{role}.cdx.json").write_text(json.dumps(listed))
    assert checks.inventories(tmp_path).startswith("inventories: server ")
    listed["components"].pop(0)
    (tmp_path / "sbom" / "load.cdx.json").write_text(json.dumps(listed))
    with pytest.raises(artifacts.ReleaseError, match="the inventory of load lacks"):
        checks.inventories(tmp_path)


PACKAGE = json.loads((ROOT / "sdk/js/package.json").read_text())


def wrong_requirements(tables: dict[str, dict[str, Any]]) -> list[str]:
    """Return requirements under a name like ours that are no distribution of ours, or have another version."""
    faults = []
    for name, table in tables.items():
        for requirement in [each for each in required(table) if distribution_name(each).startswith(OURS)]:
            target, pin = tables.get(distribution_name(requirement)), re.sub(r"\[[a-z,]+\]", "", requirement)
            if target is None or pin != f"{target['name']}=={table['version']}":
                faults.append(f"{name} requires {requirement}")
    return faults


def test_distributions_require_each_other_at_their_own_version() -> None:
    tables = projects()
    assert len(tables) == len(ROLES)
    assert {table["version"] for table in tables.values()} | {PACKAGE["version"]} == {PACKAGE["version"]}
    assert wrong_requirements(tables) == []


@pytest.mark.parametrize(
    "planted", ["privateer[core]==0.1.0", "privateer-core[core]", "privateer-core>=0.1.0", "privateer-core==0.0.9"]
)
def test_a_planted_requirement_is_found(planted: str) -> None:
    tables = copy.deepcopy(projects())
    tables["privateer-client"]["dependencies"][1] = planted
    assert wrong_requirements(tables) == [f"privateer-client requires {planted}"]


@pytest.mark.parametrize("role", ROLES)
def test_every_distribution_states_author_license_and_audience(role: str) -> None:
    [project] = [
        table for table in projects().values() if table["name"] == f"privateer-{role.replace('shared', 'core')}"
    ]
    assert project["authors"] == [{"name": "the Privateer authors"}]
    assert (project["license"], project["license-files"]) == ("Apache-2.0", ["LICENSE"])
    assert project["readme"] == "README.md"
    assert len(project["classifiers"]) > 5


@pytest.mark.parametrize("folder", [*ROLES, "sdk/js"])
def test_every_distribution_has_the_license_and_a_readme_without_dead_links(folder: str) -> None:
    """A package's page shows the readme by itself, so that links to files of the repository lead nowhere there."""
    assert (ROOT / folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    readme = (ROOT / folder / "README.md").read_text()
    links = re.findall(r"\]\(([^)]+)\)", readme)
    headings = {
        f"#{line.lstrip('# ').lower().replace(' ', '-')}" for line in readme.splitlines() if line.startswith("#")
    }
    assert [link for link in links if link not in headings] == []
    for page in re.findall(r"`(docs/[a-z/-]+\.md)`", readme):
        assert (ROOT / page).exists(), page


def test_addresses_are_those_of_the_documentation() -> None:
    for path, text in addresses.documents().items():
        assert path.read_text() == text, "run make documents"


def test_an_address_of_the_documentation_is_written_everywhere() -> None:
    text_by_path = addresses.documents("https://code.example/privateer", "https://docs.example/")
    assert len(text_by_path) == len(ROLES) + 1
    for path, text in text_by_path.items():
        assert text.count("https://docs.example/") == 1, path
        assert text.count("https://code.example/privateer") == 1, path
        assert text != path.read_text()
