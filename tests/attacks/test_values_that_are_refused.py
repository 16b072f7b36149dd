"""A server whose spec refuses some values: who has one sends and pays nothing (docs/threat-model.md)."""

from pathlib import Path
from typing import Any

import pytest

from privateer.errors import InputError
from tests.support.experiments import Device, Server
from tests.support.publications import published
from tests.support.specs import make_spec

SPECS: dict[str, tuple[dict[str, Any], Any, Any]] = {
    "an ordered level that is not listed": ({"levels": [31, 32], "ordered": True}, 31, 57),
    "a value that is missing": ({"low": 0.0, "high": 100.0}, 31.0, None),
}


@pytest.mark.parametrize(("feature", "listed", "refused"), SPECS.values(), ids=SPECS)
def test_who_is_refused_sends_and_pays_nothing(tmp_path: Path, feature: Any, listed: Any, refused: Any) -> None:
    server = Server(published(make_spec({"context.features": {"age": feature}})))
    device = Device(tmp_path, server)
    session = device.start().join("test")
    with pytest.raises(InputError) as told:
        session.choose({"age": refused})
    assert "57" not in str(told.value)
    assert (server.sent, device.ledger().payments()) == ([], [])
    session.choose({"age": listed})
    session.report(1.0)
    assert (len(server.sent), len(device.ledger().payments())) == (1, 1)


def test_a_level_that_is_not_listed_reports_like_any_other(tmp_path: Path) -> None:
    """Planted in the spec: levels without an order, of which one is asked for."""
    server = Server(published(make_spec({"context.features": {"land": {"levels": ["NL", "BE"]}}})))
    device = Device(tmp_path, server)
    session = device.start().join("test")
    session.choose({"land": "FR"})
    session.report(1.0)
    assert (len(server.sent), len(device.ledger().payments())) == (1, 1)
