"""Metrics for alerts of the operator, which must not reveal the time of a report."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from privateer_core.serving import write_health
from privateer_core.serving.http.answer import AnswerTiming
from privateer_shuffler import app
from privateer_shuffler.metrics import UploadTimes
from privateer_shuffler.pool.round_file import RoundStore
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
