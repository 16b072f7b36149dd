"""What ``privateer doctor`` says of clocks and disks."""

import shutil
import time
from pathlib import Path

import pytest

from privateer_lab.doctor import stored_data
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


@pytest.mark.parametrize(("free", "level"), [(10 << 20, "fail"), (100 << 20, "warn"), (1 << 40, "ok")])
def test_a_disk_that_is_full(
    free: int, level: str, data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(data)
    monkeypatch.setattr(stored_data.shutil, "disk_usage", lambda _: usage._replace(free=free))
    code, found = examined(capsys, data)
    said = {one["level"] for service in ("server", "shuffler") for one in found.get(f"{service} disk", [])}
    assert said == ({level} if level != "ok" else set())
    assert code == (1 if level == "fail" else 0)
