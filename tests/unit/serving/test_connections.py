"""Which connection goes, and when."""

import asyncio

from privateer_core.serving.connections import Connections, ConnectionStage


class One:
    def __init__(self, table: Connections, sender: str = "") -> None:
        self.sender = sender
        self.stage, self.table, self.dropped, self.due = ConnectionStage.WAITING, table, False, float("inf")

    def is_overdue(self, now: float) -> bool:
        return now > self.due

    def drop(self) -> None:
        self.dropped = True
        self.table.leave(self)


async def test_the_oldest_of_those_who_wait_makes_room() -> None:
    table = Connections(3)
    working, first, second, third = (One(table) for _ in range(4))
    table.enter(working)
    table.move(working, ConnectionStage.WORKING)
    for one in (first, second, third):
        table.enter(one)
    assert [one.dropped for one in (working, first, second, third)] == [False, True, False, False]


async def test_without_any_that_waits_a_body_goes_before_an_answer() -> None:
    table = Connections(2)
    working, reading, newcomer = (One(table) for _ in range(3))
    for one, stage in ((working, ConnectionStage.WORKING), (reading, ConnectionStage.READING)):
        table.enter(one)
        table.move(one, stage)
    table.enter(newcomer)
    assert [one.dropped for one in (working, reading, newcomer)] == [False, True, False]


async def test_a_connection_that_idles_anew_is_the_youngest_again() -> None:
    table = Connections(2)
    first, second, third = (One(table) for _ in range(3))
    for one in (first, second):
        table.enter(one)
    table.move(first, ConnectionStage.WORKING)
    table.move(first, ConnectionStage.WAITING)
    table.enter(third)
    assert [one.dropped for one in (first, second, third)] == [False, True, False]


async def test_overdue_connections_are_closed_and_the_table_rests_when_empty() -> None:
    table = Connections(10)
    late, early = One(table), One(table)
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


def slow(table: Connections, sender: str) -> One:
    one = One(table, sender)
    table.enter(one)
    return one


async def test_the_slowest_of_whoever_leaves_most_unread_closes() -> None:
    table = Connections(100, unread_max=1000)
    greedy, honest = [slow(table, "greedy") for _ in range(3)], [slow(table, "honest") for _ in range(5)]
    for one in (*greedy, *honest):
        table.delay(one, 100)
    assert table.unread == 800
    table.delay(greedy[0], 350)  # it is the last now that came to wait
    assert [one.dropped for one in greedy] == [False, True, False]
    assert not any(one.dropped for one in honest)
    assert table.unread <= 1000


async def test_one_sender_leaves_half_unread_at_most_and_one_answer_of_any_size() -> None:
    table = Connections(100, unread_max=1000)
    alone = slow(table, "a")
    table.delay(alone, 900)
    assert not alone.dropped
    second = slow(table, "a")
    table.delay(second, 300)
    assert alone.dropped
    assert not second.dropped
    assert table.unread == 300


async def test_whoever_takes_the_answer_or_leaves_counts_no_more() -> None:
    table = Connections(100, unread_max=1000)
    ones = [slow(table, name) for name in "abcd"]
    for one in ones:
        table.delay(one, 100)
    table.hasten(ones[0])
    table.leave(ones[1])
    ones[2].drop()
    table.hasten(ones[0])
    assert table.unread == 100
    table.move(ones[3], ConnectionStage.WORKING)
    table.leave(ones[3])
    assert table.unread == 0
