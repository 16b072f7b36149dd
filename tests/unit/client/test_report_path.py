"""A report takes few files and few transactions of the device, whose disk is slow."""

from pathlib import Path

import pytest

from privateer_client import Client, Ledger, Outcome
from tests.support.devices import StillTime, still
from tests.support.notary import notarized
from tests.support.publications import published
from tests.support.report_path import traced
from tests.support.specs import make_spec
from tests.unit.client.test_client import CONTEXT, Service


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> StillTime:
    return still(monkeypatch)


@pytest.mark.parametrize("seconds", [0.0, 60.0], ids=["fresh", "asked again"])
def test_a_report_takes_three_transactions_and_fifteen_files_of_the_device(
    seconds: float, time: StillTime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition under local; after a minute the device asks again which round is open, and gets the same one."""
    service = Service(published(make_spec()))
    session = Client("http://s", ledger=Ledger(tmp_path / "ledger.db"), transport=notarized(service)).join("test")
    session.choose(CONTEXT)
    time.now += seconds
    outcomes: list[Outcome] = []
    path = traced(monkeypatch, lambda: outcomes.append(session.report(1.0)))
    assert outcomes == [Outcome.ACCEPTED]
    print(path)
    assert path.transactions <= 3
    files = path.files - {"client/privateer_client/given_transport.py"}  # the test's own way to its server
    assert len([file for file in files if file.startswith("client/")]) <= 15
    assert len(files) <= 34  # of the core: the policy, its mechanism, samplers, the spec's reward, the envelope
