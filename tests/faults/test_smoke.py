"""A few lists of faults, the same each time; the nightly run draws many."""

import pytest

from tests.faults.runs import run_seeds
from tests.faults.shared_world import shared_world_factory
from tests.support.postgres import Cluster

SEEDS = (*range(1, 15), 17)


def check(figures: dict[str, int]) -> None:
    assert figures["runs"] == len(SEEDS)
    assert figures["deaths"] > 5
    assert figures["rounds"] > 30


def test_faults_lose_and_double_nothing() -> None:
    check(run_seeds(SEEDS))


@pytest.mark.postgres
def test_faults_of_shared_data_lose_and_double_nothing(postgres: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    check(run_seeds(SEEDS, shared_world_factory(postgres, monkeypatch)))
