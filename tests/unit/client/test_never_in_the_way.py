"""An experiment costs no page its time or its errors: the default is shown at once, and why is said."""

import asyncio
import json
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from privateer_client import AsyncClient, Client, Ledger, Outcome
from tests.support.experiments import CONTEXT, OTHER, Device, Server
from tests.support.notary import notarized
from tests.support.publications import published
from tests.support.silent_services import LISTENING
from tests.support.specs import make_spec

_WITHIN = 0.15
_GRACE = 0.25
"""Seconds that a busy machine may add."""
CONNECTIONS = json.loads(Path("docs/behaviour.json").read_text())["connections"]


@pytest.mark.parametrize("case", CONNECTIONS, ids=lambda case: case["service"])
def test_the_default_is_shown_in_time(tmp_path: Path, case: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "privateer.client")
    with LISTENING[case["service"]]() as url:
        _shown_in_time(tmp_path, url, case, caplog)


def _shown_in_time(tmp_path: Path, url: str, case: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    # Who says no at once has time to say so, on a machine that is busy.
    within = _WITHIN if case["service"] == "hangs" else 5.0
    words = case["words"].format(url=url, seconds=within)
    client = Client(url, ledger=tmp_path / "x.db", timeout=5.0)
    shown, seconds = list[Any](), list[float]()
    for _ in range(3):
        began = time.monotonic()
        shown.append(client.arm("test", CONTEXT, default="control", within=within))
        seconds.append(time.monotonic() - began)
    assert max(seconds) < within + _GRACE
    if case["service"] == "hangs":
        assert max(seconds[1:]) < _GRACE / 2  # whoever hangs has had its time
    assert [one.name for one in shown] == ["control"] * 3
    assert all(one.fallback.startswith(words) for one in shown)
    assert [one.report(1.0) for one in shown] == [Outcome.NOT_ASKED] * 3
    assert len(caplog.messages) == 1  # each reason is told once
    assert words in caplog.text

    async def page() -> list[Any]:
        async with AsyncClient(url, ledger=tmp_path / "y.db", timeout=0.4) as client:
            began = time.monotonic()
            arm = await client.arm("test", CONTEXT, default="control", within=within)
            return [time.monotonic() - began, arm.name, arm.fallback, await arm.report(1.0)]

    took, name, why, outcome = asyncio.run(page())
    assert took < within + _GRACE
    assert (name, outcome) == ("control", Outcome.NOT_ASKED)
    assert why.startswith(words)


def slow(server: Server, seconds: float) -> Callable[[Any], Any]:
    def answer(request: Any) -> Any:
        time.sleep(seconds)
        return server(request)

    return answer


def test_a_slow_server_serves_the_next_page(tmp_path: Path) -> None:
    server = Server(published(make_spec()))
    device = Device(tmp_path, server)
    client = device.start(transport=notarized(slow(server, 0.5)))
    first = client.arm("test", CONTEXT, default="control", within=_WITHIN)
    assert (first.name, first.report(1.0)) == ("control", Outcome.NOT_ASKED)
    time.sleep(1.5)
    second = client.arm("test", CONTEXT, default="control", within=_WITHIN)
    assert (second.name in ("arm-0", "arm-1", "arm-2"), second.fallback) == (True, None)
    assert second.report(1.0) is Outcome.ACCEPTED
    # The application starts anew, and a server that is slow costs a person who has an arm neither time nor that arm.
    client = device.start(transport=notarized(slow(server, 0.5)))
    third = client.arm("test", OTHER, default="control", within=_WITHIN)
    assert (third.name, third.fallback) == (second.name, None)
    assert third.report(0.0) is Outcome.ALREADY_REPORTED


@pytest.mark.parametrize(
    ("name", "context", "field"),
    [("test", {}, "x1"), ("test", {**CONTEXT, "other": 1}, "other"), ("typo", CONTEXT, "")],
)
def test_what_a_developer_gets_wrong_is_no_error_of_the_page(
    tmp_path: Path, name: str, context: dict[str, Any], field: str
) -> None:
    device = Device(tmp_path, Server(published(make_spec())))
    shown = device.start().arm(name, context, default="control", within=5.0)
    assert shown.name == "control"
    assert field in (shown.fallback or "")
    assert "0.3" not in (shown.fallback or "")


def test_construction_does_nothing(tmp_path: Path) -> None:
    """No file, no thread and no connection: a page that is drawn elsewhere, or never asks, pays for nothing."""
    threads = threading.active_count()
    folder = tmp_path / "nowhere"
    for made in (Client, AsyncClient):
        made("http://127.0.0.1:9", ledger=folder / "x.db")
    assert (folder.exists(), threading.active_count()) == (False, threads)
    shown = Client("http://127.0.0.1:9", ledger="/dev/null/x.db").arm("test", default="control", within=5.0)
    assert (shown.name, (shown.fallback or "").partition(":")[0]) == ("control", "ledger")


def test_a_path_is_a_ledger(tmp_path: Path) -> None:
    device = Device(tmp_path, Server(published(make_spec())))
    for path in (tmp_path / "one.db", str(tmp_path / "two.db")):
        session = device.start(ledger=path).join("test")
        session.choose(CONTEXT)
        assert session.report(1.0) is Outcome.ACCEPTED
        assert len(Ledger(path).payments()) == 1


def test_the_four_lines_can_be_run_twice(tmp_path: Path) -> None:
    device = Device(tmp_path, Server(published(make_spec())))
    arms, outcomes = set(), []
    for _ in range(2):
        session = device.start().join("test")
        arms.add(session.choose(CONTEXT))
        outcomes.append(session.report(1.0))
    assert (len(arms), outcomes) == (1, [Outcome.ACCEPTED, Outcome.ALREADY_REPORTED])
