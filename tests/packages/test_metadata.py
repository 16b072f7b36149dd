"""What a package index is told of every distribution: versions that agree, who made it, its license, where it lives."""

import copy
import json
import re
from typing import Any

import pytest

from tests.documents import addresses
from tests.support.wheels import OURS, ROLES, ROOT, distribution_name, projects, required

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
