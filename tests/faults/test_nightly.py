"""Five hundred lists of faults on each store. CONTRIBUTING.md says how to run a single one again."""

import os

import pytest

from tests.faults.runs import run_seeds
from tests.faults.shared_world import shared_world_factory

FIRST = int(os.environ.get("PRIVATEER_FAULTS_SEED", "1000"))
RUNS = int(os.environ.get("PRIVATEER_FAULTS_RUNS", "500"))
PARTS = 10 if RUNS >= 10 else 1
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(7200)]


def part(number: int) -> range:
    return range(FIRST + number * RUNS // PARTS, FIRST + (number + 1) * RUNS // PARTS)


@pytest.mark.parametrize("number", range(PARTS))
def test_many_faults_lose_and_double_nothing(number: int) -> None:
    print(dict(run_seeds(part(number))))


@pytest.mark.postgres
@pytest.mark.parametrize("number", range(PARTS))
def test_many_faults_of_shared_data_lose_and_double_nothing(number, postgres, monkeypatch):
    print(dict(run_seeds(part(number), shared_world_factory(postgres, monkeypatch))))
