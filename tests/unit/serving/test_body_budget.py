"""Room for bodies: bounded, given back, and taken from those who hold most without finishing."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from privateer_core.errors import TooLarge, Unavailable
from privateer_core.serving.http.bodies import Body, Budget, Reservation, verify_digest
from privateer_core.wire.batch import UPLOAD


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
