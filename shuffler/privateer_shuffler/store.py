"""The database of one round: a place for every sealed message of the batch, all reserved when the round opens.

Why the file tells nothing about the order of arrival: a b-tree packs rows into a page in the order of their insertion,
whatever their keys, so reports are not inserted. The places are, at the start and in order; a report overwrites the
place that was drawn for it, byte for byte. What remains is the write-ahead log, which the pool truncates whenever it
has nothing to write. A delivered batch is overwritten with zeros. Where the server asks for another batch of the
version, fingerprints of what was delivered stay, keyed with the round's own random key and written in their own order:
the same bytes must not be in two batches. When the version is over they are overwritten too, and the files are deleted.
"""

import hashlib
import os
import secrets
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, Self

import msgspec

from privateer.wire.envelope import Header, header_of
from privateer.wire.publication import Round
from privateer_shuffler.database import damaged, open_database

SUFFIX: Final = ".db"
_PRAGMAS: Final = (
    "page_size=1024",  # random places touch a page each, and the log takes whole pages
    "journal_mode=WAL",
    "secure_delete=ON",
    "wal_autocheckpoint=4096",
)
_TABLES: Final = (
    "CREATE TABLE label (label BLOB NOT NULL, key BLOB NOT NULL)",
    "CREATE TABLE place (id INTEGER PRIMARY KEY, taken INTEGER NOT NULL, sealed BLOB NOT NULL)",
    "CREATE TABLE delivered (fingerprint BLOB PRIMARY KEY) WITHOUT ROWID",
)
_RESERVE: Final = """
    WITH RECURSIVE n(id) AS (SELECT 0 UNION ALL SELECT id + 1 FROM n WHERE id + 1 < ?)
    INSERT INTO place SELECT id, 0, zeroblob(?) FROM n
"""

_KEY_BYTES: Final = 32
_FINGERPRINT_BYTES: Final = 16


class Label(msgspec.Struct, frozen=True, array_like=True):
    """Which round a database holds: its public facts and the digest of its publication."""

    round: Round
    digest: bytes

    @property
    def header(self) -> Header:
        """The header that all reports of the round share."""
        return header_of(self.round, self.digest)


_DELIVERED: Final = "SELECT 1 FROM delivered WHERE fingerprint = ?"
_WHOLE: Final = "SELECT count(*) FROM place WHERE typeof(sealed) = 'blob' AND length(sealed) = ?"
"""Places as they must be: whatever else a file holds, it is not what was reserved."""


class RoundStore:
    """The database of one round. Use ``create`` or ``load``.

    ``write`` begins a transaction and ``commit`` makes it durable; they are apart so that the caller may wait for the
    disk in another thread. An error of the disk surfaces as ``sqlite3.Error``.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, label: Label, key: bytes) -> None:
        self._path = path
        self._connection = connection
        self._key = key
        self.label = label

    @classmethod
    def create(cls, folder: Path, label: Label) -> Self:
        """Reserve all places of a round, in one transaction.

        Raises
        ------
        OSError, sqlite3.Error
            If there is no room, or the round has a database already. No new file remains.
        """
        path = folder / (label.digest.hex() + SUFFIX)
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        connection: sqlite3.Connection | None = None
        key = secrets.token_bytes(_KEY_BYTES)
        try:
            connection = open_database(path, _PRAGMAS, _TABLES)
            _reserve(connection, label, key)
        except sqlite3.Error:
            if connection is not None:
                connection.close()
            _delete(path)
            raise
        return cls(path, connection, label, key)

    @classmethod
    def load(cls, path: Path) -> Self | None:
        """Open a round again; None, and the file deleted, if its creation or its deletion was cut short.

        Raises
        ------
        SpecError
            If the file is damaged, or no database of this version.
        """
        connection: sqlite3.Connection | None = None
        try:
            connection = open_database(path, _PRAGMAS, _TABLES)
            found = _read_label(connection)
        except (sqlite3.Error, OSError, msgspec.DecodeError, TypeError) as error:
            if connection is not None:
                connection.close()
            raise damaged(path) from error
        if found is None:
            _erase(path, connection)
            return None
        return cls(path, connection, *found)

    def places(self) -> Iterator[tuple[int, bytes | None]]:
        """Every place with the sealed report in it, if any."""
        return iter(self._connection.execute("SELECT id, iif(taken, sealed, NULL) FROM place ORDER BY id"))

    def fingerprint(self, sealed: bytes) -> bytes:
        """What a message is known by in this round; no other round and no other shuffler comes to the same."""
        return hashlib.blake2b(sealed, digest_size=_FINGERPRINT_BYTES, key=self._key).digest()

    def has_delivered(self, fingerprints: Iterable[bytes]) -> bool:
        """Whether any of these messages was in an earlier batch of the version."""
        found = (self._connection.execute(_DELIVERED, (one,)).fetchone() for one in fingerprints)
        return any(row is not None for row in found)

    def write(self, reports: Iterable[tuple[bytes, int]]) -> None:
        """Put sealed reports into places, in a transaction that ``commit`` ends."""
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany("UPDATE place SET taken = 1, sealed = ? WHERE id = ?", reports)

    def commit(self) -> None:
        """Make what was written durable."""
        self._connection.execute("COMMIT")

    def rollback(self) -> None:
        """Undo what was written and could not be made durable."""
        _rollback(self._connection)

    def truncate_log(self) -> None:
        """Move the write-ahead log, which still knows what was written when, into the database and empty it."""
        _truncate_log(self._connection)

    def batch(self) -> bytes:
        """What is held, in the order of its places."""
        return b"".join(row[0] for row in self._connection.execute("SELECT sealed FROM place WHERE taken ORDER BY id"))

    def renew(self) -> None:
        """Make room for another batch: fingerprints remain of what was held, in one transaction; may be tried again."""
        _rollback(self._connection)
        held = self._connection.execute("SELECT sealed FROM place WHERE taken")
        fingerprints = sorted(self.fingerprint(row[0]) for row in held)
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany("INSERT OR IGNORE INTO delivered VALUES (?)", ((one,) for one in fingerprints))
        self._connection.execute("UPDATE place SET taken = 0, sealed = zeroblob(?)", (self.label.round.sealed_size,))
        self._connection.execute("COMMIT")
        self.truncate_log()

    def erase(self) -> None:
        """Overwrite the reports with zeros and delete the files; may be tried again if the disk is full."""
        _erase(self._path, self._connection)

    def close(self) -> None:
        """Close the file and keep it."""
        self._connection.close()


def _reserve(connection: sqlite3.Connection, label: Label, key: bytes) -> None:
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(_RESERVE, (label.round.batch * label.round.messages, label.round.sealed_size))
        connection.execute("INSERT INTO label VALUES (?, ?)", (msgspec.msgpack.encode(label), key))
        connection.execute("COMMIT")
        _truncate_log(connection)
    except sqlite3.Error:
        connection.close()
        raise


def _read_label(connection: sqlite3.Connection) -> tuple[Label, bytes] | None:
    """The label of a round and the key of its fingerprints."""
    try:
        row = connection.execute("SELECT label, key FROM label").fetchone()
        if row is None:
            return None
        label = msgspec.msgpack.decode(row[0], type=Label)
        _check(connection, label.round, row[1])
    except (sqlite3.Error, msgspec.DecodeError, TypeError):
        connection.close()
        raise
    return label, row[1]


def _check(connection: sqlite3.Connection, round_: Round, key: object) -> None:
    """Refuse a file whose structure is broken, or that lacks places, the key or the table of fingerprints."""
    state = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    places = connection.execute(_WHOLE, (round_.sealed_size,)).fetchone()[0]
    connection.execute(_DELIVERED, (b"",)).fetchone()
    whole = isinstance(key, bytes) and len(key) == _KEY_BYTES
    if state != "ok" or places != round_.batch * round_.messages or not whole:
        raise sqlite3.DatabaseError


def _truncate_log(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _rollback(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def _erase(path: Path, connection: sqlite3.Connection) -> None:
    _rollback(connection)  # of an attempt that failed
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("DELETE FROM label")  # once committed the round is forgotten, even if the rest is cut short
    connection.execute("DELETE FROM place")
    connection.execute("DELETE FROM delivered")
    connection.execute("COMMIT")
    _truncate_log(connection)
    connection.close()
    _delete(path)


def _delete(path: Path) -> None:
    for suffix in ("", "-wal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
