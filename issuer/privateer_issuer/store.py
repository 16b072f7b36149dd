"""What the issuer must not forget: its keys, and how many tokens each device has had."""

import hashlib
import logging
import secrets
import sqlite3
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final, NamedTuple

from privateer_core.serving.logs import tell
from privateer_core.serving.store.sqlite import FileKind, open_database, was_cut_short

FILE: Final = "issuer.db"
DATABASE: Final = FileKind(
    application=0x50525649,
    version=1,
    schema="""
    CREATE TABLE secret (key BLOB NOT NULL);
    CREATE TABLE keys (
        experiment TEXT NOT NULL, not_before INTEGER NOT NULL, not_after INTEGER NOT NULL,
        public BLOB NOT NULL, private BLOB NOT NULL, PRIMARY KEY (experiment, not_before)
    ) WITHOUT ROWID;
    CREATE TABLE issued (
        experiment TEXT NOT NULL, device BLOB NOT NULL, request BLOB NOT NULL,
        PRIMARY KEY (experiment, device, request)
    ) WITHOUT ROWID
    """,
    field="PRIVATEER_DATA",
)
_log = logging.getLogger("privateer.issuer")
_KEY_BYTES: Final = 32
_HASH_BYTES: Final = 16


class KeyRow(NamedTuple):
    """A key: its public half as it is shown, and its private half in PKCS #8, empty once it has expired."""

    experiment: str
    not_before: int
    not_after: int
    public: bytes
    private: bytes


class Taking(NamedTuple):
    """A device's request for one token of an experiment."""

    experiment: str
    device: str
    request: bytes


class IssuerStore:
    """One SQLite file, fsynced at every commit.

    It has no pseudonyms and no requests, but hashes of them with a key of its own.

    Raises
    ------
    SpecError
        If the file cannot be used, or another issuer has it.
    """

    def __init__(self, folder: Path) -> None:
        is_cut_short = was_cut_short(folder / FILE)
        self._db = open_database(folder / FILE, DATABASE)
        if is_cut_short:
            tell(_log, "recovered after an unclean stop", keys=len(self.keys()))
        row = self._db.execute("SELECT key FROM secret").fetchone()
        if row is None:
            row = (secrets.token_bytes(_KEY_BYTES),)
            self._db.execute("INSERT INTO secret VALUES (?)", row)
        self._secret: bytes = row[0]

    def keys(self) -> list[KeyRow]:
        """Return all keys, the newest of each experiment last."""
        return [KeyRow(*row) for row in self._db.execute("SELECT * FROM keys ORDER BY experiment, not_before")]

    def replace_keys(self, rows: Iterable[KeyRow]) -> None:
        """Keep these keys and no others; what is gone is overwritten. Durable when this returns."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            self._db.execute("DELETE FROM keys")
            self._db.executemany("INSERT INTO keys VALUES (?, ?, ?, ?, ?)", rows)
            self._db.execute("COMMIT")
        except sqlite3.Error:
            self._rollback()
            raise
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def forget_shares(self, experiments: Collection[str]) -> None:
        """Forget who had tokens of any experiment but these; what is gone is overwritten. Durable when this returns."""
        known = {name for (name,) in self._db.execute("SELECT DISTINCT experiment FROM issued")}
        if gone := known.difference(experiments):
            self._db.executemany("DELETE FROM issued WHERE experiment = ?", ((name,) for name in gone))
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def take(self, takings: Iterable[Taking], most: int) -> list[bool]:
        """Count requests in one transaction, and return which of them are within their devices' shares.

        A request that was counted before is within the share, and counts once.
        """
        self._db.execute("BEGIN IMMEDIATE")
        try:
            granted = [self._take(taking, most) for taking in takings]
            self._db.execute("COMMIT")
        except sqlite3.Error:
            self._rollback()
            raise
        return granted

    def _take(self, taking: Taking, most: int) -> bool:
        whose = (taking.experiment, self._hash(taking.device.encode()))
        row = (*whose, self._hash(taking.request))
        known = "SELECT 1 FROM issued WHERE (experiment, device, request) = (?, ?, ?)"
        if self._db.execute(known, row).fetchone():
            return True
        had = "SELECT count(*) FROM issued WHERE (experiment, device) = (?, ?)"
        if self._db.execute(had, whose).fetchone()[0] >= most:
            return False
        self._db.execute("INSERT INTO issued VALUES (?, ?, ?)", row)
        return True

    def _hash(self, some: bytes) -> bytes:
        return hashlib.blake2b(some, digest_size=_HASH_BYTES, key=self._secret).digest()

    def _rollback(self) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def close(self) -> None:
        """Close the file and give up its lock."""
        self._db.close()
