"""Rounds of several messages a person, and rounds with a deadline."""

import asyncio
from collections import Counter

import httpx
import numpy as np
import pytest

from privateer_core.errors import DuplicateReport, Unavailable
from privateer_core.wire.batch import decode_batch
from privateer_core.wire.publication import split_bytes
from privateer_shuffler.app import create_app
from privateer_shuffler.pool.round_file import RoundStore
from tests.support.asgi import serving
from tests.unit.shuffler.fake_server import SIZE
from tests.unit.shuffler.helpers import Shuffler, assert_problem, pool_of, sealed_reports, until

MESSAGES = 4


class Hands:
    """A clock that is set by hand."""

    def __init__(self, time=1000.0):
        self.time = time

    def now(self):
        return self.time


def make_uploads(count):
    """Return the uploads of a number of participants."""
    return [b"".join(sealed_reports(MESSAGES)) for _ in range(count)]


async def read_batch(pool):
    return split_bytes(decode_batch(await pool.read_batch()).sealed, SIZE)


async def test_the_messages_of_all_people_are_in_the_batch_once(new_store):
    pool, uploads = pool_of(new_store(3, messages=MESSAGES)), make_uploads(3)
    assert (await pool.hold(uploads)).accepted == 3
    await asyncio.wait_for(pool.claim_when_complete(), 20)
    assert Counter(await read_batch(pool)) == Counter(split_bytes(b"".join(uploads), SIZE))
    await pool.close()


@pytest.mark.parametrize("planted", [False, True])
async def test_a_persons_messages_do_not_stay_together(new_store, planted):
    """Neighbours of one person of 200: 3 are expected, more than 20 with probability 1e-11; in place they are 600."""
    # The last of the free places every time: one place after another.
    planted_below = [lambda count: count - 1] if planted else []
    pool = pool_of(new_store(200, messages=MESSAGES), *planted_below)
    uploads = make_uploads(200)
    await pool.hold(uploads)
    owner = {message: person for person, upload in enumerate(uploads) for message in split_bytes(upload, SIZE)}
    owners = np.array([owner[message] for message in await read_batch(pool)])
    n_adjacent = int((owners[1:] == owners[:-1]).sum())
    assert (n_adjacent > 20) == planted
    await pool.close()


async def test_an_upload_is_accepted_with_all_messages_or_refused(new_store):
    pool, uploads = pool_of(new_store(2, messages=MESSAGES)), make_uploads(3)
    assert (await pool.hold(uploads)).refused == {Unavailable.slug: 1}
    assert (pool.n_held, len(await read_batch(pool))) == (2, 2 * MESSAGES)
    await pool.close()


async def test_uploads_that_share_a_message_are_duplicates(new_store):
    pool, (first, second) = pool_of(new_store(3, messages=MESSAGES)), make_uploads(2)
    mixed, repeated = first[:SIZE] + second[SIZE:], second[:SIZE] * MESSAGES
    receipt = await pool.hold([first, first, mixed, repeated])
    assert (receipt.accepted, receipt.refused) == (1, {DuplicateReport.slug: 3})
    await pool.close()


async def test_a_restart_knows_people_by_their_messages(new_store, tmp_path):
    pool, uploads = pool_of(new_store(3, messages=MESSAGES)), make_uploads(2)
    await pool.hold(uploads)
    await pool.close()
    (path,) = tmp_path.glob("*.db")
    restarted = pool_of(RoundStore.load(path))
    assert restarted.n_held == 2
    assert (await restarted.hold(uploads[:1])).refused == {DuplicateReport.slug: 1}
    await restarted.close()


DUE = {"messages": MESSAGES, "least": 2, "deadline": 1060}


async def test_a_pool_closes_at_its_deadline_with_the_minimum_of_reports(new_store):
    clock = Hands(1059.95)
    pool, uploads = pool_of(new_store(5, **DUE), clock=clock), make_uploads(3)
    await pool.hold(uploads[:2])
    waiting = asyncio.create_task(pool.claim_when_complete())
    await asyncio.sleep(0.01)
    assert not waiting.done()
    clock.time = 1060
    await asyncio.wait_for(waiting, 20)
    assert Counter(await read_batch(pool)) == Counter(split_bytes(b"".join(uploads[:2]), SIZE))
    assert (await pool.hold(uploads[2:])).refused == {Unavailable.slug: 1}
    await pool.close()


async def test_a_short_pool_waits_for_the_minimum_after_its_deadline(new_store):
    clock = Hands(2000)
    pool, uploads = pool_of(new_store(5, **DUE), clock=clock), make_uploads(2)
    waiting = asyncio.create_task(pool.claim_when_complete())
    await pool.hold(uploads[:1])
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await pool.hold(uploads[1:])
    await asyncio.wait_for(waiting, 20)
    assert len(await read_batch(pool)) == 2 * MESSAGES
    await pool.close()


async def test_the_same_batch_after_a_restart_past_the_deadline(new_store, tmp_path):
    pool, uploads = pool_of(new_store(5, **DUE), clock=Hands()), make_uploads(4)
    await pool.hold(uploads[:3])
    await pool.close()
    (path,) = tmp_path.glob("*.db")
    restarted = pool_of(RoundStore.load(path), clock=Hands(1061))
    assert restarted.is_full
    assert (await restarted.hold(uploads[3:])).refused == {Unavailable.slug: 1}
    assert Counter(await read_batch(restarted)) == Counter(split_bytes(b"".join(uploads[:3]), SIZE))
    await restarted.close()


async def test_a_short_batch_is_delivered(settings, server):
    header = server.publish(batch=5, messages=MESSAGES, least=2, deadline=1)
    async with serving(create_app(settings, httpx.ASGITransport(server.app))) as client:
        shuffler, uploads = Shuffler(client, server), make_uploads(2)
        assert (await shuffler.post(header, uploads)).json() == {"accepted": 2, "refused": {}}
        await until(lambda: bool(server.delivered))
        assert Counter(server.received()) == Counter(split_bytes(b"".join(uploads), SIZE))
        await until(lambda: not list(settings.data.glob("*.db")))
        assert await shuffler.metric("reports_forwarded_total") == 2


async def test_an_incomplete_upload_is_refused(shuffler):
    header = shuffler.server.publish(messages=MESSAGES)
    answer = await shuffler.post(header, [make_uploads(1)[0][:-SIZE]])
    assert_problem(answer, 400, "wrong-size")


async def test_the_minimum_batch_applies_to_the_smallest_round(settings, server):
    header = server.publish(batch=50, messages=MESSAGES, least=1, deadline=1)
    async with serving(create_app(settings, httpx.ASGITransport(server.app))) as client:
        answer = await Shuffler(client, server).post(header, make_uploads(1))
        assert_problem(answer, 422, "spec-invalid")
        assert "close at 1 " in answer.json()["detail"]


async def test_a_round_of_too_many_messages_is_refused(settings, server):
    """A hostile server may publish small messages without number; their places would fill the disk."""
    header = server.publish(batch=1 << 20, messages=1 << 10, sealed_size=1)
    async with serving(create_app(settings, httpx.ASGITransport(server.app))) as client:
        answer = await Shuffler(client, server).post(header, [bytes(1 << 10)])
        assert_problem(answer, 422, "spec-invalid")
        assert "messages" in answer.json()["detail"]
