"""Room for requests that wait, shared out by sender."""

import asyncio
from typing import Any, cast

from privateer_server.api.experiment_routes import Polls

LOOP_TURNS = 10  # more than a poll takes to begin or to end


class SilentExperiment:
    """An experiment that publishes nothing."""

    async def next_publication(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class PollingSenders:
    def __init__(self, max_polls: int) -> None:
        self.polls = Polls(max_polls)
        self.tasks: list[asyncio.Task[None]] = []

    async def poll(self, sender: str) -> bool:
        """Begin a long poll, and return whether it waits."""
        task = asyncio.create_task(self.polls.wait(cast(Any, SilentExperiment()), 3600.0, sender))
        self.tasks.append(task)
        for _ in range(LOOP_TURNS):
            await asyncio.sleep(0)
        return not task.done()

    @property
    def waiting(self) -> list[bool]:
        return [not task.done() for task in self.tasks]

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


async def test_one_sender_does_not_exclude_others_from_long_polls() -> None:
    senders = PollingSenders(4)
    assert [await senders.poll("greedy") for _ in range(5)] == [True] * 4 + [False]
    assert await senders.poll("other")
    assert senders.waiting == [False, True, True, True, False, True]
    assert await senders.poll("other")
    assert senders.waiting == [False, False, True, True, False, True, True]
    assert not await senders.poll("other")  # it would hold more than the greedy one
    senders.tasks[5].cancel()
    assert await senders.poll("greedy")  # there is room again
    assert sum(senders.waiting) == 4
    await senders.close()


async def test_a_new_sender_waits_where_all_senders_hold_one_seat() -> None:
    senders = PollingSenders(2)
    assert [await senders.poll(name) for name in ("a", "b", "c")] == [True, True, False]
    assert senders.waiting == [True, True, False]
    await senders.close()
