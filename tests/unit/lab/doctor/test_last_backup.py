"""``privateer doctor`` says when the last backup was made, and warns if it did not complete or is old."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from privateer_lab.doctor.server import examine_server
from privateer_server.settings import ServerSettings
from tests.support.stores import embedded_journal, embedded_store

HOUR, DAY = 3600.0, 86_400.0


@pytest.mark.parametrize(
    ("start", "completed", "level", "detail"),
    [
        (None, None, "ok", "privateer backup was never used here"),
        (3 * HOUR, 3 * HOUR - 60, "ok", "the last backup (3 MiB) was made 2 hours ago"),
        (60, 30, "ok", "the last backup (3 MiB) was made within the last hour"),
        (7 * DAY, 7 * DAY - 60, "ok", "the last backup (3 MiB) was made 6 days ago"),
        (8.5 * DAY, 8.5 * DAY - 60, "warn", "the last backup was made 8 days ago"),
        (
            5 * HOUR + 1,
            3 * DAY,
            "warn",
            "the backup that was begun 5 hours ago is not complete; the last complete one was made 3 days ago",
        ),
        (
            5 * HOUR + 1,
            None,
            "warn",
            "the backup that was begun 5 hours ago is not complete; none was complete before",
        ),
    ],
)
def test_the_age_of_the_last_backup_is_checked(
    start: float | None, completed: float | None, level: str, detail: str, tmp_path: Path
) -> None:
    embedded_store(tmp_path).close()
    embedded_journal(tmp_path / "journal.db").close()
    if start is not None:
        now = time.time() - 1
        is_complete = completed is not None and completed < start
        row = (0.0 if is_complete else now - start, now - completed if completed else 0.0, 30.0, (2 << 20) + 1)
        with closing(sqlite3.connect(tmp_path / "server.db")) as db:
            db.execute("INSERT INTO backup VALUES (1, ?, ?, ?, ?)", row)
            db.commit()
    checkup = examine_server(ServerSettings(data=tmp_path, admin_token=bytes(32)))
    (line,) = [check for check in checkup.checks if check.check == "backup"]
    assert (line.level.name.lower(), line.detail, bool(line.remedy)) == (level, detail, level == "warn")
