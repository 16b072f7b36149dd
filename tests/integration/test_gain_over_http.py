"""People who measure the gain, over the whole path: devices, shuffler, server, record, and the answer."""

from pathlib import Path

import httpx
import pytest

from privateer_core.privacy.certificate import recompute
from privateer_core.privacy.record_verification import read_certificates
from privateer_core.spec.spec import Spec
from privateer_lab.load.driver import run_load
from privateer_lab.services.processes import Services, free_port, run_services
from tests.integration.test_pipeline import create, wait_for_the_end
from tests.support.specs import SHUFFLE, make_spec

MEASURED = {"experiment.horizon": 3000, "experiment.round_size": 1000, "experiment.evaluation_fraction": 0.34}
SPECS: dict[str, Spec] = {
    "shuffle": make_spec({**SHUFFLE, **MEASURED, "population.name": "peaks"}),
    "central": make_spec({**MEASURED, "privacy.model": "central", "privacy.delta": 1e-6, "population.name": "peaks"}),
}


@pytest.mark.parametrize("model", SPECS)
def test_the_last_people_measure_the_gain(model: str, tmp_path: Path) -> None:
    with run_services(tmp_path, free_port(), free_port()) as at:
        measure_gain(at, SPECS[model])


def measure_gain(at: Services, spec: Spec) -> None:
    create(at, spec)
    run_load("test", at.server, at.shuffler, sender_key=at.sender_key)
    wait_for_the_end(at)
    answer = httpx.get(f"{at.server}/experiments/test/answer", timeout=60).json()
    conclusion, gain = answer["conclusion"], answer["result"]["gain"]
    assert gain["people"] == 1020
    assert conclusion["is_measured"]
    assert conclusion["gain"] == gain
    assert conclusion["over_chance"]["low"] <= conclusion["over_chance"]["value"]
    record = httpx.get(f"{at.server}/experiments/test/privacy", timeout=60).json()
    assert [row["received"] for row in record["rounds"]][-1] == 1020
    for certificate in read_certificates(record).values():
        assert all(verdict.holds for verdict in recompute(certificate))
