"""One client for many people: each decides and reports for themselves, and what is nobody's is asked for once."""

import asyncio
import os
import sqlite3
import time as wall
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from privateer_client import AsyncClient, Client, Ledger, Outcome
from privateer_client.ledger.account_protocol import Payment
from privateer_core.errors import AlreadyReported, BudgetExceeded, InputError, RoundClosed, TermsRefused
from privateer_core.wire.problem import problem_body
from tests.support.clocks import Hands
from tests.support.devices import pay
from tests.support.experiments import CONTEXT, OPEN, OTHER, WEEK, Server, waiting_spec
from tests.support.memory_ledgers import MemoryLedger
from tests.support.notary import notarized
from tests.support.publications import published
from tests.support.specs import make_spec

PEOPLE = [f"user-{number}" for number in range(40)]


class Process:
    """A process that serves people, and the server that it asks."""

    def __init__(self, folder: Path, server: Server | None = None) -> None:
        self.folder, self.server = folder, server or Server(published(make_spec()))
        self.clock = Hands()
        self.path = folder / "people.db"

    def start(self, **options: Any) -> Client:
        usual = {"ledger": Ledger(self.path, clock=self.clock), "clock": self.clock, "patience": 0.0, "limits": OPEN}
        return Client("http://s", **usual | {"transport": notarized(self.server)} | options)

    def start_async(self, **options: Any) -> AsyncClient:
        usual = {"ledger": Ledger(self.path, clock=self.clock), "clock": self.clock, "patience": 0.0, "limits": OPEN}
        return AsyncClient("http://s", **usual | {"transport": notarized(self.server)} | options)

    def files(self) -> bytes:
        return b"".join(path.read_bytes() for path in sorted(self.folder.iterdir()) if path.suffix != ".key")


@pytest.fixture
def process(tmp_path: Path) -> Process:
    return Process(tmp_path)


def test_each_person_has_an_arm_and_reports_once(process: Process) -> None:
    client = process.start()
    arms = {key: client.person(key).join("test").choose(CONTEXT) for key in PEOPLE}
    assert len(set(arms.values())) == 3  # one client for all would show one arm: 3 arms or fewer by chance at 3e-7
    assert {key: client.person(key).join("test").choose(OTHER) for key in PEOPLE} == arms
    assert Counter(client.person(key).report("test", 1.0) for key in PEOPLE) == {Outcome.ACCEPTED: 40}
    assert Counter(client.person(key).report("test", 1.0) for key in PEOPLE) == {Outcome.ALREADY_REPORTED: 40}
    assert {key: client.person(key).join("test").choose(OTHER) for key in PEOPLE} == arms
    assert len(set(process.server.sent)) == len(process.server.sent) == 40


def test_the_second_person_asks_nobody_until_the_answer_is_old(process: Process) -> None:
    client = process.start()
    for key in PEOPLE:
        client.person(key).join("test").choose(CONTEXT)
    assert process.server.asked == [None]
    process.clock.time += 5.0
    client.person("another").join("test")
    assert process.server.asked[1:] == [f'"{client.person("a").join("test")._participation.header.digest.hex()}"']
    process.server.moves_on(make_spec(), version=2)
    assert client.person("one more").join("test")._participation.round.version == 1
    process.clock.time += 5.0
    assert client.person("one more").join("test")._participation.round.version == 2


def test_a_pause_that_begins_reaches_everybody(process: Process) -> None:
    client = process.start()
    assert client.person("a").join("test").asked
    process.server.headers = {"privateer-asks": "nobody"}
    process.clock.time += 5.0
    assert not client.person("b").join("test").asked
    process.server.headers = {}
    process.clock.time += 5.0
    assert client.person("c").join("test").asked


def test_another_process_reports_what_this_one_has_decided(process: Process) -> None:
    process.start().person("a").join("test").choose(CONTEXT)
    other = process.start()
    assert other.person("b").report("test", 1.0) is Outcome.NOT_ASKED
    assert other.person("a").report("test", 1.0) is Outcome.ACCEPTED
    assert process.start().person("a").report("test", 1.0) is Outcome.ALREADY_REPORTED


def test_a_number_is_the_person_of_its_text(process: Process) -> None:
    client = process.start()
    client.person(7).join("test").choose(CONTEXT)
    assert client.person("7").report("test", 1.0) is Outcome.ACCEPTED
    assert client.person(7).report("test", 1.0) is Outcome.ALREADY_REPORTED


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
    """All who are not signed in are not one person called None."""
    with pytest.raises(InputError, match="not None for all who are not signed in") as refusal:
        process.start().person(key)
    assert refusal.value.field == "key"


def test_a_client_is_one_person_or_many(process: Process) -> None:
    one, many = process.start(), process.start()
    one.join("test")
    with pytest.raises(InputError, match="this client is one person") as refusal:
        one.person("a")
    assert refusal.value.field == "person"
    person = many.person("a")
    for use in (many.resend, lambda: many.join("test"), lambda: many.report("test", 1.0), many.forget):
        with pytest.raises(InputError, match=r"many people .*client\.person\(key\)"):
            use()
    shown = many.arm("test", CONTEXT, default="d")
    assert shown.name == "d"
    assert "client.person(key)" in str(shown.fallback)
    with pytest.raises(InputError, match="one person"):
        person.person("b")
    with pytest.raises(InputError, match="one person"):
        person.resend_people()


def test_sessions_of_one_client_in_two_contexts_are_refused(process: Process) -> None:
    """What a web server does that takes a client for everybody's."""
    client, sessions = process.start(), {}
    sessions["a"] = client.join("test")
    sessions["a"].choose(CONTEXT)
    sessions["b"] = client.join("test")
    with pytest.raises(InputError, match=r"client\.person\(key\)") as refusal:
        sessions["b"].choose(OTHER)
    assert refusal.value.field == "context"
    assert sessions["a"].report(1.0) is Outcome.ACCEPTED
    sessions.clear()
    assert client.join("test").choose(OTHER)  # one person, whose context has changed


async def test_async_sessions_of_one_client_in_two_contexts_are_refused(process: Process) -> None:
    async with process.start_async() as client:
        first, second = await client.join("test"), await client.join("test")
        await first.choose(CONTEXT)
        with pytest.raises(InputError, match=r"client\.person\(key\)"):
            await second.choose(OTHER)


def test_people_have_budgets_of_their_own(process: Process) -> None:
    ledger = Ledger(process.path, total_epsilon=1.0, per_server_epsilon=1.0)
    for key in "ab":
        pay(ledger.person(key), Payment("http://s/x", 1, "local", 1.0, 0.0, 1.0))
        with pytest.raises(BudgetExceeded, match="limit 1"):
            pay(ledger.person(key), Payment("http://s/y", 1, "local", 0.5, 0.0, 0.5))
        with pytest.raises(AlreadyReported):
            pay(ledger.person(key), Payment("http://s/x", 2, "local", 1.0, 0.0, 1.0))
    assert ledger.payments() == []


def test_without_the_key_of_before_nobody_is_served(process: Process) -> None:
    """Under another key everybody would be a new person, and report again."""
    client = process.start()
    client.person("a").join("test").choose(CONTEXT)
    assert client.person("a").report("test", 1.0) is Outcome.ACCEPTED
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
    assert process.start().person("a").report("test", 1.0) is Outcome.ALREADY_REPORTED


def test_whoever_is_forgotten_leaves_their_payment_alone(process: Process) -> None:
    client = process.start()
    for key in "abc":
        client.person(key).join("test").choose(CONTEXT)
    process.server.answer = httpx.Response(503)
    assert client.person("b").report("test", 1.0) is Outcome.PENDING
    for key in "ab":
        client.person(key).forget()
    process.server.answer = None
    assert client.resend_people() == {}
    assert client.person("a").report("test", 1.0) is Outcome.NOT_ASKED
    assert client.person("b").report("test", 1.0) is Outcome.ALREADY_REPORTED
    assert not client.person("b").join("test").asked
    with closing(sqlite3.connect(process.path)) as database:
        rows = {table: database.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in
                ("choices", "arms", "outbox", "payments")}  # fmt: skip
    assert rows == {"choices": 1, "arms": 1, "outbox": 0, "payments": 1}
    assert client.person("c").report("test", 1.0) is Outcome.ACCEPTED


def test_a_choice_belongs_to_its_person(process: Process) -> None:
    """Whoever can write the file cannot give one person what is another's."""
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


def test_what_is_due_is_made_for_everybody_and_sent_in_an_order_of_its_own(tmp_path: Path) -> None:
    """The order of the file is the same for every experiment, and would tie a person's reports together."""
    orders = []
    process = Process(tmp_path, Server(published(waiting_spec())))
    client = process.start()
    for round_ in range(2):
        name = f"http://s/test-{round_}"
        for key in PEOPLE:
            pay(client.person(key)._account, Payment(name, 1, "local", 0.1, 0.0, 0.1), key.encode())  # type: ignore[arg-type]
    due = [client._people.people_due() for _ in range(2)]
    orders = [[ledger.waiting()[0].body for ledger in people] for people in due]
    assert sorted(orders[0]) == sorted(orders[1]) == sorted(key.encode() for key in PEOPLE)
    assert orders[0] != orders[1]  # equal by chance at 1 / 40!


def test_reports_after_a_window_are_made_by_whoever_comes_round(tmp_path: Path) -> None:
    process = Process(tmp_path, Server(published(waiting_spec())))
    client = process.start()
    for key in PEOPLE:
        client.person(key).join("test").choose(CONTEXT)
    assert client.person(PEOPLE[0]).report("test", 1.0) is Outcome.PENDING
    assert process.start().resend_people() == {}
    assert client._people.people_due() == []
    process.clock.time += 2 * WEEK
    assert len(client._people.people_due()) == 40
    assert process.start().resend_people() == {"test": Counter({Outcome.ACCEPTED: 40})}
    assert process.start().resend_people() == {}
    assert len(set(process.server.sent)) == len(process.server.sent) == 40


def test_a_clock_that_was_ahead_does_not_hold_a_report_for_ever(tmp_path: Path) -> None:
    process = Process(tmp_path, Server(published(waiting_spec())))
    now, process.clock.time = process.clock.time, process.clock.time + 3650 * 86_400.0
    process.start().person("a").join("test").choose(CONTEXT)
    process.clock.time = now
    assert process.start().resend_people() == {}
    process.clock.time += 2 * WEEK
    assert process.start().resend_people() == {"test": Counter({Outcome.ACCEPTED: 1})}


def test_a_server_that_is_away_is_asked_by_one_person(process: Process) -> None:
    client = process.start()
    client.person("first").join("test")
    process.clock.time += 5.0
    process.server.is_down = True
    sessions = [client.person(key).join("test") for key in PEOPLE]
    assert {session.offline for session in sessions} == {True}
    assert len({session.choose(CONTEXT) for session in sessions}) == 3
    assert len(process.server.asked) == 1
    assert client.person("a").report("test", 1.0) is Outcome.NOT_ASKED
    assert client.person(PEOPLE[0]).report("test", 1.0) is Outcome.PENDING
    process.server.is_down = False
    process.clock.time += 5.0
    assert client.person(PEOPLE[0]).report("test", 1.0) is Outcome.ACCEPTED


def test_a_report_that_came_too_late_has_the_next_one_ask_which_round_is_open(process: Process) -> None:
    client = process.start()
    for key in "ab":
        client.person(key).join("test").choose(CONTEXT)
    process.server.moves_on(make_spec(), version=2)
    process.server.answer = httpx.Response(409, content=problem_body(RoundClosed("closed", remedy="none")))
    assert client.person("a").report("test", 1.0) is Outcome.LATE
    process.server.answer = None
    before = len(process.server.asked)
    client.person("b").report("test", 1.0)
    assert len(process.server.asked) == before + 1


def test_a_refusal_is_everybodys(process: Process) -> None:
    client = process.start(limits=None)
    process.server.body = published(make_spec({"privacy.epsilon": 4.0}))
    for key in "abc":
        with pytest.raises(TermsRefused):
            client.person(key).join("test")
    assert len(process.server.asked) == 1


def test_a_ledger_of_another_kind_keeps_one_person(process: Process) -> None:
    client = process.start(ledger=MemoryLedger())
    with pytest.raises(InputError, match="give a Ledger"):
        client.person("a").join("test")


def test_eight_requests_of_one_person_at_once_over_two_processes(process: Process) -> None:
    clients = [process.start(), process.start()]

    def visit(number: int) -> tuple[str, Outcome]:
        person = clients[number % 2].person("a")
        arm = person.join("test").choose({"x1": number / 8, "x2": 0.5})
        return arm, person.report("test", 1.0)

    for _ in range(5):
        clients = [process.start(), process.start()]
        with ThreadPoolExecutor(8) as pool:
            seen = list(pool.map(visit, range(8)))
        assert len({arm for arm, _ in seen}) == 1
    assert (
        len(set(process.server.sent)) == 1
    )  # a request that joins while the report is on its way sends the same bytes


def test_a_process_that_forks_shares_no_connection(process: Process) -> None:
    client = process.start()
    client.person("parent").join("test").choose(CONTEXT)
    child = os.fork()
    if child == 0:
        ended = 1
        try:
            client.person("child").join("test").choose(CONTEXT)
            ended = 0 if client.person("child").report("test", 1.0) is Outcome.ACCEPTED else 2
        finally:
            os._exit(ended)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert client.person("child").report("test", 1.0) is Outcome.ALREADY_REPORTED
    assert client.person("parent").report("test", 1.0) is Outcome.ACCEPTED


async def _longest_gap(doing: Any) -> float:
    """The longest time that the event loop was not there while something was done."""
    longest, last, task = 0.0, wall.monotonic(), asyncio.ensure_future(doing)
    while not task.done():
        await asyncio.sleep(0.001)
        longest, last = max(longest, wall.monotonic() - last), wall.monotonic()
    await task
    return longest


@pytest.mark.parametrize("is_beside", [True, False])
async def test_a_ledger_that_somebody_writes_holds_no_event_loop(process: Process, is_beside: bool) -> None:
    """Half a second long another process writes; the second case shows that the test would see it."""
    async with process.start_async() as client:
        await client.person("warm").join("test")
        session = await client.person("a").join("test")
        with closing(sqlite3.connect(process.path, isolation_level=None, check_same_thread=False)) as other:
            other.execute("BEGIN IMMEDIATE")
            release = asyncio.get_running_loop().run_in_executor(
                None, lambda: (wall.sleep(0.5), other.execute("COMMIT"))
            )

            async def on_the_loop() -> None:
                session._session.choose(CONTEXT)

            gap = await _longest_gap(session.choose(CONTEXT) if is_beside else on_the_loop())
            await release
        assert (gap < 0.25) is is_beside
        assert await client.person("a").report("test", 1.0) is Outcome.ACCEPTED


async def test_async_people_are_the_same_people(process: Process) -> None:
    async with process.start_async() as client:
        arms = [await client.person(key).arm("test", CONTEXT, default="d", within=5.0) for key in PEOPLE]
        assert {arm.fallback for arm in arms} == {None}
        assert [await client.person(key).report("test", 1.0) for key in PEOPLE] == [Outcome.ACCEPTED] * 40
        assert await client.resend_people() == {}
        await client.person(PEOPLE[0]).forget()
    assert process.start().person(PEOPLE[0]).report("test", 1.0) is Outcome.ALREADY_REPORTED
    assert process.server.asked == [None]


async def test_async_people_who_come_at_once_ask_once(process: Process) -> None:
    async with process.start_async() as client:
        sessions = await asyncio.gather(*(client.person(key).join("test") for key in PEOPLE))
        assert all(session.asked for session in sessions)
    assert process.server.asked == [None]


def test_a_request_that_was_left_half_way_holds_nobody_for_ever(process: Process) -> None:
    client = process.start()
    left = client.person("a")._joining(client._exchange.run, "test", "")
    left.send(None)  # it asks, and its application never goes on
    for _ in range(3):
        process.clock.time += 20.0
    assert client.person("b").join("test").asked
