"""A server whose spec refuses some values: whether a person reports tells whether they have one of them."""

from pathlib import Path
from typing import Any

import pytest

from privateer.errors import InputError
from tests.support.experiments import Device, Server
from tests.support.publications import published
from tests.support.specs import make_spec

WHY = "a device refuses what a spec has no place for, and who is refused sends nothing and pays nothing"
SPECS: dict[str, tuple[dict[str, Any], Any, Any]] = {
    "an ordered level that is not listed": ({"levels": [31, 32], "ordered": True}, 31, 57),
    "a value that is missing": ({"low": 0.0, "high": 100.0}, 31.0, None),
}


@pytest.mark.xfail(strict=True, reason=WHY)
@pytest.mark.parametrize(("feature", "one", "other"), SPECS.values(), ids=SPECS)
def test_whether_a_device_reports_does_not_tell_a_value(tmp_path: Path, feature: Any, one: Any, other: Any) -> None:
    """Nothing is paid by who is refused, so the server may go on with other levels until it knows the value."""
    sent, paid = [], []
    for number, value in enumerate([one, other]):
        (tmp_path / str(number)).mkdir()
        server = Server(published(make_spec({"context.features": {"age": feature}})))
        device = Device(tmp_path / str(number), server)
        session = device.start().join("test")
        try:
            session.choose({"age": value})
            session.report(1.0)
        except InputError:
            pass
        sent.append(len(server.sent))
        paid.append(len(device.ledger().payments()))
    assert sent[0] == sent[1]
    assert paid[0] == paid[1]
