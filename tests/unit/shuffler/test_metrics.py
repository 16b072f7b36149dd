"""Metrics of a shuffler, and the order in which it sends."""

import asyncio
import itertools
import os
import secrets
import sqlite3
import struct
from collections import Counter
from pathlib import Path

import pytest

from privateer_core.serving import write_health
from privateer_core.serving.http.answer import AnswerTiming
from privateer_shuffler import app
from privateer_shuffler.metrics import UploadTimes
from privateer_shuffler.pool.round_file import RoundStore
from privateer_shuffler.shuffle import Groups, RandomBelow, ShuffledPlaces
from tests.support.statistics import is_compatible
from tests.unit.shuffler.helpers import Shuffler, sealed_reports

BATCH = 30


def upload(seconds: float, status: int = 202) -> AnswerTiming:
    return AnswerTiming("POST", "/experiments/{name}/reports", status, seconds)


def read_counts(times: UploadTimes) -> dict[tuple[str, ...], float]:
    (family,) = times.collect()
    return {(sample.name.rpartition("_")[2], *sample.labels.values()): sample.value for sample in family.samples}


async def uploads(shuffler: Shuffler, status: str = "2xx") -> float:
    return await shuffler.metric(f'upload_seconds_count{{status="{status}"}}')


def test_accepted_uploads_show_with_their_batch_and_refused_ones_in_tens() -> None:
    times = UploadTimes(10)
    for seconds in (0.001, 0.005, 0.0051, 3.0, 100.0):
        times.add("spring", upload(seconds))
    times.add("autumn", upload(0.2))
    for _ in range(9):
        times.add("spring", upload(0.001, 409))
        times.add("spring", upload(0.001, 503))
    assert read_counts(times) == {}
    times.add("another", upload(0.001, 400))
    assert read_counts(times)["count", "4xx"] == 10
    times.show("spring")
    counts = read_counts(times)
    assert [counts["bucket", "2xx", bound] for bound in ("0.005", "0.025", "2.5", "10.0", "+Inf")] == [2, 3, 3, 4, 5]
    assert counts["sum", "2xx"] == pytest.approx(103.0111)
    times.show("spring")
    assert read_counts(times) == counts
    times.forget("autumn")
    times.show("autumn")
    assert read_counts(times) == counts


async def test_uploads_show_when_their_batch_is_delivered(shuffler: Shuffler) -> None:
    header = shuffler.server.publish(batch=BATCH)
    for report in sealed_reports(BATCH - 1):
        assert (await shuffler.post(header, [report])).status_code == 202
    assert await uploads(shuffler) == 0
    await shuffler.post(header, sealed_reports(1))
    async with asyncio.timeout(20):
        while await uploads(shuffler) == 0:
            await asyncio.sleep(0.01)
    assert await uploads(shuffler) == await shuffler.metric("reports_forwarded_total") == BATCH


async def test_uploads_of_an_abandoned_round_are_never_shown(shuffler: Shuffler) -> None:
    await shuffler.post(shuffler.server.publish(version=1, batch=BATCH), sealed_reports(7))
    header = shuffler.server.publish(version=2, batch=BATCH)
    await shuffler.reaches(2)
    for report in sealed_reports(BATCH):
        await shuffler.post(header, [report])
    async with asyncio.timeout(20):
        while await uploads(shuffler) == 0:
            await asyncio.sleep(0.01)
    assert await uploads(shuffler) == BATCH


async def test_the_time_of_a_waiting_full_batch_is_rounded_to_hours(shuffler: Shuffler) -> None:
    header = shuffler.server.publish(batch=BATCH)
    assert await shuffler.metric("full_batch_timestamp_seconds") == 0
    shuffler.server.busy = 1000
    await shuffler.post(header, sealed_reports(BATCH))
    async with asyncio.timeout(20):
        while not await shuffler.metric("forwarding_failures_total"):
            await asyncio.sleep(0.01)
    timestamp = await shuffler.metric("full_batch_timestamp_seconds")
    assert timestamp > 1e9
    assert timestamp % 3600 == 0
    shuffler.server.busy = 0
    async with asyncio.timeout(20):
        while await shuffler.metric("full_batch_timestamp_seconds"):
            await asyncio.sleep(0.01)


async def test_a_server_that_cannot_be_followed_is_counted(shuffler: Shuffler) -> None:
    """Here one that goes back to an earlier version."""
    shuffler.server.publish(version=2, batch=BATCH)
    await shuffler.facts()
    assert await shuffler.metric("following_failures_total") == 0
    shuffler.server.publish(version=1, batch=BATCH)
    async with asyncio.timeout(20):
        while not await shuffler.metric("following_failures_total"):
            await asyncio.sleep(0.05)


async def test_a_failing_disk_is_on_a_gauge(shuffler: Shuffler, monkeypatch: pytest.MonkeyPatch) -> None:
    header = shuffler.server.publish(batch=BATCH)
    await shuffler.post(header, sealed_reports(1))
    assert await shuffler.metric("store_up") == 1

    def full(_: RoundStore) -> None:
        raise sqlite3.OperationalError("full")

    with monkeypatch.context() as patch:
        patch.setattr(RoundStore, "commit", full)
        assert (await shuffler.post(header, sealed_reports(1))).status_code == 503
        assert await shuffler.metric("store_up") == 0
    await shuffler.post(header, sealed_reports(1))
    assert await shuffler.metric("store_up") == 1


def test_free_space_does_not_move_with_the_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One block less on the disk for every block of a log; the sum stays, wherever it is in a step."""
    step, whole = 16 << 20, 1 << 30
    seen = set()
    log = tmp_path / "some.db-wal"
    for blocks in range(64):
        log.write_bytes(b"x" * 4096 * blocks)
        free = whole - log.stat().st_blocks * 512
        usage = write_health.shutil.disk_usage(tmp_path)._replace(free=free)
        with monkeypatch.context() as patch:
            patch.setattr(write_health.shutil, "disk_usage", lambda _, usage=usage: usage)
            seen.add(app._round_free_bytes(tmp_path))
    assert seen == {whole}
    assert whole % step == 0


ORDERS = list(itertools.permutations(range(4)))
DRAWS = 500 * len(ORDERS)


def is_uniform(below) -> bool:
    """Whether 4 places come in all 24 orders equally often."""
    counter = Counter()
    for _ in range(DRAWS):
        places = ShuffledPlaces(range(4), below)
        counter[tuple(places.draw() for _ in range(4))] += 1
    return is_compatible([counter[order] for order in ORDERS], [DRAWS / len(ORDERS)] * len(ORDERS))


def test_all_orders_are_equally_likely():
    assert is_uniform(RandomBelow())


@pytest.mark.parametrize("count", [1, 2, 3, 1000, (1 << 63) + 1])
def test_all_numbers_are_equally_likely(count):
    """In ten intervals of equal length; half of the words are beyond the last whole multiple of the largest count."""
    below, bins = RandomBelow(), min(count, 10)
    counter = Counter(below(count) * bins // count for _ in range(5000))
    expected = [
        len(range(-(-indice * count // bins), -(-(indice + 1) * count // bins))) / count for indice in range(bins)
    ]
    assert is_compatible([counter[indice] for indice in range(bins)], [5000 * share for share in expected])


def test_random_words_are_used_once(monkeypatch):
    blocks = [struct.pack("<256Q", *range(start, start + 256)) for start in (0, 256, 512)]
    monkeypatch.setattr(os, "urandom", lambda count: blocks.pop() if count == 8 * 256 else None)
    below = RandomBelow()
    assert sorted(below(1 << 32) for _ in range(3 * 256)) == list(range(3 * 256))
    assert not blocks


def test_words_beyond_a_whole_multiple_are_not_used(monkeypatch):
    monkeypatch.setattr(os, "urandom", lambda count: bytes(8) + b"\xff" * (count - 8))
    below = RandomBelow()
    assert [below(3), below(1 << 63)] == [0, (1 << 63) - 1]


@pytest.mark.parametrize(
    "defect",
    [
        lambda n: n - 1,  # always the last: one fixed order
        lambda n: 0,
        lambda n: secrets.randbelow(max(1, n - 1)),  # Sattolo's mistake: cycles only
    ],
)
def test_a_defective_source_is_caught(defect):
    assert not is_uniform(defect)


def test_every_place_is_drawn_once():
    places = ShuffledPlaces([7, 3, 9], RandomBelow())
    assert len(places) == 3
    assert sorted(places.draw() for _ in range(3)) == [3, 7, 9]
    assert len(places) == 0


def test_message_kinds_are_shuffled_separately():
    counter = Counter()
    for _ in range(DRAWS):
        groups = Groups(range(12), 4, 1, 3, RandomBelow())
        places = groups.draw(4)
        orders = [tuple(place - 4 * kind for place in places[kind::3]) for kind in range(3)]
        assert groups.capacity == 0
        counter[orders[1]] += 1
    assert is_compatible([counter[order] for order in ORDERS], [DRAWS / len(ORDERS)] * len(ORDERS))
    groups = Groups([0, 5, 9], 4, 1, 3, RandomBelow())
    assert groups.capacity == 1
    assert groups.draw(1) == [0, 5, 9]
    assert groups.capacity == 0


def test_messages_of_each_kind_are_sent_together():
    groups = Groups(range(12), 3, 2, 2, RandomBelow())
    places = [place for _ in range(3) for place in groups.draw(1)]
    assert [place // 6 for place in places] == [0, 0, 1, 1] * 3
    assert sorted(places) == list(range(12))


def test_returned_places_are_drawn_again_within_their_kind():
    groups = Groups([0, 5, 9], 4, 1, 3, RandomBelow())
    groups.draw(1)
    for place in (9, 5, 0):
        groups.give_back(place)
    assert groups.draw(1) == [0, 5, 9]
