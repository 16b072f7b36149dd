"""The database of one round: a place for every sealed message of the batch, all reserved when the round opens.

The file does not show the order of arrival. A b-tree packs rows into a page in the order of their insertion, whatever
their keys, so reports are not inserted: the places are, at the start and in order, and a report overwrites the place
that was drawn for it, byte for byte. The write-ahead log still has the order, so the pool truncates it whenever there
is nothing to write.

A delivered batch is overwritten with zeros. If the server asks for another batch of the version, fingerprints of the
delivered messages stay, since the same bytes must not be in two batches. They are keyed with the round's own random key
and written in their own order. When the version is over they are overwritten too, and the files are deleted.
"""

import hashlib
import os
import secrets
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, Self

import msgspec

from privateer_core.prepared_types import prepared
from privateer_core.serving.store.database import DatabaseFacts
from privateer_core.serving.store.sqlite import FileKind, connect, damaged, facts_of, open_database
from privateer_core.wire.publication import Round
from privateer_shuffler.pool.round import Label

SUFFIX: Final = ".db"
REPAIR: Final = "restore it, or move it away and lose what it holds"
ROUND_DATABASE: Final = FileKind(
    application=0x50525652,
    version=1,
    schema="""
    CREATE TABLE label (label BLOB NOT NULL, key BLOB NOT NULL);
    CREATE TABLE place (id INTEGER PRIMARY KEY, taken INTEGER NOT NULL, sealed BLOB NOT NULL);
    CREATE TABLE delivered (fingerprint BLOB PRIMARY KEY) WITHOUT ROWID
    """,
    field="PRIVATEER_DATA",
    # Random places touch a page each, and the log takes whole pages.
    pragmas=("page_size=1024", "wal_autocheckpoint=4096"),
    repair=REPAIR,
)
_RESERVE: Final = """
    WITH RECURSIVE n(id) AS (SELECT 0 UNION ALL SELECT id + 1 FROM n WHERE id + 1 < ?)
    INSERT INTO place SELECT id, 0, zeroblob(?) FROM n
"""
_DELIVERED: Final = "SELECT 1 FROM delivered WHERE fingerprint = ?"
_TOKENS: Final = "CREATE TABLE token (id INTEGER PRIMARY KEY, taken INTEGER NOT NULL, token BLOB NOT NULL)"
_RESERVE_TOKENS: Final = """
    WITH RECURSIVE n(id) AS (SELECT 0 UNION ALL SELECT id + 1 FROM n WHERE id + 1 < ?)
    INSERT INTO token SELECT id, 0, zeroblob(?) FROM n
"""
_WHOLE: Final = "SELECT count(*) FROM place WHERE typeof(sealed) = 'blob' AND length(sealed) = ?"
"""Counts the places that are as they were reserved."""
_KEY_BYTES: Final = 32
_FINGERPRINT_BYTES: Final = 16


class RoundStore:
    """The database of one round. Use ``create`` or ``load``.

    ``write`` begins a transaction and ``commit`` makes it durable; they are apart so that the caller may wait for the
    disk in another thread. If the disk fails, a method raises ``sqlite3.Error``.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, label: Label, key: bytes) -> None:
        self._path = path
        self._connection = connection
        self._key = key
        self._is_renewed = connection.execute("SELECT 1 FROM delivered LIMIT 1").fetchone() is not None
        self._has_tokens = _has_tokens(connection)
        self.label = label

    @classmethod
    def create(cls, folder: Path, label: Label, token_size: int = 0) -> Self:
        """Reserve all places of a round, in one transaction; and those of upload tokens, if they have bytes."""
        path = folder / (label.digest.hex() + SUFFIX)
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        key = secrets.token_bytes(_KEY_BYTES)
        try:
            return cls(path, _reserved(path, label, key, token_size), label, key)
        except (sqlite3.Error, OSError):
            _delete(path)
            raise

    @classmethod
    def load(cls, path: Path) -> Self | None:
        """Open a round again. If its creation or its deletion was cut short, delete the file and return None."""
        connection = open_database(path, ROUND_DATABASE)
        try:
            found = read_label(connection)
        except (sqlite3.Error, msgspec.DecodeError, TypeError) as error:
            connection.close()
            raise damaged(path, ROUND_DATABASE) from error
        if found is None:
            _erase(path, connection)
            return None
        return cls(path, connection, *found)

    def places(self) -> Iterator[tuple[int, bytes | None]]:
        """Yield every place with the sealed message in it, or None if it is free."""
        return iter(self._connection.execute("SELECT id, iif(taken, sealed, NULL) FROM place ORDER BY id"))

    def fingerprints(self, messages: Iterable[bytes]) -> list[bytes]:
        """Return what identifies messages in this round. Other rounds and other shufflers come to other bytes."""
        made, key = hashlib.blake2b, self._key
        return [made(message, digest_size=_FINGERPRINT_BYTES, key=key).digest() for message in messages]

    def has_delivered(self, fingerprints: Iterable[bytes]) -> bool:
        """Whether any of these messages was in an earlier batch of the version."""
        if not self._is_renewed:
            return False
        found = (self._connection.execute(_DELIVERED, (one,)).fetchone() for one in fingerprints)
        return any(row is not None for row in found)

    def write(self, reports: Iterable[tuple[bytes, int]]) -> None:
        """Put sealed messages into places, in a transaction that ``commit`` ends."""
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany("UPDATE place SET taken = 1, sealed = ? WHERE id = ?", reports)

    def reserve_tokens(self, size: int) -> None:
        """Reserve a place for each person's upload token, once."""
        if self._has_tokens:
            return
        self._connection.execute("BEGIN IMMEDIATE")
        _reserve_tokens(self._connection, self.label, size)
        self._connection.execute("COMMIT")
        self._has_tokens = True
        self.truncate_log()

    def tokens(self) -> Iterator[tuple[int, bytes | None]]:
        """Yield every place for a token with the one in it, or None if it is free."""
        return iter(self._connection.execute("SELECT id, iif(taken, token, NULL) FROM token ORDER BY id"))

    def write_tokens(self, tokens: Iterable[tuple[bytes, int]]) -> None:
        """Put tokens into places, in the transaction that `write` began."""
        self._connection.executemany("UPDATE token SET taken = 1, token = ? WHERE id = ?", tokens)

    def commit(self) -> None:
        """Make what was written durable."""
        self._connection.execute("COMMIT")

    def rollback(self) -> None:
        """Undo a write that could not be made durable."""
        _rollback(self._connection)

    def truncate_log(self) -> None:
        """Move the write-ahead log into the database and empty it: it shows in which order messages came."""
        _truncate_log(self._connection)

    def batch(self) -> bytes:
        """Return the messages that are held, in the order of their places."""
        return b"".join(row[0] for row in self._connection.execute("SELECT sealed FROM place WHERE taken ORDER BY id"))

    def renew(self) -> None:
        """Make room for another batch and keep fingerprints of this one, in one transaction. It may be tried again."""
        _rollback(self._connection)
        held = self._connection.execute("SELECT sealed FROM place WHERE taken")
        fingerprints = sorted(self.fingerprints(sealed for (sealed,) in held))
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany("INSERT OR IGNORE INTO delivered VALUES (?)", ((one,) for one in fingerprints))
        self._connection.execute("UPDATE place SET taken = 0, sealed = zeroblob(?)", (self.label.round.sealed_size,))
        if self._has_tokens:
            self._connection.execute("UPDATE token SET taken = 0, token = zeroblob(length(token))")
        self._connection.execute("COMMIT")
        self._is_renewed = True
        self.truncate_log()

    def examine(self) -> DatabaseFacts:
        """Read the whole file, and return how it is."""
        return facts_of(self._connection)

    def erase(self) -> None:
        """Overwrite the reports with zeros and delete the files. It may be tried again if the disk is full."""
        _erase(self._path, self._connection)

    def close(self) -> None:
        """Close the file and keep it."""
        self._connection.close()


def _reserved(path: Path, label: Label, key: bytes, token_size: int) -> sqlite3.Connection:
    connection = connect(path, ROUND_DATABASE)
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(_RESERVE, (label.round.batch * label.round.messages, label.round.sealed_size))
        if token_size:
            _reserve_tokens(connection, label, token_size)
        connection.execute("INSERT INTO label VALUES (?, ?)", (msgspec.msgpack.encode(label), key))
        connection.execute("COMMIT")
        _truncate_log(connection)
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def read_label(connection: sqlite3.Connection) -> tuple[Label, bytes] | None:
    """Return the label of a round and the key of its fingerprints, or None if the file does not have them."""
    row = connection.execute("SELECT label, key FROM label").fetchone()
    if row is None:
        return None
    label = msgspec.msgpack.decode(row[0], type=prepared(Label))
    _check(connection, label.round, row[1])
    return label, row[1]


def _check(connection: sqlite3.Connection, round_: Round, key: object) -> None:
    """Refuse a file that lacks places, the key or the table of fingerprints."""
    places = connection.execute(_WHOLE, (round_.sealed_size,)).fetchone()[0]
    connection.execute(_DELIVERED, (b"",)).fetchone()
    has_key = isinstance(key, bytes) and len(key) == _KEY_BYTES
    if places != round_.batch * round_.messages or not has_key:
        raise sqlite3.DatabaseError


def _reserve_tokens(connection: sqlite3.Connection, label: Label, size: int) -> None:
    connection.execute(_TOKENS)
    connection.execute(_RESERVE_TOKENS, (label.round.batch, size))


def _has_tokens(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'token'").fetchone() is not None


def _truncate_log(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _rollback(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def _erase(path: Path, connection: sqlite3.Connection) -> None:
    _rollback(connection)  # an earlier attempt may have failed
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("DELETE FROM label")  # once committed the round is forgotten, even if the rest is cut short
    connection.execute("DELETE FROM place")
    connection.execute("DELETE FROM delivered")
    if _has_tokens(connection):
        connection.execute("DELETE FROM token")
    connection.execute("COMMIT")
    _truncate_log(connection)
    _delete(path)
    connection.close()  # not before: where the folder takes no change, all of this is tried again


def _delete(path: Path) -> None:
    for suffix in ("", "-wal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
