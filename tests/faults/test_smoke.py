"""A few lists of faults, the same each time; the nightly run draws many."""

import pytest

from tests.faults.runs import every
from tests.faults.shared_world import on
from tests.support.postgres import Cluster

SEEDS = (*range(1, 15), 17)


def check(figures: dict[str, int]) -> None:
    assert figures["runs"] == len(SEEDS)
    assert figures["deaths"] > 10
    assert figures["rounds"] > 30


def test_faults_lose_and_double_nothing() -> None:
    check(every(SEEDS))


@pytest.mark.postgres
def test_faults_of_shared_data_lose_and_double_nothing(postgres: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    check(every(SEEDS, on(postgres, monkeypatch)))
