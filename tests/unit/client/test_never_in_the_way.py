"""An experiment neither delays a page nor breaks it: the default is shown in time, with a logged reason."""

import asyncio
import json
import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from privateer_client import AsyncClient, Client, Ledger, ReportStatus, arm
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
    within = 1 if case["service"] == "hangs" else 5
    words = case["words"].format(url=url, seconds=within)
    client = Client(url, ledger=tmp_path / "x.db", timeout=5.0)
    arms, seconds = list[Any](), list[float]()
    for _ in range(3):
        began = time.monotonic()
        arms.append(client.arm("test", CONTEXT, default="control", within=within))
        seconds.append(time.monotonic() - began)
    assert max(seconds) < within + _GRACE
    if case["service"] == "hangs":
        assert max(seconds[1:]) < _GRACE / 2  # whoever hangs has had its time
    assert [arm.name for arm in arms] == ["control"] * 3
    assert all(arm.fallback.startswith(words) for arm in arms)
    assert [arm.report(1.0) for arm in arms] == [ReportStatus.NOT_REQUESTED] * 3
    assert len(caplog.messages) == 1  # each reason is told once
    assert words in caplog.text

    async def page() -> list[Any]:
        async with AsyncClient(url, ledger=tmp_path / "y.db", timeout=2.0) as client:
            began = time.monotonic()
            arm = await client.arm("test", CONTEXT, default="control", within=within)
            return [time.monotonic() - began, arm.name, arm.fallback, await arm.report(1.0)]

    took, name, reason, outcome = asyncio.run(page())
    assert took < within + _GRACE
    assert (name, outcome) == ("control", ReportStatus.NOT_REQUESTED)
    assert reason.startswith(words)


def test_a_ledger_that_another_program_has_locked_holds_no_page(tmp_path: Path) -> None:
    """SQLite waits ten seconds for a lock; a page waits for its own limit."""
    path = tmp_path / "x.db"
    Ledger(path)

    async def page(url: str) -> Any:
        async with AsyncClient(url, ledger=path) as client:
            arm = await client.arm("test", CONTEXT, default="control", within=_WITHIN)
            other_program.rollback()  # or the end of the loop would wait for the thread
            return arm

    with LISTENING["hangs"]() as url, closing(sqlite3.connect(path, check_same_thread=False)) as other_program:
        for show in (
            lambda: Client(url, ledger=path).arm("test", CONTEXT, default="control", within=_WITHIN),
            lambda: asyncio.run(page(url)),
        ):
            other_program.execute("BEGIN EXCLUSIVE")
            began = time.monotonic()
            shown = show()
            assert time.monotonic() - began < 5
            reason = f"the ledger did not answer within {_WITHIN:g} s (try again later)"
            assert (shown.name, shown.fallback) == ("control", reason)
            other_program.rollback()


def test_a_ledger_that_another_program_reads_holds_no_page(tmp_path: Path) -> None:
    device = Device(tmp_path, Server(published(make_spec())))
    client = device.start()
    client.join("test")
    with closing(sqlite3.connect(device.ledger().path, isolation_level=None)) as backup:
        backup.execute("BEGIN")
        backup.execute("SELECT * FROM payments").fetchall()
        shown = client.arm("test", CONTEXT, default="control", within=_WITHIN)
        backup.rollback()
    # What was promised would wait for the reader when it ends, and then say that the ledger cannot be used.
    assert (shown.fallback or "").startswith("the ledger did not answer within")


def test_a_ledger_that_is_being_opened_holds_no_other_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    is_opening, can_open, open_ledger = threading.Event(), threading.Event(), Ledger.__init__

    def open_slowly(*arguments: Any, **options: Any) -> None:
        is_opening.set()
        can_open.wait()
        open_ledger(*arguments, **options)

    monkeypatch.setattr(Ledger, "__init__", open_slowly)
    client = Client("http://s", ledger=tmp_path / "x.db")
    opening = threading.Thread(target=lambda: client.person("a").head, daemon=True)
    opening.start()
    is_opening.wait()
    other_request = threading.Thread(target=client.person, args=("b",), daemon=True)
    other_request.start()
    other_request.join(60.0)
    is_held = other_request.is_alive()
    can_open.set()
    opening.join()
    assert not is_held


def delay_server(server: Server, seconds: float) -> Callable[[Any], Any]:
    def answer(request: Any) -> Any:
        time.sleep(seconds)
        return server(request)

    return answer


def test_a_slow_server_serves_the_next_page(tmp_path: Path) -> None:
    server = Server(published(make_spec()))
    device = Device(tmp_path, server)
    client = device.start(transport=notarized(delay_server(server, 0.5)))
    first = client.arm("test", CONTEXT, default="control", within=_WITHIN)
    assert (first.name, first.report(1.0)) == ("control", ReportStatus.NOT_REQUESTED)
    time.sleep(1.5)
    second = client.arm("test", CONTEXT, default="control", within=_WITHIN)
    assert (second.name in ("arm-0", "arm-1", "arm-2"), second.fallback) == (True, None)
    assert second.report(1.0) is ReportStatus.ACCEPTED
    # The application starts anew, and a server that is slow costs a person who has an arm neither time nor that arm.
    client = device.start(transport=notarized(delay_server(server, 0.5)))
    third = client.arm("test", OTHER, default="control", within=_WITHIN)
    assert (third.name, third.fallback) == (second.name, None)
    assert third.report(0.0) is ReportStatus.ALREADY_REPORTED


@pytest.mark.parametrize(
    ("name", "context", "field"),
    [("test", {}, "x1"), ("test", {**CONTEXT, "other": 1}, "other"), ("typo", CONTEXT, "")],
)
def test_a_developers_mistake_shows_the_default_arm(tmp_path, name, context, field):
    device = Device(tmp_path, Server(published(make_spec())))
    arm = device.start().arm(name, context, default="control", within=5.0)
    assert arm.name == "control"
    assert field in (arm.fallback or "")
    assert "0.3" not in (arm.fallback or "")


def test_construction_opens_no_file_thread_or_connection(tmp_path: Path) -> None:
    """A page that never chooses an arm opens no file, thread or connection."""
    threads = threading.active_count()
    folder = tmp_path / "nowhere"
    for client_class in (Client, AsyncClient):
        client_class("http://127.0.0.1:9", ledger=folder / "x.db")
    assert (folder.exists(), threading.active_count()) == (False, threads)
    default_arm = Client("http://127.0.0.1:9", ledger="/dev/null/x.db").arm("test", default="control", within=5.0)
    assert (default_arm.name, (default_arm.fallback or "").partition(":")[0]) == ("control", "ledger")


def test_a_path_is_a_ledger(tmp_path: Path) -> None:
    device = Device(tmp_path, Server(published(make_spec())))
    for path in (tmp_path / "one.db", str(tmp_path / "two.db")):
        session = device.start(ledger=path).join("test")
        session.choose(CONTEXT)
        assert session.report(1.0) is ReportStatus.ACCEPTED
        assert len(Ledger(path).payments()) == 1


def test_the_four_lines_can_be_run_twice(tmp_path: Path) -> None:
    device = Device(tmp_path, Server(published(make_spec())))
    arms, outcomes = set(), []
    for _ in range(2):
        session = device.start().join("test")
        arms.add(session.choose(CONTEXT))
        outcomes.append(session.report(1.0))
    assert (len(arms), outcomes) == (1, [ReportStatus.ACCEPTED, ReportStatus.ALREADY_REPORTED])


def test_a_reason_is_told_once_for_all_clients_of_a_process(tmp_path, caplog, monkeypatch):
    times = [0.0]
    monkeypatch.setattr(arm, "monotonic", lambda: times[0])
    monkeypatch.setattr(arm, "_log_times", {})
    with LISTENING["closed"]() as url:
        shared = Client(url, ledger=tmp_path / "people.db")
        clients = [shared.person(key) for key in "abc"] + [Client(url, ledger=tmp_path / f"{key}.db") for key in "abc"]
        for _ in range(2):
            for client in clients:
                client.arm("test", CONTEXT, default="control", within=5.0)
            times[0] += 3600.0
    assert len(caplog.messages) == 2
