"""Connections and bodies: admission, budgets, turns, and limits."""

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass

import msgspec
import pytest

from privateer_core.errors import SpecError, TooLarge, Unavailable
from privateer_core.serving.admission import ExperimentSize, RoundSize, ServerLimits, ShufflerLimits, raise_refusals
from privateer_core.serving.connections import Connections, ConnectionStage
from privateer_core.serving.fair_queue import SenderQueue
from privateer_core.serving.http.bodies import Body, Budget, Reservation, verify_digest
from privateer_core.wire.batch import UPLOAD
from privateer_core.wire.publication import MESSAGES_MAX


class FakeConnection:
    def __init__(self, table: Connections, sender: str = "") -> None:
        self.sender = sender
        self.stage, self.table, self.dropped, self.due = ConnectionStage.WAITING, table, False, float("inf")

    def is_overdue(self, now: float) -> bool:
        return now > self.due

    def drop(self) -> None:
        self.dropped = True
        self.table.leave(self)


async def test_the_oldest_idle_connection_is_closed_first() -> None:
    table = Connections(3)
    working, first, second, third = (FakeConnection(table) for _ in range(4))
    table.enter(working)
    table.move(working, ConnectionStage.WORKING)
    for connection in (first, second, third):
        table.enter(connection)
    assert [connection.dropped for connection in (working, first, second, third)] == [False, True, False, False]


async def test_a_reading_connection_is_closed_before_a_working_one() -> None:
    table = Connections(2)
    working, reading, newcomer = (FakeConnection(table) for _ in range(3))
    for connection, stage in ((working, ConnectionStage.WORKING), (reading, ConnectionStage.READING)):
        table.enter(connection)
        table.move(connection, stage)
    table.enter(newcomer)
    assert [connection.dropped for connection in (working, reading, newcomer)] == [False, True, False]


async def test_a_connection_that_idles_again_is_the_youngest() -> None:
    table = Connections(2)
    first, second, third = (FakeConnection(table) for _ in range(3))
    for connection in (first, second):
        table.enter(connection)
    table.move(first, ConnectionStage.WORKING)
    table.move(first, ConnectionStage.WAITING)
    table.enter(third)
    assert [connection.dropped for connection in (first, second, third)] == [False, True, False]


async def test_overdue_connections_are_dropped_and_leave_the_table() -> None:
    table = Connections(10)
    late, early = FakeConnection(table), FakeConnection(table)
    table.enter(late)
    table.enter(early)
    late.due = 0.0
    async with asyncio.timeout(20):
        while not late.dropped:
            await asyncio.sleep(0.01)
    assert not early.dropped
    early.drop()
    assert len(table) == 0
    table.move(early, ConnectionStage.READING)  # one that left stays out
    assert len(table) == 0


def enter_slow(table: Connections, sender: str) -> FakeConnection:
    connection = FakeConnection(table, sender)
    table.enter(connection)
    return connection


async def test_the_slowest_connection_of_the_sender_with_most_unread_bytes_is_closed() -> None:
    table = Connections(100, unread_max=1000)
    greedy, honest = [enter_slow(table, "greedy") for _ in range(3)], [enter_slow(table, "honest") for _ in range(5)]
    for connection in (*greedy, *honest):
        table.note_slow(connection, 100)
    assert table.unread == 800
    table.note_slow(greedy[0], 350)  # it is the last now that came to wait
    assert [connection.dropped for connection in greedy] == [False, True, False]
    assert not any(connection.dropped for connection in honest)
    assert table.unread <= 1000


async def test_the_unread_bytes_of_one_sender_are_bounded() -> None:
    table = Connections(100, unread_max=1000)
    single = enter_slow(table, "a")
    table.note_slow(single, 900)
    assert not single.dropped
    second = enter_slow(table, "a")
    table.note_slow(second, 300)
    assert single.dropped
    assert not second.dropped
    assert table.unread == 300


async def test_drained_and_closed_connections_have_no_unread_bytes() -> None:
    table = Connections(100, unread_max=1000)
    connections = [enter_slow(table, name) for name in "abcd"]
    for connection in connections:
        table.note_slow(connection, 100)
    table.note_drained(connections[0])
    table.leave(connections[1])
    connections[2].drop()
    table.note_drained(connections[0])
    assert table.unread == 100
    table.move(connections[3], ConnectionStage.WORKING)
    table.leave(connections[3])
    assert table.unread == 0


LARGEST = RoundSize(n_participants=1000, messages=10, sealed_size=70)
SHUFFLED = ExperimentSize(200, [RoundSize(200, 10, 70), LARGEST], is_shuffled=True)
DIRECT = SHUFFLED._replace(is_shuffled=False)
LIMITS = [
    (SHUFFLED, "batch_bytes_max", LARGEST.request_bytes(1000), "experiment.round_size", "PRIVATEER_BATCH_BYTES_MAX"),
    (DIRECT, "report_bytes_max", LARGEST.request_bytes(1), "privacy.epsilon", "PRIVATEER_REPORT_BYTES_MAX"),
    (SHUFFLED, "body_limit", LARGEST.request_bytes(1), "privacy.epsilon", "PRIVATEER_BODY_LIMIT"),
    (SHUFFLED, "messages_max", 10_000, "experiment.round_size", ""),
]


def find_refusals(size: ExperimentSize, **limits: int) -> list[SpecError]:
    """Return refusals by services with the shipped limits, but for some; shared limits are the server's here."""
    server, shuffler = ServerLimits(), ShufflerLimits()
    for name, limit in limits.items():
        if hasattr(server, name):
            server = msgspec.structs.replace(server, **{name: limit})
        else:
            shuffler = msgspec.structs.replace(shuffler, **{name: limit})
    return size.find_refusals(server, shuffler)


@pytest.mark.parametrize(("size", "limit", "required", "field", "setting"), LIMITS)
def test_the_required_limit_is_accepted_and_one_less_refused(size, limit, required, field, setting):
    assert find_refusals(size, **{limit: required}) == []
    (refusal,) = find_refusals(size, **{limit: required - 1})
    assert refusal.field == field
    assert setting in refusal.detail
    assert f"{setting}={required}" in str(refusal.remedy) or not setting
    assert str(required - 1) in refusal.detail.replace(",", "")


def test_a_report_of_more_messages_than_devices_send_is_refused() -> None:
    """Services opened phased experiments that every device refused."""
    for messages in (MESSAGES_MAX, MESSAGES_MAX + 1):
        size = SHUFFLED._replace(rounds=[RoundSize(n_participants=2, messages=messages, sealed_size=1)])
        details = [(refusal.field, refusal.detail) for refusal in size.find_refusals()]
        sentence = "a person sends up to 131,073 messages, and the device takes 131,072, whatever its settings, at once"
        assert details == [("privacy.epsilon", sentence)] * (messages > MESSAGES_MAX)


def test_a_floor_takes_the_smallest_round_or_refuses_it() -> None:
    assert find_refusals(SHUFFLED, min_batch=200) == []
    (refusal,) = find_refusals(SHUFFLED, min_batch=201)
    assert (refusal.field, "PRIVATEER_MIN_BATCH=201" in refusal.detail) == ("privacy.min_batch", True)
    assert "PRIVATEER_MIN_BATCH=200" in str(refusal.remedy)
    assert find_refusals(DIRECT, min_batch=201) == []


def test_a_limit_above_the_budget_names_the_budget_too() -> None:
    (small,) = find_refusals(SHUFFLED, batch_bytes_max=1000)
    assert "PRIVATEER_BODY_BUDGET" not in str(small)
    (large,) = find_refusals(SHUFFLED, batch_bytes_max=1000, body_budget=1000)
    assert f"PRIVATEER_BODY_BUDGET={LARGEST.request_bytes(1000)}" in str(large.remedy)


def test_all_refusals_are_one_error_in_which_each_has_its_field_and_remedy() -> None:
    refusals = find_refusals(SHUFFLED, batch_bytes_max=1000, min_batch=300, body_limit=1024)
    assert len(refusals) == 3
    for count in range(1, 4):
        with pytest.raises(SpecError) as error:
            raise_refusals(refusals[:count], "as shipped")
        message = str(error.value)
        assert message == "; ".join(map(str, refusals[:count]))[:-1] + "; as shipped)"
        assert error.value.field == refusals[0].field
    raise_refusals([])


def test_an_unused_service_refuses_nothing() -> None:
    assert SHUFFLED.find_refusals(shuffler=ShufflerLimits(min_batch=300))[0].field == "privacy.min_batch"
    assert SHUFFLED.find_refusals(ServerLimits()) == []
    assert not re.search("PRIVATEER_REPORT", str(find_refusals(SHUFFLED, report_bytes_max=10)))


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def endless() -> AsyncIterator[bytes]:
    yield b"x"
    await asyncio.Event().wait()


class Holder:
    """A sender with an endless body."""

    def __init__(self, budget: Budget, size: int, sender: str, *, is_trusted: bool = False) -> None:
        self.room = budget.reserve(size, sender, is_trusted=is_trusted)
        self.task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        with self.room:
            await self.room.read(endless())


async def test_a_body_holds_its_memory_until_the_response() -> None:
    budget = Budget(100)
    with budget.reserve(60, "a") as room:
        assert await room.read(chunks(b"12", b"34")) == b"1234"
        budget.reserve(96, "b").__exit__(None, None, None)
        with pytest.raises(Unavailable, match="too many bodies"):
            budget.reserve(97, "b")
    assert budget.reserve(100, "b").size == 100


async def test_a_body_above_the_budget_is_refused() -> None:
    budget = Budget(100)
    with pytest.raises(TooLarge), budget.reserve(3, "a") as room:
        await room.read(chunks(b"12", b"34"))
    assert budget.reserve(100, "b").size == 100


async def test_the_oldest_unfinished_body_of_the_largest_holder_is_evicted() -> None:
    budget = Budget(100)
    person = Holder(budget, 10, "person")
    flood = [Holder(budget, 30, "flood") for _ in range(3)]
    await asyncio.sleep(0)
    with budget.reserve(20, "another") as room:
        assert await room.read(chunks(b"whole")) == b"whole"
    with pytest.raises(Unavailable):
        await flood[0].task
    tasks = [person.task, flood[1].task, flood[2].task]
    assert not any(task.done() for task in tasks)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert budget.reserve(100, "b").size == 100


async def test_trusted_and_finished_bodies_are_not_evicted() -> None:
    budget = Budget(100)
    trusted = Holder(budget, 50, "shuffler", is_trusted=True)
    with budget.reserve(50, "a") as room:
        await room.read(chunks(bytes(50)))
        with pytest.raises(Unavailable):
            budget.reserve(1, "b")
    trusted.task.cancel()
    await asyncio.wait([trusted.task])


async def test_no_body_is_evicted_in_vain() -> None:
    budget = Budget(100)
    with budget.reserve(50, "shuffler", is_trusted=True) as room:
        await room.read(chunks(bytes(50)))
        person = Holder(budget, 10, "person")
        await asyncio.sleep(0)
        with pytest.raises(Unavailable):
            budget.reserve(51, "flood")
        await asyncio.sleep(0)
        assert not person.task.done()
        person.task.cancel()
        await asyncio.wait([person.task])


def test_the_announced_length_is_reserved() -> None:
    assert Body.from_length("12", 100, "a").length == 12
    assert Body.from_length(None, 100, "a").length == 100
    with pytest.raises(TooLarge, match="more than 100 bytes"):
        Body.from_length("101", 100, "a")


async def test_a_body_that_differs_from_its_signature_fails_at_its_end() -> None:
    room: Reservation = Budget(100).reserve(100, "a", is_trusted=True)
    with pytest.raises(type(UPLOAD.changed_body_error())):
        await room.read(verify_digest(chunks(b"12"), bytes(32), UPLOAD.changed_body_error()))


GROUP = 256 * 1024


@dataclass(frozen=True)
class QueuedRequest:
    sender: str
    size: int


def put(turns: SenderQueue[QueuedRequest], request: QueuedRequest) -> bool:
    return turns.put(request.sender, request, request.size)


def make_queue(*requests: QueuedRequest, places: int = 4096) -> SenderQueue[QueuedRequest]:
    turns: SenderQueue[QueuedRequest] = SenderQueue(places, GROUP)
    for request in requests:
        assert put(turns, request)
    return turns


def list_groups(turns: SenderQueue[QueuedRequest]) -> list[list[str]]:
    groups = []
    while turns:
        groups.append([request.sender for request in turns.take_group()])
    return groups


def test_a_single_sender_fills_a_group() -> None:
    turns = make_queue(*[QueuedRequest("a", 7000)] * 100)
    sizes = [len(group) for group in list_groups(turns)]
    assert sum(sizes) == 100
    assert GROUP <= sizes[0] * 7000 < GROUP + 2 * 8192


def test_many_requests_of_one_sender_do_not_delay_others() -> None:
    turns = make_queue(*[QueuedRequest("flood", 70_000)] * 50, QueuedRequest("person", 70))
    assert turns.take_group() == [QueuedRequest("person", 70)]
    turns = make_queue(*[QueuedRequest("flood", 70)] * 1000, QueuedRequest("person", 70))
    first = turns.take_group()
    assert first[-1] == QueuedRequest("person", 70)
    assert len(first) <= 1 + 8192 // 70


def test_large_requests_are_not_starved_by_small_ones() -> None:
    turns = make_queue(QueuedRequest("relay", 70_000))
    waited = 0
    while put(turns, QueuedRequest("person", 70)) and QueuedRequest("relay", 70_000) not in turns.take_group():
        waited += 1
    assert waited == 70_000 // 8192


def test_a_huge_batch_waits_for_at_most_one_group() -> None:
    turns = make_queue(QueuedRequest("shuffler", 1 << 28))
    waited = 0
    while put(turns, QueuedRequest("person", 70)) and len(turns.take_group()) == 1:
        waited += 1
    assert waited < GROUP // 8192


def test_requests_of_a_sender_keep_their_order() -> None:
    requests = [QueuedRequest("abc"[n % 3], 1000 * (n % 17)) for n in range(300)]
    turns, out = make_queue(*requests), []
    while turns:
        out += turns.take_group()
    for sender in "abc":
        in_order, arrived = ([request for request in batch if request.sender == sender] for batch in (out, requests))
        assert in_order == arrived


def test_a_sender_has_at_most_the_free_places() -> None:
    turns: SenderQueue[QueuedRequest] = SenderQueue(100, GROUP)
    assert sum(put(turns, QueuedRequest("flood", 70)) for _ in range(200)) == 50
    assert sum(put(turns, QueuedRequest("other", 70)) for _ in range(200)) == 25
    assert put(turns, QueuedRequest("person", 70))
    while turns:
        turns.take_group()
    assert sum(put(turns, QueuedRequest("flood", 70)) for _ in range(200)) == 50
