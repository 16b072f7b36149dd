"""A folder of an earlier version: the doctor announces the migration that a start makes."""

import logging
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from privateer_server.app import create_app
from privateer_server.settings import ServerSettings
from privateer_server.store.backup import restore
from privateer_server.store.schema import JOURNAL_KIND, STORE_KIND
from tests.support.asgi import serving
from tests.support.doctor import TOKEN, contents, run_checks
from tests.support.next_versions import next_versions
from tests.support.servers import Api

KNOWN = {"server database", "server journal", "server answers"}
STORE, JOURNAL = STORE_KIND.version, JOURNAL_KIND.version


async def test_the_doctor_and_a_start_agree_about_a_folder_of_an_earlier_version(
    data: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "privateer")
    before = contents(data)
    with next_versions(STORE_KIND, JOURNAL_KIND):
        code, checks = run_checks(capsys, data)
        assert (code, contents(data)) == (0, before)
        (database,), (journal,) = checks["server database"], checks["server journal"]
        for row, file, version in ((database, "server.db", STORE), (journal, "journal.db", JOURNAL)):
            assert row["level"] == "warn"
            versions = f"schema {version} to {version + 1}"
            assert row["detail"] == f"{file} is of an earlier Privateer: the next start brings it from {versions}"
            assert "backup" in row["remedy"]
        assert not [name for name in checks if name.startswith("server") and name not in KNOWN]

        async with serving(create_app(ServerSettings(data=data / "server", admin_token=TOKEN))) as client:
            facts = await Api(client).facts()
        assert (facts["version"], facts["received"], facts["accepted"]) == (2, 3, 23)  # nothing is given up
        migrations = [record.__dict__["fields"] for record in caplog.records if record.getMessage() == "migrated"]
        assert migrations == [
            {"file": "server.db", "from_schema": STORE, "to_schema": STORE + 1},
            {"file": "journal.db", "from_schema": JOURNAL, "to_schema": JOURNAL + 1},
        ]
        _, after = run_checks(capsys, data)
        assert not [name for name in after if name.startswith("server") and name != "server answers"]


def test_a_backup_of_an_earlier_version_is_restored(data: Path, tmp_path: Path) -> None:
    before = (data / "server" / "server.db").read_bytes()
    with next_versions(STORE_KIND):
        restore(data / "server" / "server.db", tmp_path / "restored", STORE_KIND)
    with closing(sqlite3.connect(tmp_path / "restored" / "server.db")) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (STORE + 1,)
        rows = db.execute("SELECT received, length(total) FROM rounds WHERE experiment = 'test' ORDER BY version")
        closed, open_ = rows.fetchall()
        parts = db.execute("SELECT count(*) FROM parts").fetchone()
    assert closed == (20, 0)
    # Sums of an open round are left behind; how many of the 3 who reported are in the file, and not still in its log,
    # is chance.
    received, total = open_
    assert received <= 3
    assert total == 0
    assert parts == (0,)
    assert (data / "server" / "server.db").read_bytes() == before
