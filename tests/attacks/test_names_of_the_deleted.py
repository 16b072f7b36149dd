"""A stranger listens to the stream of news, to learn the names of experiments that were deleted before they came.

And somebody has the server remember ever more of them.
"""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from privateer_server.api.events import ChangeFeed
from tests.unit.server.api.test_events import BEAT, listed, standing, there, told  # noqa: F401

KEPT = 10 * BEAT


async def deletion(news: ChangeFeed, there: dict[str, Any], name: str) -> str:  # noqa: F811
    """The id of the message by which a listener hears that an experiment is deleted."""
    async with asyncio.timeout(20), aclosing(news.follow()) as following:
        async for one in following:
            there.pop(name, None)
            if one and name in one.deleted:
                return one.id
    raise AssertionError


async def test_who_comes_later_hears_no_name_of_what_was_deleted(there: dict[str, Any]) -> None:  # noqa: F811
    there |= {"a": standing("a"), "b": standing("b")}
    news = ChangeFeed(listed(there), BEAT, KEPT)
    heard = await deletion(news, there, "a")
    (first,) = await told(news, 1)
    assert (first.whole, [one.name for one in first.experiments], first.deleted) == (True, ["b"], [])
    # Nor does somebody who makes an id up, once those who listened have heard it.
    await asyncio.sleep(2 * KEPT)
    epoch = heard.partition("-")[0]
    for number in range(int(heard.partition("-")[2])):
        (late,) = await told(news, 1, f"{epoch}-{number}")
        assert (late.whole, late.deleted) == (True, [])


async def test_who_lost_the_stream_for_a_moment_hears_of_the_deletion(there: dict[str, Any]) -> None:  # noqa: F811
    there |= {"a": standing("a"), "b": standing("b")}
    news = ChangeFeed(listed(there), BEAT, KEPT)
    (before,) = await told(news, 1)
    await deletion(news, there, "a")
    (again,) = await told(news, 1, before.id)
    assert (again.whole, again.deleted) == (False, ["a"])
    # After too long they are told what there is.
    await asyncio.sleep(2 * KEPT)
    (late,) = await told(news, 1, before.id)
    assert (late.whole, [one.name for one in late.experiments]) == (True, ["b"])


@pytest.mark.parametrize("kept", [BEAT, 3600.0])
async def test_names_of_the_deleted_do_not_pile_up(there: dict[str, Any], kept: float) -> None:  # noqa: F811
    """This is the planted defect: deletions that are told for an hour reach those who come later."""
    there["stays"] = standing("stays")
    news = ChangeFeed(listed(there), BEAT, kept)
    async with asyncio.timeout(20), aclosing(news.follow()) as following:
        number = 0
        async for _ in following:
            there.pop(f"brief-{number}", None)
            number += 1
            if number == 25:
                break
            there[f"brief-{number}"] = standing(f"brief-{number}")
    assert (len(news._seen) <= 6) == (kept == BEAT)
