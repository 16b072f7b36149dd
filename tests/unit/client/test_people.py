"""A client of many participants: each participant chooses and reports alone, and shared requests are made once."""

import os
import sqlite3
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from privateer_client import Ledger, ReportStatus
from privateer_client.ledger.account_protocol import Payment
from privateer_core.errors import AlreadyReported, BudgetExceeded, InputError, RoundClosed, TermsRefused
from privateer_core.wire.problem import problem_body
from tests.support.devices import pay
from tests.support.experiments import CONTEXT, OTHER, WEEK, Server, waiting_spec
from tests.support.memory_ledgers import MemoryLedger
from tests.support.processes import PEOPLE, Process
from tests.support.publications import published
from tests.support.specs import make_spec


@pytest.fixture
def process(tmp_path: Path) -> Process:
    return Process(tmp_path)


def test_each_person_has_an_arm_and_reports_once(process: Process) -> None:
    client = process.start()
    arms = {key: client.person(key).join("test").choose(CONTEXT) for key in PEOPLE}
    assert len(set(arms.values())) == 3  # one client for all would show one arm: 3 arms or fewer by chance at 3e-7
    assert {key: client.person(key).join("test").choose(OTHER) for key in PEOPLE} == arms
    assert Counter(client.person(key).report("test", 1.0) for key in PEOPLE) == {ReportStatus.ACCEPTED: 40}
    assert Counter(client.person(key).report("test", 1.0) for key in PEOPLE) == {ReportStatus.ALREADY_REPORTED: 40}
    assert {key: client.person(key).join("test").choose(OTHER) for key in PEOPLE} == arms
    assert len(set(process.server.posts)) == len(process.server.posts) == 40


def test_participants_share_a_fresh_publication(process: Process) -> None:
    client = process.start()
    for key in PEOPLE:
        client.person(key).join("test").choose(CONTEXT)
    assert process.server.etags == [None]
    process.clock.time += 5.0
    client.person("another").join("test")
    assert process.server.etags[1:] == [f'"{client.person("a").join("test")._participation.header.digest.hex()}"']
    process.server.moves_on(make_spec(), version=2)
    assert client.person("one more").join("test")._participation.round.version == 1
    process.clock.time += 5.0
    assert client.person("one more").join("test")._participation.round.version == 2


def test_a_pause_that_begins_reaches_everybody(process: Process) -> None:
    client = process.start()
    assert client.person("a").join("test").report_requested
    process.server.headers = {"privateer-asks": "nobody"}
    process.clock.time += 5.0
    assert not client.person("b").join("test").report_requested
    process.server.headers = {}
    process.clock.time += 5.0
    assert client.person("c").join("test").report_requested


def test_another_process_reports_what_this_one_has_decided(process: Process) -> None:
    process.start().person("a").join("test").choose(CONTEXT)
    other = process.start()
    assert other.person("b").report("test", 1.0) is ReportStatus.NOT_REQUESTED
    assert other.person("a").report("test", 1.0) is ReportStatus.ACCEPTED
    assert process.start().person("a").report("test", 1.0) is ReportStatus.ALREADY_REPORTED


def test_a_numeric_key_equals_its_text(process: Process) -> None:
    client = process.start()
    client.person(7).join("test").choose(CONTEXT)
    assert client.person("7").report("test", 1.0) is ReportStatus.ACCEPTED
    assert client.person(7).report("test", 1.0) is ReportStatus.ALREADY_REPORTED


def test_files_do_not_name_people_nor_show_contexts(process: Process) -> None:
    client = process.start()
    for key in PEOPLE:
        client.person(key).join("test").choose(CONTEXT)
    files = process.files()
    assert b"http://s/test" in files  # the test can see
    numbers = np.array(list(CONTEXT.values()))
    assert not any(secret in files for secret in [*(key.encode() for key in PEOPLE), numbers.tobytes()])


@pytest.mark.parametrize("key", ["", None, True, 1.5, b"a"])
def test_a_person_without_a_name_is_refused(process: Process, key: Any) -> None:
    """Visitors without a key are not a common participant named None."""
    with pytest.raises(InputError, match="not None for all who are not signed in") as refusal:
        process.start().person(key)
    assert refusal.value.field == "key"


def test_a_client_is_one_person_or_many(process: Process) -> None:
    single_client, shared = process.start(), process.start()
    single_client.join("test")
    with pytest.raises(InputError, match="this client is one person") as refusal:
        single_client.person("a")
    assert refusal.value.field == "person"
    person = shared.person("a")
    for use in (shared.flush, lambda: shared.join("test"), lambda: shared.report("test", 1.0), shared.forget):
        with pytest.raises(InputError, match=r"many people .*client\.person\(key\)"):
            use()
    arm = shared.arm("test", CONTEXT, default="d")
    assert arm.name == "d"
    assert "client.person(key)" in str(arm.fallback)
    with pytest.raises(InputError, match="one person"):
        person.person("b")
    with pytest.raises(InputError, match="one person"):
        person.flush_people()


def test_sessions_of_one_client_in_two_contexts_are_refused(process: Process) -> None:
    """A web server that uses a single client for all its visitors is refused."""
    client, sessions = process.start(), {}
    sessions["a"] = client.join("test")
    sessions["a"].choose(CONTEXT)
    sessions["b"] = client.join("test")
    with pytest.raises(InputError, match=r"client\.person\(key\)") as refusal:
        sessions["b"].choose(OTHER)
    assert refusal.value.field == "context"
    assert sessions["a"].report(1.0) is ReportStatus.ACCEPTED
    sessions.clear()
    assert client.join("test").choose(OTHER)  # one person, whose context has changed


def test_people_have_budgets_of_their_own(process: Process) -> None:
    ledger = Ledger(process.path, total_epsilon=1.0, per_server_epsilon=1.0)
    for key in "ab":
        pay(ledger.person(key), Payment("http://s/x", 1, "local", 1.0, 0.0, 1.0))
        with pytest.raises(BudgetExceeded, match="limit 1"):
            pay(ledger.person(key), Payment("http://s/y", 1, "local", 0.5, 0.0, 0.5))
        with pytest.raises(AlreadyReported):
            pay(ledger.person(key), Payment("http://s/x", 2, "local", 1.0, 0.0, 1.0))
    assert ledger.payments() == []


def test_another_key_cannot_open_the_ledger_of_participants(process: Process) -> None:
    """Under another key all participants would be new, and report again."""
    client = process.start()
    client.person("a").join("test").choose(CONTEXT)
    assert client.person("a").report("test", 1.0) is ReportStatus.ACCEPTED
    key = process.path.with_name("people.db.key")
    content = key.read_bytes()
    key.unlink()
    for _ in range(2):
        with pytest.raises(InputError, match="all would report again"):
            process.start().person("a").join("test")
    assert not key.exists()
    key.write_bytes(bytes(32))
    with pytest.raises(InputError, match="all would report again"):
        process.start().person("a").join("test")
    key.write_bytes(content)
    assert process.start().person("a").report("test", 1.0) is ReportStatus.ALREADY_REPORTED


def test_forgetting_a_participant_keeps_the_payment(process: Process) -> None:
    client = process.start()
    for key in "abc":
        client.person(key).join("test").choose(CONTEXT)
    process.server.answer = httpx.Response(503)
    assert client.person("b").report("test", 1.0) is ReportStatus.PENDING
    for key in "ab":
        client.person(key).forget()
    process.server.answer = None
    assert client.flush_people() == {}
    assert client.person("a").report("test", 1.0) is ReportStatus.NOT_REQUESTED
    assert client.person("b").report("test", 1.0) is ReportStatus.ALREADY_REPORTED
    assert not client.person("b").join("test").report_requested
    with closing(sqlite3.connect(process.path)) as database:
        rows = {table: database.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in
                ("choices", "arms", "outbox", "payments")}  # fmt: skip
    assert rows == {"choices": 1, "arms": 1, "outbox": 0, "payments": 1}
    assert client.person("c").report("test", 1.0) is ReportStatus.ACCEPTED


def test_a_choice_belongs_to_its_person(process: Process) -> None:
    """A program that can write the file cannot give a participant the choice of another participant."""
    client = process.start()
    for key in "ab":
        client.person(key).join("test").choose(CONTEXT)
    with closing(sqlite3.connect(process.path)) as database:
        (first, body), (second, other) = database.execute("SELECT person, body FROM choices").fetchall()
        database.execute("UPDATE choices SET body = ? WHERE person = ?", (other, first))
        database.execute("UPDATE choices SET body = ? WHERE person = ?", (body, second))
        database.commit()
    for key in "ab":
        with pytest.raises(InputError, match="cannot be read"):
            client.person(key).join("test")


def test_due_reports_of_all_participants_are_sent_in_a_random_order(tmp_path: Path) -> None:
    """The order of the file is the same for every experiment, and would tie a person's reports together."""
    orders = []
    process = Process(tmp_path, Server(published(waiting_spec())))
    client: Any = process.start()
    for round_ in range(2):
        name = f"http://s/test-{round_}"
        for key in PEOPLE:
            pay(client.person(key)._account, Payment(name, 1, "local", 0.1, 0.0, 0.1), key.encode())
    due = [client._open_ledger.ledgers_due() for _ in range(2)]
    orders = [[ledger.pending_reports()[0].body for ledger in people] for people in due]
    assert sorted(orders[0]) == sorted(orders[1]) == sorted(key.encode() for key in PEOPLE)
    assert orders[0] != orders[1]  # equal by chance at 1 / 40!


def test_reports_after_a_window_are_made_by_any_process(tmp_path: Path) -> None:
    process = Process(tmp_path, Server(published(waiting_spec())))
    client: Any = process.start()
    for key in PEOPLE:
        client.person(key).join("test").choose(CONTEXT)
    assert client.person(PEOPLE[0]).report("test", 1.0) is ReportStatus.PENDING
    assert process.start().flush_people() == {}
    assert client._open_ledger.ledgers_due() == []
    process.clock.time += 2 * WEEK
    assert len(client._open_ledger.ledgers_due()) == 40
    assert process.start().flush_people() == {"test": Counter({ReportStatus.ACCEPTED: 40})}
    assert process.start().flush_people() == {}
    assert len(set(process.server.posts)) == len(process.server.posts) == 40


def test_a_clock_that_was_ahead_does_not_block_a_report(tmp_path: Path) -> None:
    process = Process(tmp_path, Server(published(waiting_spec())))
    now, process.clock.time = process.clock.time, process.clock.time + 3650 * 86_400.0
    process.start().person("a").join("test").choose(CONTEXT)
    process.clock.time = now
    assert process.start().flush_people() == {}
    process.clock.time += 2 * WEEK
    assert process.start().flush_people() == {"test": Counter({ReportStatus.ACCEPTED: 1})}


def test_an_unreachable_server_is_requested_once_for_all_participants(process: Process) -> None:
    client = process.start()
    client.person("first").join("test")
    process.clock.time += 5.0
    process.server.is_down = True
    sessions = [client.person(key).join("test") for key in PEOPLE]
    assert {session.offline for session in sessions} == {True}
    assert len({session.choose(CONTEXT) for session in sessions}) == 3
    assert len(process.server.etags) == 1
    assert client.person("a").report("test", 1.0) is ReportStatus.NOT_REQUESTED
    assert client.person(PEOPLE[0]).report("test", 1.0) is ReportStatus.PENDING
    process.server.is_down = False
    process.clock.time += 5.0
    assert client.person(PEOPLE[0]).report("test", 1.0) is ReportStatus.ACCEPTED


def test_a_late_report_refreshes_the_publication_for_the_next_one(process: Process) -> None:
    client = process.start()
    for key in "ab":
        client.person(key).join("test").choose(CONTEXT)
    process.server.moves_on(make_spec(), version=2)
    process.server.answer = httpx.Response(409, content=problem_body(RoundClosed("closed", remedy="none")))
    assert client.person("a").report("test", 1.0) is ReportStatus.LATE
    process.server.answer = None
    before = len(process.server.etags)
    client.person("b").report("test", 1.0)
    assert len(process.server.etags) == before + 1


def test_a_refused_publication_is_refused_for_all_participants(process: Process) -> None:
    client = process.start(limits=None)
    process.server.body = published(make_spec({"privacy.epsilon": 4.0}))
    for key in "abc":
        with pytest.raises(TermsRefused):
            client.person(key).join("test")
    assert len(process.server.etags) == 1


def test_a_ledger_of_another_kind_keeps_one_person(process: Process) -> None:
    client = process.start(ledger=MemoryLedger())
    with pytest.raises(InputError, match="give a Ledger"):
        client.person("a").join("test")


def test_eight_requests_of_one_person_at_once_over_two_processes(process: Process) -> None:
    clients = [process.start(), process.start()]

    def visit(number: int) -> tuple[str, ReportStatus]:
        person = clients[number % 2].person("a")
        arm = person.join("test").choose({"x1": number / 8, "x2": 0.5})
        return arm, person.report("test", 1.0)

    for _ in range(5):
        clients = [process.start(), process.start()]
        with ThreadPoolExecutor(8) as pool:
            visits = list(pool.map(visit, range(8)))
        assert len({arm for arm, _ in visits}) == 1
    assert (
        len(set(process.server.posts)) == 1
    )  # a request that joins while the report is on its way sends the same bytes


def test_reports_of_a_forgotten_participant_are_not_sent_again(process, monkeypatch):
    """A participant is erased by another request between two attempts to send a report."""
    client = process.start(retry_timeout=10.0)
    client.person("a").join("test").choose(CONTEXT)
    process.server.answer = httpx.Response(503)

    def forget(_: float) -> None:
        client.person("a").forget()
        process.server.answer = None

    monkeypatch.setattr("privateer_client.transport.sleep", forget)
    assert client.person("a").report("test", 1.0) is ReportStatus.ALREADY_REPORTED
    assert len(process.server.posts) == 1


def test_a_process_that_forks_shares_no_connection(process: Process) -> None:
    client = process.start()
    client.person("parent").join("test").choose(CONTEXT)
    child = os.fork()
    if child == 0:
        ended = 1
        try:
            client.person("child").join("test").choose(CONTEXT)
            ended = 0 if client.person("child").report("test", 1.0) is ReportStatus.ACCEPTED else 2
        finally:
            os._exit(ended)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert client.person("child").report("test", 1.0) is ReportStatus.ALREADY_REPORTED
    assert client.person("parent").report("test", 1.0) is ReportStatus.ACCEPTED


def test_a_cancelled_request_does_not_block_other_participants(process: Process) -> None:
    client = process.start()
    steps = client.person("a")._join_steps(client._exchange.run, "test", "")
    steps.send(None)  # it asks, and its application never goes on
    for _ in range(3):
        process.clock.time += 20.0
    assert client.person("b").join("test").report_requested


def test_a_measurement_of_services_that_do_not_answer_is_refused() -> None:
    run = [sys.executable, "-m", "tests.people", "--server", "http://127.0.0.1:1"]
    refusal = subprocess.run(run, capture_output=True, text=True, cwd=Path(__file__).parents[3])
    line = "error: nothing listens at http://127.0.0.1:1 (try again later)\n"
    assert (refusal.returncode, refusal.stdout, refusal.stderr) == (2, "", line)
