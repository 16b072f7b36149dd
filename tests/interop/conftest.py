"""Running services with experiments, which all programs of others call."""

import tomllib
from collections.abc import Iterator

import httpx
import pytest

from privateer_lab.services.processes import Services, free_port, run_services
from tests.interop.programs import ROOT
from tests.support.specs import SHUFFLE, tables


@pytest.fixture(scope="session")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    with run_services(tmp_path_factory.mktemp("services"), free_port(), free_port(), quiet=True) as at:
        headers = {"Authorization": f"Bearer {at.token}"}
        recipes = tomllib.loads((ROOT / "examples" / "peaks-shuffle.toml").read_text())
        for spec in (tables(SHUFFLE | {"experiment.name": "peaks", "privacy.min_batch": 1000}), recipes):
            httpx.post(f"{at.admin}/experiments", json=spec, headers=headers, timeout=60).raise_for_status()
        yield at
