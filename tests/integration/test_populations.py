"""Populations of every kind over HTTP: the driver knows people and the truth, the server only their reports."""

from pathlib import Path

import httpx
import pytest

from privateer_core.spec.spec import Spec
from privateer_lab.cli.input_files import load_spec
from privateer_lab.load.driver import run_load
from privateer_lab.services.processes import free_port, run_services
from privateer_lab.toml_file import read_tables
from tests.support.specs import make_spec

GARDEN = Path(__file__).parents[2] / "examples" / "garden-shuffle.toml"


def run_people(folder: Path, spec: Spec, population: dict[str, object], people: int):
    with run_services(folder, free_port(), free_port()) as at:
        body = spec.model_copy(update={"population": None}).model_dump(mode="json", exclude_none=True)
        headers = {"Authorization": f"Bearer {at.token}"}
        assert httpx.post(f"{at.admin}/experiments", json=body, headers=headers, timeout=60).status_code == 201
        name = spec.experiment.name
        return run_load(
            name,
            at.server,
            at.shuffler,
            sender_key=at.sender_key,
            users=people,
            population=population,
            batch=50,
            seed=1,
        )


@pytest.mark.nightly
def test_a_csv_file_teaches_over_http(tmp_path):
    """Shuffle privacy, epsilon 1, 12,000 people: more right than any single arm would be (.372 of the rows)."""
    population = read_tables(GARDEN, [], "SPEC")["population"]
    result = run_people(tmp_path, load_spec(GARDEN, ["experiment.horizon=12000"]), population, 12_000)
    assert result.accepted == 12_000
    assert result.best_constant_regret == pytest.approx(12_000 * (1 - 223 / 600), abs=1)
    assert result.reward / 12_000 > 0.45


def test_the_truth_at_the_time_over_http(tmp_path):
    """Arms that swap twice and end where they began: no arm is better than another on the whole."""
    changes = {"experiment.horizon": 3000, "experiment.round_size": 500}
    population = {"name": "peaks", "drift": {"name": "swap", "period": 1000}}
    result = run_people(tmp_path, make_spec(changes), population, 3000)
    assert result.accepted == 3000
    assert result.best_constant_regret == pytest.approx(result.uniform_regret, rel=0.03)
    assert result.uniform_regret == pytest.approx(0.41388 * 3000, rel=0.05)
