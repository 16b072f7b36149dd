"""``privateer doctor`` on clocks and disks."""

import shutil
import time
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from privateer_lab.doctor import checkup
from privateer_lab.doctor.checkup import Checkup
from privateer_lab.doctor.places import check_shown_clock
from tests.support.doctor import run_checks


def test_a_clock_that_is_behind(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkup.time, "time", lambda: time.mktime((2025, 6, 1, 0, 0, 0, 0, 0, 0)))
    code, checks = run_checks(capsys, data)
    assert code == 1
    for service in ("server", "shuffler"):
        (row,) = checks[f"{service} clock"]
        assert row["detail"] == "the clock is more than a minute behind the newest time on record"
    monkeypatch.setattr(checkup.time, "time", lambda: 0.0)
    assert run_checks(capsys, data)[1]["server clock"][0]["detail"] == "the clock is not set"


@pytest.mark.parametrize(("free", "level"), [(500 << 20, "fail"), (700 << 20, "warn"), (1 << 40, "ok")])
def test_a_disk_that_is_full(
    free: int, level: str, data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(data)
    monkeypatch.setattr(checkup.shutil, "disk_usage", lambda _: usage._replace(free=free))
    code, checks = run_checks(capsys, data)
    levels = {row["level"] for service in ("server", "shuffler") for row in checks.get(f"{service} disk", [])}
    assert levels == ({level} if level != "ok" else set())
    assert code == (1 if level == "fail" else 0)


def test_a_disk_that_stands_still_is_told_in_time(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: a write that does not end. Real ones are in tests/operations. Others are looked at all the same."""
    monkeypatch.setattr(checkup, "_TRIAL_SECONDS", 0.5)
    monkeypatch.setattr(checkup, "_TRIAL_CODE", "import sys, time; time.sleep(60 * sys.argv[1].endswith('server'))")
    code, checks = run_checks(capsys, data)
    assert code == 1
    (row,) = checks.pop("server folder")
    assert row["detail"].startswith(f"a write to {data / 'server'} did not end within 0.5 seconds")
    assert not [key for key in checks if key.startswith("server ")]
    assert "shuffler answers" in checks


@pytest.mark.parametrize("locked", ["server", "server/keys", "server/journal.db", "shuffler", "shuffler/taken.sqlite"])
def test_files_must_be_writable(locked: str, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Root sees the problem, too, because the service's user cannot write the file."""
    path = data / locked
    path.chmod(path.stat().st_mode & ~0o222)
    try:
        code, checks = run_checks(capsys, data)
    finally:
        path.chmod(path.stat().st_mode | 0o200)
    service = locked.partition("/")[0]
    assert code == 1
    assert checks[f"{service} folder"][0]["detail"] == f"{path.name} cannot be written"
    assert run_checks(capsys, data)[0] == 0


@pytest.mark.parametrize(("seconds", "levels"), [(0, []), (59, []), (-59, []), (70, ["FAIL"]), (-3600, ["FAIL"])])
@pytest.mark.parametrize("prefix", ["", "shuffler_", "issuer_"])
def test_the_clock_that_a_service_shows_is_compared(prefix: str, seconds: float, levels: list[str]) -> None:
    checkup, registry = Checkup("shuffler"), CollectorRegistry()
    Gauge(f"privateer_{prefix}time_seconds", "The time of day.", registry=registry).set(time.time() + seconds)
    check_shown_clock(checkup, generate_latest(registry).decode(), "http://127.0.0.1:8002")
    assert [check.level.name for check in checkup.checks] == levels
