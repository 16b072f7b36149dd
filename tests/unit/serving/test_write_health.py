"""Whether a service can write, as commits and probes say; the log tells once that it cannot, and once that it can."""

import asyncio
import logging

import pytest

from privateer_core.serving import write_health
from privateer_core.serving.write_health import LastCommit, WriteHealth
from tests.support.clocks import Hands
from tests.unit.shuffler.helpers import until

LOG = logging.getLogger("privateer.shuffler")


class Disk:
    """A store whose probes return the set outcome."""

    def __init__(self) -> None:
        self.is_writable: bool | Exception = True
        self.probes = 0

    async def probe(self) -> bool:
        self.probes += 1
        if isinstance(self.is_writable, Exception):
            raise self.is_writable
        return self.is_writable


def log_lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage().partition(":")[0]) for record in caplog.records]


CHANGES = [("ERROR", "the data cannot be written"), ("WARNING", "the data can be written again")]


async def test_only_changes_are_logged(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(write_health, "_PROBE_INTERVAL_SECONDS", 0.0)
    looks = [True, True, False, False, False, True, True]
    pending = list(looks)

    async def is_writable() -> bool:
        return pending.pop(0) if pending else True

    watching = asyncio.create_task(WriteHealth(is_writable, LOG).run())
    await until(lambda: not pending)
    watching.cancel()
    assert log_lines(caplog) == CHANGES


@pytest.mark.parametrize("failure", [False, OSError("secret of a row")])
async def test_a_failed_probe_counts_until_a_probe_succeeds(failure, caplog):
    disk = Disk()
    health = WriteHealth(disk.probe, LOG)
    disk.is_writable = failure
    assert [await health.check(), await health.check(), health.is_writing] == [False] * 3
    health.record_commit()  # what a probe found is not undone by a commit elsewhere
    assert not health.is_writing
    disk.is_writable = True
    assert await health.check()
    assert log_lines(caplog) == CHANGES
    assert "secret" not in caplog.text


async def test_a_failed_commit_counts_for_half_a_minute_or_until_a_success(caplog: pytest.LogCaptureFixture) -> None:
    """A probe succeeds on a nearly full disk; but an unready service gets no uploads that could show success."""
    disk, clock = Disk(), Hands()
    health = WriteHealth(disk.probe, LOG, clock)
    health.record_commit(OSError())
    assert not health.is_writing
    assert not await health.check()
    health.record_commit()
    assert health.is_writing
    health.record_commit(OSError())
    clock.time += 29
    assert not await health.check()
    clock.time += 2
    assert await health.check()
    assert log_lines(caplog) == CHANGES * 2


async def test_a_hanging_store_is_probed_once(monkeypatch, caplog):
    monkeypatch.setattr(write_health, "_PROBE_TIMEOUT_SECONDS", 0.01)
    answers, probes = asyncio.Event(), []

    async def probe() -> None:
        probes.append(1)
        await answers.wait()

    health = WriteHealth(probe, LOG)
    assert await asyncio.gather(health.check(), health.check(), health.check()) == [False] * 3
    assert not health.is_writing
    assert len(probes) == 1
    answers.set()
    assert await health.check()
    assert len(probes) == 2
    assert log_lines(caplog) == CHANGES
    assert "no answer within 0.01 seconds" in caplog.text


def test_the_latest_commit_decides_write_health() -> None:
    clock = Hands()
    last = LastCommit(clock)
    assert not last.has_failed
    last.record(is_durable=False)
    assert last.has_failed
    last.record(is_durable=True)
    assert not last.has_failed
