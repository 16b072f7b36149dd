"""What ``privateer doctor`` says of clocks and disks."""

import shutil
import time
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from privateer_lab.doctor import stored_data
from privateer_lab.doctor.checkup import Checkup
from privateer_lab.doctor.listeners import check_shown_clock
from tests.support.doctor import examined


def test_a_clock_that_is_behind(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_data.time, "time", lambda: time.mktime((2025, 6, 1, 0, 0, 0, 0, 0, 0)))
    code, found = examined(capsys, data)
    assert code == 1
    for service in ("server", "shuffler"):
        (said,) = found[f"{service} clock"]
        assert said["detail"] == "the clock is more than a minute behind the newest time on record"
    monkeypatch.setattr(stored_data.time, "time", lambda: 0.0)
    assert examined(capsys, data)[1]["server clock"][0]["detail"] == "the clock is not set"


@pytest.mark.parametrize(("free", "level"), [(500 << 20, "fail"), (700 << 20, "warn"), (1 << 40, "ok")])
def test_a_disk_that_is_full(
    free: int, level: str, data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(data)
    monkeypatch.setattr(stored_data.shutil, "disk_usage", lambda _: usage._replace(free=free))
    code, found = examined(capsys, data)
    said = {one["level"] for service in ("server", "shuffler") for one in found.get(f"{service} disk", [])}
    assert said == ({level} if level != "ok" else set())
    assert code == (1 if level == "fail" else 0)


def test_a_disk_that_stands_still_is_told_in_time(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: a write that does not end. Real ones are in tests/operations. Others are looked at all the same."""
    monkeypatch.setattr(stored_data, "_TRIAL_SECONDS", 0.5)
    monkeypatch.setattr(stored_data, "_TRIAL", "import sys, time; time.sleep(60 * sys.argv[1].endswith('server'))")
    code, found = examined(capsys, data)
    assert code == 1
    (said,) = found.pop("server folder")
    assert said["detail"].startswith(f"a write to {data / 'server'} did not end within 0.5 seconds")
    assert not [key for key in found if key.startswith("server ")]
    assert "shuffler answers" in found


@pytest.mark.parametrize("locked", ["server", "server/keys", "server/journal.db", "shuffler", "shuffler/taken.sqlite"])
def test_what_cannot_be_written_is_told(locked: str, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also to root, who could write it: the service's user cannot."""
    path = data / locked
    path.chmod(path.stat().st_mode & ~0o222)
    try:
        code, found = examined(capsys, data)
    finally:
        path.chmod(path.stat().st_mode | 0o200)
    service = locked.partition("/")[0]
    assert code == 1
    assert found[f"{service} folder"][0]["detail"] == f"{path.name} cannot be written"
    assert examined(capsys, data)[0] == 0


@pytest.mark.parametrize(("seconds", "levels"), [(0, []), (59, []), (-59, []), (70, ["FAIL"]), (-3600, ["FAIL"])])
@pytest.mark.parametrize("of", ["", "shuffler_", "issuer_"])
def test_the_clock_that_a_service_shows_is_compared(of: str, seconds: float, levels: list[str]) -> None:
    found, registry = Checkup("shuffler"), CollectorRegistry()
    Gauge(f"privateer_{of}time_seconds", "The time of day.", registry=registry).set(time.time() + seconds)
    check_shown_clock(found, generate_latest(registry).decode(), "http://127.0.0.1:8002")
    assert [one.level.name for one in found.all] == levels
