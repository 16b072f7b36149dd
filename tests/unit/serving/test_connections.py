"""Which connection goes, and when."""

import asyncio

from privateer_core.serving.connections import Connections, Stage


class One:
    def __init__(self, table: Connections) -> None:
        self.stage, self.table, self.dropped, self.due = Stage.WAITING, table, False, float("inf")

    def is_overdue(self, now: float) -> bool:
        return now > self.due

    def drop(self) -> None:
        self.dropped = True
        self.table.leave(self)


async def test_the_oldest_of_those_who_wait_makes_room() -> None:
    table = Connections(3)
    working, first, second, third = (One(table) for _ in range(4))
    table.enter(working)
    table.move(working, Stage.WORKING)
    for one in (first, second, third):
        table.enter(one)
    assert [one.dropped for one in (working, first, second, third)] == [False, True, False, False]


async def test_without_any_that_waits_a_body_goes_before_an_answer() -> None:
    table = Connections(2)
    working, reading, newcomer = (One(table) for _ in range(3))
    for one, stage in ((working, Stage.WORKING), (reading, Stage.READING)):
        table.enter(one)
        table.move(one, stage)
    table.enter(newcomer)
    assert [one.dropped for one in (working, reading, newcomer)] == [False, True, False]


async def test_a_connection_that_idles_anew_is_the_youngest_again() -> None:
    table = Connections(2)
    first, second, third = (One(table) for _ in range(3))
    for one in (first, second):
        table.enter(one)
    table.move(first, Stage.WORKING)
    table.move(first, Stage.WAITING)
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
    table.move(early, Stage.READING)  # one that left stays out
    assert len(table) == 0
