"""A folder of an earlier version: the doctor says what a start will do, and a start does just that."""

import logging
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from privateer_server.app import create_app
from privateer_server.settings import ServerSettings
from privateer_server.store.backup import restore
from privateer_server.store.schema import STORE_KIND as DATABASE
from tests.support.asgi import serving
from tests.support.doctor import TOKEN, contents, examined
from tests.support.servers import Api

# What the columns and tables of these versions were not yet. Their round's sums were one; here its parts are.
DATABASE_4 = """
UPDATE rounds SET total = (SELECT parts.total FROM parts
    WHERE parts.experiment = rounds.experiment AND parts.version = rounds.version)
    WHERE EXISTS (SELECT 1 FROM parts
    WHERE parts.experiment = rounds.experiment AND parts.version = rounds.version);
DROP TABLE parts; DROP TABLE spent_tokens; DROP TABLE backup;
ALTER TABLE experiments DROP COLUMN released_at; ALTER TABLE rounds DROP COLUMN given_up;
PRAGMA user_version = 4
"""
JOURNAL_3 = "DROP TABLE log; DROP TABLE leaves; PRAGMA user_version = 3"


def earlier(path: Path, statements: str) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.executescript(statements)


async def test_the_doctor_and_a_start_agree_about_a_folder_of_an_earlier_version(
    data: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "privateer")
    earlier(data / "server" / "server.db", DATABASE_4)
    earlier(data / "server" / "journal.db", JOURNAL_3)
    before = contents(data)
    code, found = examined(capsys, data)
    assert (code, contents(data)) == (0, before)
    (database,), (journal,) = found["server database"], found["server journal"]
    for one, file, versions in ((database, "server.db", "4 to 6"), (journal, "journal.db", "3 to 4")):
        assert one["level"] == "warn"
        assert one["detail"] == f"{file} is of an earlier Privateer: the next start brings it from schema {versions}"
        assert "backup" in one["remedy"]
    assert not [name for name in found if name.startswith("server") and name not in KNOWN]

    async with serving(create_app(ServerSettings(data=data / "server", admin_token=TOKEN))) as client:
        facts = await Api(client).facts()
    assert (facts["version"], facts["received"], facts["accepted"]) == (2, 3, 23)  # nothing is given up
    told = [one.__dict__["fields"] for one in caplog.records if one.getMessage() == "migrated"]
    assert told == [
        {"file": "server.db", "from_schema": 4, "to_schema": 6},
        {"file": "journal.db", "from_schema": 3, "to_schema": 4},
    ]
    _, after = examined(capsys, data)
    assert not [name for name in after if name.startswith("server") and name != "server answers"]


KNOWN = {"server database", "server journal", "server answers"}


def test_a_backup_of_an_earlier_version_is_restored(data: Path, tmp_path: Path) -> None:
    earlier(data / "server" / "server.db", DATABASE_4)
    before = (data / "server" / "server.db").read_bytes()
    restore(data / "server" / "server.db", tmp_path / "restored", DATABASE)
    with closing(sqlite3.connect(tmp_path / "restored" / "server.db")) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (DATABASE.version,)
        assert db.execute("SELECT received FROM rounds WHERE experiment = 'test' ORDER BY version").fetchall() == [
            (20,),
            (3,),
        ]
    assert (data / "server" / "server.db").read_bytes() == before
