"""The UCI Adult census over HTTP: everybody once, under shuffle privacy."""

import os
from pathlib import Path

import httpx
import pytest

from privateer_lab.cli.input_files import load_spec
from privateer_lab.load.driver import run_load
from privateer_lab.services.processes import free_port, run_services

SPEC = Path(__file__).parents[2] / "examples" / "adult-shuffle.toml"


@pytest.mark.data
def test_adult_over_http_beats_the_best_constant(tmp_path: Path) -> None:
    """Mean reward of the best constant arm: .290."""
    data = Path(os.environ["PRIVATEER_ADULT"])
    spec = load_spec(SPEC, []).without_people()
    with run_services(tmp_path, free_port(), free_port()) as at:
        headers = {"Authorization": f"Bearer {at.token}"}
        body = spec.model_dump(mode="json", exclude_none=True)
        assert httpx.post(f"{at.admin}/experiments", json=body, headers=headers, timeout=60).status_code == 201
        paths = f"{data},{data.with_name('adult.test.gz')}"
        result = run_load(
            "adult-shuffle",
            at.server,
            at.shuffler,
            sender_key=at.sender_key,
            users=48842,
            population={"name": "adult", "path": paths},
            batch=50,
            seed=0,
        )
    assert result.people == 48842
    assert result.accepted > 45000
    assert result.reward / result.people >= 0.325
