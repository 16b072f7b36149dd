"""A device in Go, written from the pages alone, meets the vectors and takes part in running experiments."""

import json
import os
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from privateer_lab.services.processes import Services
from tests.interop.programs import PYTHON, ROOT, run

pytestmark = pytest.mark.interop
SOURCES = Path(__file__).parent / "device"
PEOPLE = 24
"""A round of the experiment under `local`."""


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, of which no tool has anything to say."""
    program = tmp_path_factory.mktemp("device") / "device"
    go = [PYTHON.with_name("go")]
    environment = os.environ | {"GOTOOLCHAIN": "local", "GOFLAGS": "-buildvcs=false", "CGO_ENABLED": "0"}
    run([*go, "vet", "."], SOURCES, environment=environment)
    run([*go, "build", "-o", program, "."], SOURCES, environment=environment)
    return program


def take_part(device: Path, services: Services, name: str, folder: Path) -> dict[str, dict[str, int]]:
    addresses = [services.server, services.shuffler]
    output = run([device, "take-part", *addresses, name, folder / name, str(PEOPLE), "a"], folder)
    counts: dict[str, dict[str, int]] = json.loads(output)
    return counts


def create(services: Services, name: str, **privacy: Any) -> None:
    experiment = {"name": name, "arms": ["a", "b", "c"], "horizon": 100_000}
    if privacy["model"] == "local":
        experiment |= {"horizon": 10 * PEOPLE, "round_size": PEOPLE}
    spec = {"experiment": experiment, "privacy": privacy, "algorithm": {"name": "bandit"}}
    headers = {"Authorization": f"Bearer {services.token}"}
    response = httpx.post(f"{services.admin}/experiments", json=spec, headers=headers)
    assert response.status_code == 201, response.text


def test_the_device_meets_the_vectors(device: Path, tmp_path: Path) -> None:
    met = json.loads(run([device, "vectors", ROOT / "docs" / "wire"], tmp_path))
    assert met.keys() == {"coins", "response", "publications", "terms", "log"}
    assert min(met.values()) >= 10
    for vectors in (ROOT / "docs" / "wire").glob("*.json"):
        text = vectors.read_text().replace('"symbols": 17,', '"symbols": 18,')
        (tmp_path / vectors.name).write_text(text)
    with pytest.raises(AssertionError, match="response"):
        run([device, "vectors", tmp_path], tmp_path)


def test_reports_of_the_device_close_a_round(device: Path, services: Services, tmp_path: Path) -> None:
    create(services, "foreign-local", model="local", epsilon=1.0)
    counts = take_part(device, services, "foreign-local", tmp_path)
    assert counts["outcomes"] == {"accepted": PEOPLE}
    assert sum(counts["arms"].values()) == PEOPLE
    deadline = time.monotonic() + 120
    while httpx.get(f"{services.server}/experiments/foreign-local").json()["version"] != 2:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    repeated = take_part(device, services, "foreign-local", tmp_path)
    assert repeated["outcomes"] == {"already-reported": PEOPLE}


def test_the_shuffler_takes_reports_of_the_device(device: Path, services: Services, tmp_path: Path) -> None:
    create(services, "foreign-shuffle", model="shuffle", epsilon=1.0, delta=1e-6)
    assert take_part(device, services, "foreign-shuffle", tmp_path)["outcomes"] == {"accepted": PEOPLE}


def test_the_device_refuses_a_costlier_promise(device: Path, services: Services, tmp_path: Path) -> None:
    create(services, "foreign-costly", model="local", epsilon=2.0)
    with pytest.raises(AssertionError, match="refused: epsilon"):
        take_part(device, services, "foreign-costly", tmp_path)
