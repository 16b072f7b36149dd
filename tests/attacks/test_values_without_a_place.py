"""A server whose spec has no place for some values: whether a device reports must not tell who has one."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privateer_client import Outcome, UnfitValueWarning
from privateer_client.participation import Participation
from privateer_core.mechanisms.signed_symbol import SignedSymbol
from privateer_core.primitives.contributions import KeyedValues
from tests.support.experiments import CONTEXT, OPEN, Device, Server
from tests.support.publications import published
from tests.support.specs import make_spec

SPECS: dict[str, tuple[dict[str, Any], Any, Any]] = {
    "an ordered level that is not listed": ({"levels": [31, 32], "ordered": True}, 31, 57),
    "a number that is missing": ({"low": 0.0, "high": 100.0}, 31.0, None),
    "a rank that is missing": ({"quantiles": [0.0, 31.0, 100.0]}, 31.0, None),
    "a level that is missing": ({"levels": [31, 32]}, 31, None),
    "a level that is not listed": ({"levels": [31, 32]}, 31, 57),
    "a number where yes or no is asked for": ({"boolean": True}, 1, 57),
    "a number where a text is asked for": ({"levels": ["31", "32"]}, "31", 57),
    "a text where a number is asked for": ({"low": 0.0, "high": 100.0, "missing": True}, 31, "57"),
    "a number too large for a number": ({"low": 0.0, "high": 100.0}, 31, 10**400),
}
SOURCE = {"name": "clinic", "people": 2000, "epsilon": 1.0, "shares": [0.5, 0.25, 0.25]}


def traffic(folder: Path, feature: Any, value: Any) -> tuple[int, list[int], list[Any]]:
    """All that anybody but the device sees of a person: how much was asked, the sizes sent, and what was paid."""
    folder.mkdir()
    server = Server(published(make_spec({"context.features": {"age": feature}})))
    device = Device(folder, server)
    session = device.start().join("test")
    session.choose({"age": value})
    assert session.report(1.0) is Outcome.ACCEPTED
    return len(server.asked), [len(body) for body in server.sent], device.ledger().payments()


@pytest.mark.filterwarnings("ignore::privateer_core.errors.UnfitValueWarning")
@pytest.mark.parametrize(("feature", "listed", "other"), SPECS.values(), ids=SPECS)
def test_whoever_has_a_value_sends_and_pays_the_same(tmp_path: Path, feature: Any, listed: Any, other: Any) -> None:
    assert traffic(tmp_path / "listed", feature, listed) == traffic(tmp_path / "other", feature, other)


def test_the_developer_is_told_and_nobody_else(tmp_path: Path) -> None:
    """An application that makes the warning an error keeps the device from reporting: right in its tests alone."""
    feature, _, other = SPECS["an ordered level that is not listed"]
    server = Server(published(make_spec({"context.features": {"age": feature}})))
    session = Device(tmp_path, server).start().join("test")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnfitValueWarning)
        with pytest.raises(UnfitValueWarning, match=r"age: is not one of .* missing \(list it") as told:
            session.choose({"age": other})
    assert "57" not in str(told.value)
    assert server.sent == []


@pytest.mark.parametrize("arm", ["arm-1", "another", "", None, 7, ["arm-1"]])
def test_a_source_hides_whether_its_arm_is_listed(tmp_path: Path, arm: Any) -> None:
    server = Server(published(make_spec({"sources": [SOURCE]})))
    device = Device(tmp_path, server)
    session = device.start().join("test", cohort="clinic")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert session.report_past(CONTEXT, arm, 1.0) is Outcome.ACCEPTED
    assert (len(server.sent), len(device.ledger().payments()), len(told)) == (1, 1, int(arm != "arm-1"))


def test_about_an_arm_that_is_not_listed_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    contributed: list[KeyedValues] = []
    randomize = SignedSymbol.randomize

    def noting(self: SignedSymbol, values: KeyedValues, noise: Any) -> Any:
        contributed.append(values)
        return randomize(self, values, noise)

    monkeypatch.setattr(SignedSymbol, "randomize", noting)
    part = Participation(published(make_spec({"sources": [SOURCE]})), "test", OPEN, "clinic")
    for arm in (-1, 0):
        part.recorded(np.full((100, 2), 0.5), np.full(100, arm), np.ones(100))
    assert [bool((values.keys >= 0).any()) for values in contributed] == [False, True]
