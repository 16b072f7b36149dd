"""``privateer doctor`` on damaged files, lost keys, wrong permissions, and folders of earlier versions."""

import logging
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_core.wire.keys import UNREADABLE_KEY_REMEDY
from privateer_lab.doctor.services import examine_shuffler
from privateer_server.app import create_app
from privateer_server.intake.decryption import RoundKeys
from privateer_server.settings import ServerSettings
from privateer_server.store.backup import restore
from privateer_server.store.records import LogLine
from privateer_server.store.round_keys import KeyFolder
from privateer_server.store.schema import JOURNAL_KIND, STORE_KIND
from privateer_shuffler.pool.spent_tokens import TOKENS_FILE, FiledTokens
from privateer_shuffler.settings import read_settings
from tests.support.asgi import serving
from tests.support.doctor import TOKEN, Deployment, contents, edit, find, garbage, run_checks
from tests.support.next_versions import next_versions
from tests.support.servers import Api
from tests.support.stores import embedded_journal


def swap_keys(data: Path) -> None:
    first, second = sorted((data / "server" / "keys").glob("*.key"))
    body = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(body)


def tear_pages(data: Path) -> None:
    """Damage the pages of the table that is read last, and remove the log, which may have them whole."""
    edit(data / "server" / "server.db", "PRAGMA wal_checkpoint(TRUNCATE)")
    with (data / "server" / "server.db").open("r+b") as file:
        for page in range(4, 24):
            file.seek(page * 4096 + 100)
            file.write(os.urandom(3000))


def change_sums(data: Path) -> None:
    edit(data / "server" / "server.db", "UPDATE rounds SET total = x'00' WHERE total != x''")


def add_unknown_key(data: Path) -> None:
    RoundKeys(KeyFolder(data / "server" / "keys")).create_key()


def other_public_key(data: Path) -> None:
    public = Ed25519PrivateKey.generate().public_key().public_bytes_raw().hex()
    (data / "trusted" / "shuffler.pub").write_text(public + "\n")


def open_to_writers(data: Path) -> None:
    (data / "trusted").chmod(0o777)


def unreadable(key: Path) -> None:
    """Have its file be none that can be read, by root either."""
    key.unlink()
    key.mkdir(mode=0o700)


def spend(data: Path, statement: str = "") -> Path:
    """Store spent tokens of an earlier round in a shuffler's folder, and change the file by a statement."""
    tokens = FiledTokens(data / "shuffler")
    tokens.store([(tokens.hash(b"nonce"), 2_000_000_000)])
    tokens.close()
    path = data / "shuffler" / TOKENS_FILE
    if statement:
        edit(path, statement)
    path.chmod(0o600)
    return path


CASES: list[tuple[Callable[[Path], object], str, str]] = [
    (lambda data: garbage(data / "server" / "server.db"), "server database", "damaged, or no database"),
    (lambda data: garbage(data / "server" / "journal.db"), "server journal", "damaged, or no database"),
    (lambda data: garbage(data / "shuffler" / "taken.sqlite"), "shuffler history", "damaged, or no database"),
    (lambda data: garbage(find(data / "shuffler", "*.db")), "shuffler rounds", "a .db file of shuffler is damaged"),
    (lambda data: (data / "server" / "server.db").unlink(), "server database", "server.db is missing"),
    (tear_pages, "server database", "damaged"),
    (
        lambda data: edit(data / "server" / "server.db", "PRAGMA user_version=77"),
        "server database",
        "server.db was made by a newer Privateer: schema 77, and this one reads",
    ),
    (
        lambda data: edit(data / "server" / "journal.db", "PRAGMA user_version=1"),
        "server journal",
        f"journal.db is too old: schema 1, and this Privateer reads {JOURNAL_KIND.version}",
    ),
    (
        lambda data: edit(find(data / "shuffler", "*.db"), "PRAGMA user_version=77"),
        "shuffler rounds",
        "was made by a newer Privateer",
    ),
    (
        lambda data: edit(find(data / "shuffler", "*.db"), "DELETE FROM place WHERE id = 7"),
        "shuffler rounds",
        "a .db file of shuffler is damaged",
    ),
    (
        lambda data: edit(data / "shuffler" / "taken.sqlite", "DELETE FROM taken"),
        "shuffler history",
        "does not know the round of shuffled",
    ),
    (
        lambda data: find(data / "server" / "keys", "*.key").unlink(),
        "server round keys",
        "the key of the open round of",
    ),
    (swap_keys, "server round keys", "2 files hold no key, or not that of their name"),
    (change_sums, "server round keys", "the sums of the open round of"),
    (lambda data: find(data / "server" / "keys", "*.key").chmod(0o644), "server permissions", "a .key file of keys"),
    (lambda data: (data / "shuffler" / "shuffler.key").chmod(0o640), "shuffler permissions", "shuffler.key"),
    (lambda data: (data / "shuffler").chmod(0o755), "shuffler permissions", "other users may read or change shuffler"),
    (lambda data: (data / "sender.key").chmod(0o604), "sender permissions", "other users may read sender.key"),
    (lambda data: (data / "shuffler" / "shuffler.key").write_text("no key"), "shuffler key", "holds no key"),
    (lambda data: (data / "sender.key").write_text("no key"), "sender key", "sender.key holds no key"),
    (other_public_key, "shuffler key", "shuffler.pub is not the public half of this key"),
    (other_public_key, "shuffler trust", "the server does not trust this shuffler's key"),
    (other_public_key, "server shufflers", "shuffled is claimed by a shuffler that is not trusted"),
    (lambda data: (data / "trusted" / "shuffler.pub").unlink(), "server shufflers", "shuffled needs a shuffler"),
    (
        lambda data: (data / "trusted" / "shuffler.pub").write_text("x"),
        "server shufflers",
        "shuffler.pub holds no public key",
    ),
    (lambda data: (data / "server" / "identity.key").unlink(), "server identity", "there is no identity.key, and"),
    (lambda data: (data / "server" / "identity.key").write_text("x"), "server identity", "identity.key holds no key"),
    (lambda data: (data / "server" / "identity.key").chmod(0o640), "server permissions", "identity.key"),
    (lambda data: unreadable(data / "server" / "identity.key"), "server identity", "identity.key cannot be read: "),
    (lambda data: unreadable(data / "shuffler" / "shuffler.key"), "shuffler key", "shuffler.key cannot be read: "),
    (
        lambda data: edit(data / "server" / "server.db", "UPDATE leaves SET digest = x'00' WHERE position = 1"),
        "server journal",
        "the log in the journal is not the one in the database",
    ),
    (lambda data: garbage(spend(data)), "shuffler spent tokens", "spent.sqlite is damaged, or no database"),
    (lambda data: spend(data, "DELETE FROM secret"), "shuffler spent tokens", "the key of its hashes is lost"),
    (lambda data: spend(data, "UPDATE spent SET token = x'00'"), "shuffler spent tokens", "no hash of a token"),
    (open_to_writers, "server shufflers", "other users may change shuffler.pub"),
]


@pytest.mark.parametrize(("damage", "check", "says"), CASES, ids=[f"{check}: {says}" for _, check, says in CASES])
def test_damage_is_a_failed_check_with_a_remedy(damage, check, says, data, capsys):
    damage(data)
    before = contents(data)
    code, checks = run_checks(capsys, data)
    assert contents(data) == before
    assert code == 1
    assert any(row["level"] == "fail" and says in row["detail"] and row["remedy"] for row in checks[check])


@pytest.mark.parametrize(
    ("key", "check"), [("server/identity.key", "server identity"), ("shuffler/shuffler.key", "shuffler key")]
)
def test_an_unreadable_key_is_not_to_be_replaced(key, check, data, capsys):
    unreadable(data / key)
    assert [row["remedy"] for row in run_checks(capsys, data)[1][check]] == [UNREADABLE_KEY_REMEDY]


def test_a_round_with_an_unreadable_key_is_not_to_be_given_up(data, capsys, monkeypatch):
    read = Path.read_bytes

    def refuse_keys(path: Path) -> bytes:
        if path.parent.name == "keys":
            raise PermissionError(13, "Permission denied", str(path))
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", refuse_keys)
    code, checks = run_checks(capsys, data)
    assert code == 1
    rows = [(row["level"], row["detail"], row["remedy"]) for row in checks["server round keys"]]
    assert rows == [("fail", "a .key file of keys cannot be read", UNREADABLE_KEY_REMEDY)]


@pytest.mark.parametrize(
    ("required", "has_tokens", "levels"), [(True, False, ["warn"]), (False, False, []), (True, True, ["ok"])]
)
def test_spent_tokens_are_looked_for_where_reports_come_with_tokens(required, has_tokens, levels, tmp_path):
    folder = tmp_path / "shuffler"
    folder.mkdir(mode=0o700)
    (folder / "shuffler.key").touch(0o600)
    if has_tokens:
        spend(tmp_path)
    settings = {"PRIVATEER_UPLOAD_TOKENS": "required", "PRIVATEER_TOKEN_KEYS": str(tmp_path)} if required else {}
    checkup = examine_shuffler(read_settings({"PRIVATEER_DATA": str(folder), **settings}))
    assert [check.level.name.lower() for check in checkup.checks if check.check == "spent tokens"] == levels


def earlier_database(deployment: Deployment, data: Path) -> None:
    for path in (data / "server").glob("server.db*"):
        path.unlink()
    for path in (deployment.early / "server").glob("server.db*"):
        shutil.copy2(path, data / "server")


def lost_experiment(_: Deployment, data: Path) -> None:
    edit(data / "server" / "server.db", "DELETE FROM rounds WHERE experiment = 'test'")
    edit(data / "server" / "server.db", "DELETE FROM experiments WHERE name = 'test'")


def deleted_experiment(_: Deployment, data: Path) -> None:
    journal = embedded_journal(data / "server" / "journal.db")
    journal.record_deletion("test", LogLine(0.0, "delete", "", "somebody", 1, 1))
    journal.close()


def delivered_batch(_: Deployment, data: Path) -> None:
    """The shuffler has heard that the open round takes no further batch, and the database knows of none."""
    journal = embedded_journal(data / "server" / "journal.db")
    last = journal.last_entry("test")
    assert last
    journal.record_end_of_batches("test", last.following.digest)
    journal.close()


WARNINGS: list[tuple[Callable[[Deployment, Path], object], str, str]] = [
    (lambda _, data: (data / "server" / "journal.db").unlink(), "server journal", "there is no journal.db"),
    (earlier_database, "server journal", "a start gives up the open round of test: an earlier copy"),
    (delivered_batch, "server journal", "which has no longer the round's last batch"),
    (lost_experiment, "server journal", "test was published, and is not in the database"),
    (deleted_experiment, "server journal", "test was deleted, and an earlier copy has brought it back"),
    (lambda _, data: add_unknown_key(data), "server round keys", "keys of 1 closed rounds are not erased"),
    (lambda _, data: (data / "shuffler" / "taken.sqlite").write_bytes(b""), "shuffler history", "is empty"),
]


@pytest.mark.parametrize(("change", "check", "says"), WARNINGS, ids=[says for _, _, says in WARNINGS])
def test_a_condition_to_look_at_is_a_warning(change, check, says, deployment, data, capsys):
    change(deployment, data)
    _, checks = run_checks(capsys, data)
    assert any(row["level"] == "warn" and says in row["detail"] and row["remedy"] for row in checks[check])


KNOWN = {"server database", "server journal", "server answers"}
STORE, JOURNAL = STORE_KIND.version, JOURNAL_KIND.version


async def test_the_doctor_and_a_start_agree_about_a_folder_of_an_earlier_version(data, capsys, caplog):
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
