"""The same lists on PostgreSQL, where two servers share their data."""

import pytest

from tests.faults.runs import every
from tests.faults.shared_world import on
from tests.support.postgres import Cluster


@pytest.mark.postgres
def test_faults_of_shared_data_lose_and_double_nothing(postgres: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = every(range(15), on(postgres, monkeypatch))
    print(dict(figures))
    assert figures["deaths"] > 10
    assert figures["rounds"] > 30
