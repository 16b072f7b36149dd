"""A reader of others finds everything that images and SDK contain in the inventories of a release."""

import json
import re
from pathlib import Path

import pytest

from deploy.release import artifacts
from tests.interop.programs import PYTHON, ROOT, run

pytestmark = pytest.mark.interop

_PIN = re.compile(r"^([a-z0-9.-]+)(?:\[[a-z,]+\])?==([^ ;]+)", re.MULTILINE)
_COPIED = re.compile(r"^COPY (\w+)/ \1/$", re.MULTILINE)
DISTRIBUTIONS = {"shared": "privateer-core"}
"""Distributions whose folder has another name."""


@pytest.fixture(scope="module")
def inventories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, list[list[str]]]]:
    """What the reader finds in each inventory."""
    folder = tmp_path_factory.mktemp("release")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(artifacts, "PYTHON", PYTHON)
        artifacts.inventories(folder)
    reader = Path(__file__).parent / "inventories.py"
    return dict(json.loads(run([PYTHON, reader, *sorted((folder / "sbom").iterdir())], ROOT)))


def copied_distributions(role: str) -> set[str]:
    """The distributions of ours that the Dockerfile copies into the stage that builds an image."""
    _, _, stage = (ROOT / "Dockerfile").read_text().partition(f" AS build-{role}\n")
    folders = [folder for folder in _COPIED.findall(stage.partition("\nFROM ")[0]) if folder != "requirements"]
    return {DISTRIBUTIONS.get(folder, f"privateer-{folder}") for folder in folders}


@pytest.mark.parametrize("role", artifacts.IMAGES)
def test_a_reader_of_others_finds_every_package_of_an_image(role, inventories) -> None:
    """Planted: inventories without the distributions that an image's own one requires."""
    inventory = inventories[role]
    pinned = {(name, version) for name, version in _PIN.findall((ROOT / "requirements" / f"{role}.txt").read_text())}
    listed = {(name, version) for name, version in inventory["packages"]}
    ours = {name for name, _ in listed - pinned} | {inventory["product"][0]}
    assert inventory["type"] == "cyclonedx"
    assert pinned <= listed
    assert ours == copied_distributions(role)
    assert set(inventory["addresses"]) == {f"pkg:pypi/{name}@{version}" for name, version in listed}


def test_a_reader_of_others_knows_the_sdk_by_its_name(inventories) -> None:
    """Planted: the folder's name, which npm writes."""
    package = json.loads((ROOT / "sdk/js/package.json").read_text())
    assert inventories["javascript"]["product"] == [package["name"], package["version"]]
    assert inventories["javascript"]["packages"] == []
