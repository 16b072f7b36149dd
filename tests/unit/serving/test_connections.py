"""Which connection goes, and when."""

import asyncio

from privateer_core.serving.connections import Connections, ConnectionStage


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


async def test_overdue_connections_are_closed_and_the_table_rests_when_empty() -> None:
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
