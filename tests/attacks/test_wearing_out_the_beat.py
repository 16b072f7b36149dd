"""Somebody opens and closes streams again and again, so that the server looks at everything more often."""

import asyncio
from contextlib import aclosing
from typing import Any

from privateer_server.api.events import ChangeFeed

BEAT = 0.2


class Counting(ChangeFeed):
    """Counts how often it looks."""

    looks = 0

    def _look(self) -> None:
        self.looks += 1
        super()._look()


async def heard(news: ChangeFeed, beats: int) -> None:
    """Listen for so many beats."""
    async with aclosing(news.follow()) as following:
        async for _ in following:
            beats -= 1
            if beats < 0:
                return


async def test_streams_that_come_and_go_make_no_more_beats() -> None:
    experiments: list[Any] = []
    news = Counting(experiments, BEAT)
    async with asyncio.timeout(30):
        for _ in range(50):
            await heard(news, 0)
        looked = news.looks
        began = asyncio.get_running_loop().time()
        await heard(news, 5)
    beats = (asyncio.get_running_loop().time() - began) / BEAT
    assert news.looks - looked <= beats + 2
