"""A server that publishes other arms: whether a device reports must not depend on which arm its person got."""

from pathlib import Path
from typing import Any

import pytest

from privateer_client import Outcome
from privateer_core.errors import TermsRefused
from tests.support.experiments import WEEK, Device, Server, waiting_spec
from tests.support.publications import published
from tests.support.specs import make_spec

ARMS = ["arm-0", "arm-1", "arm-2"]
OTHERS = {
    "another name": ["arm-0", "x", "y"],
    "two that changed places": ["arm-0", "arm-2", "arm-1"],
    "one that is gone": ["arm-0", "arm-1"],
    "one in between": ["arm-0", "x", "arm-1", "arm-2"],
}
SOURCE = {"name": "clinic", "people": 2000, "epsilon": 0.5, "shares": [0.5, 0.25, 0.25]}


def chosen(folder: Path, **changes: Any) -> dict[str, Device]:
    """A device for each arm, which has chosen it."""
    devices: dict[str, Device] = {}
    for number in range(200):
        if len(devices) == len(ARMS):
            break
        (folder / str(number)).mkdir()
        device = Device(folder / str(number), Server(published(waiting_spec(**changes))))
        devices.setdefault(device.start().join("test").choose({"x1": 0.3, "x2": 0.9}), device)
    return devices


@pytest.mark.parametrize("arms", OTHERS.values(), ids=OTHERS)
def test_whether_a_device_reports_does_not_tell_its_arm(tmp_path: Path, arms: list[str]) -> None:
    """One publication after another, each with another arm in its place, would find out every person's arm."""
    sent = {}
    for arm, device in chosen(tmp_path).items():
        device.server.moves_on(waiting_spec(**{"experiment.arms": arms}), 2)
        device.clock.time += 1.1 * WEEK
        device.start().resend()
        sent[arm] = len(device.server.sent)
    assert sent == dict.fromkeys(ARMS, 0)


def test_nor_where_nobody_waits(tmp_path: Path) -> None:
    sent = {}
    for number in range(40):
        server = Server(published(make_spec()))
        (tmp_path / str(number)).mkdir()
        device = Device(tmp_path / str(number), server)
        session = device.start().join("test")
        arm = session.choose({"x1": 0.3, "x2": 0.9})
        device.clock.time += 60
        server.moves_on(make_spec({"experiment.arms": OTHERS["another name"]}), 2)
        with pytest.raises(TermsRefused):
            session.report(1.0)
        sent[arm] = len(server.sent)
    assert sent == dict.fromkeys(ARMS, 0)


@pytest.mark.parametrize("arm", ARMS)
def test_nor_of_people_of_a_source(tmp_path: Path, arm: str) -> None:
    """Their arms are secret."""
    server = Server(published(make_spec({"sources": [SOURCE]})))
    device = Device(tmp_path, server)
    session = device.start().join("test", cohort="clinic")
    device.clock.time += 60
    server.moves_on(make_spec({"sources": [SOURCE], "experiment.arms": OTHERS["another name"]}), 2)
    with pytest.raises(TermsRefused):
        session.report_past({"x1": 0.3, "x2": 0.9}, arm, 1.0)
    assert (server.sent, device.ledger().payments()) == ([], [])


def test_more_arms_and_retired_ones_change_nothing(tmp_path: Path) -> None:
    for device in chosen(tmp_path).values():
        arms = {"experiment.arms": [*ARMS, "new"], "experiment.retired": ["arm-0"]}
        device.server.moves_on(waiting_spec(**arms), 2)
        device.clock.time += 1.1 * WEEK
        assert device.start().resend() == {"test": Outcome.ACCEPTED}


def test_a_source_is_not_promised_less_than_when_its_people_joined(tmp_path: Path) -> None:
    """Within the limits of the device, but twice the epsilon that the session has shown."""
    server = Server(published(make_spec({"sources": [SOURCE]})))
    device = Device(tmp_path, server)
    session = device.start().join("test", cohort="clinic")
    device.clock.time += 60
    server.moves_on(make_spec({"sources": [SOURCE | {"epsilon": 1.0}]}), 2)
    with pytest.raises(TermsRefused):
        session.report_past({"x1": 0.3, "x2": 0.9}, "arm-1", 1.0)
    assert (server.sent, device.ledger().payments()) == ([], [])
    device.clock.time += 60
    server.moves_on(make_spec({"sources": [SOURCE]}), 3)
    assert session.report_past({"x1": 0.3, "x2": 0.9}, "arm-1", 1.0) is Outcome.ACCEPTED
