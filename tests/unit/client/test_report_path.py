"""A report takes few files and transactions, because a device's disk is slow."""

from pathlib import Path

import pytest

from privateer_client import Client, Ledger, ReportStatus
from tests.support.devices import StillTime, still
from tests.support.notary import notarized
from tests.support.publications import published
from tests.support.report_path import trace_call
from tests.support.specs import make_spec
from tests.unit.client.test_client import CONTEXT, Service


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> StillTime:
    return still(monkeypatch)


@pytest.mark.parametrize(("seconds", "transactions"), [(0.0, 2), (60.0, 3)], ids=["fresh", "asked again"])
def test_a_report_takes_three_transactions_and_thirteen_files_of_the_device(
    seconds: float, transactions: int, time: StillTime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition under local; after a minute the device fetches the publication again, which is unchanged."""
    service = Service(published(make_spec()))
    session = Client("http://s", ledger=Ledger(tmp_path / "ledger.db"), transport=notarized(service)).join("test")
    session.choose(CONTEXT)
    time.now += seconds
    outcomes: list[ReportStatus] = []
    path = trace_call(monkeypatch, lambda: outcomes.append(session.report(1.0)))
    assert outcomes == [ReportStatus.ACCEPTED]
    print(path)
    assert path.transactions <= transactions
    assert len([file for file in path.files if file.startswith("client/")]) <= 13
    assert len(path.files) <= 25  # of the core: the policy, its mechanism, samplers, the spec's reward, the envelope


def test_a_person_of_many_takes_four_transactions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four transactions choose, load the choice, pay for the report and store the response."""
    client = Client("http://s", ledger=tmp_path / "people.db", transport=notarized(Service(published(make_spec()))))
    client.person("first").arm("test", CONTEXT, default="d", within=10.0)
    outcomes: list[ReportStatus] = []

    def visit() -> None:
        assert client.person("second").arm("test", CONTEXT, default="d", within=10.0).fallback is None
        outcomes.append(client.person("second").report("test", 1.0))

    path = trace_call(monkeypatch, visit)
    assert outcomes == [ReportStatus.ACCEPTED]
    assert path.transactions <= 4
