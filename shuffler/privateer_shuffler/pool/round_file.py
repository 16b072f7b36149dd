"""The database of one round: a place for every sealed message of the batch, all reserved when the round opens.

The file does not show the order of arrival. A b-tree packs rows into a page in the order of their insertion, whatever
their keys, so reports are not inserted: all places are inserted at the start, in order, and a report overwrites its
random place, byte for byte. The write-ahead log still has the order, so the pool truncates it when it is idle.

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

from privateer_core.prepared_types import cache_decoder
from privateer_core.serving.store.database import DatabaseFacts, read_facts
from privateer_core.serving.store.sqlite import FileKind, connect, damage_error, open_database
from privateer_core.wire.publication import Round
from privateer_shuffler.pool.pool import Label

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
    INSERT INTO {table} SELECT id, 0, zeroblob(?) FROM n
"""
_TRUNCATE_LOG: Final = "PRAGMA wal_checkpoint(TRUNCATE)"
_DELIVERED: Final = "SELECT 1 FROM delivered WHERE fingerprint = ?"
_TOKENS: Final = "CREATE TABLE token (id INTEGER PRIMARY KEY, taken INTEGER NOT NULL, token BLOB NOT NULL)"
_CLOSING: Final = "CREATE TABLE IF NOT EXISTS closing (id INTEGER PRIMARY KEY, body BLOB NOT NULL)"
_COUNT_VALID_PLACES: Final = "SELECT count(*) FROM place WHERE typeof(sealed) = 'blob' AND length(sealed) = ?"
"""Counts the places that are as they were reserved."""
_KEY_BYTES: Final = 32
_FINGERPRINT_BYTES: Final = 16


class RoundStore:
    """The database of a round. Use ``create`` or ``load``.

    ``write`` begins a transaction and ``commit`` makes it durable, so that the caller may wait for the disk in another
    thread. If the disk fails, a method raises ``sqlite3.Error``.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, label: Label, key: bytes) -> None:
        self._path, self._connection, self.label, self._key = path, connection, label, key
        self._is_renewed = connection.execute("SELECT 1 FROM delivered LIMIT 1").fetchone() is not None
        self._has_tokens = self._has_table("token")

    @classmethod
    def create(cls, folder: Path, label: Label, token_size: int = 0) -> Self:
        """Create the file with all places of a round, and of upload tokens if ``token_size`` is above 0."""
        path = folder / (label.digest.hex() + SUFFIX)
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        key = secrets.token_bytes(_KEY_BYTES)
        try:
            return cls(path, _create_reserved(path, label, key, token_size), label, key)
        except (sqlite3.Error, OSError):
            _delete(path)
            raise

    @classmethod
    def load(cls, path: Path) -> Self | None:
        """Open a round again. If its creation or its deletion was cut short, delete the file and return None."""
        connection = open_database(path, ROUND_DATABASE)
        try:
            label_and_key = read_label(connection)
        except (sqlite3.Error, msgspec.DecodeError, TypeError) as error:
            connection.close()
            raise damage_error(path, ROUND_DATABASE) from error
        if label_and_key is None:
            _erase(path, connection)
            return None
        return cls(path, connection, *label_and_key)

    def iter_places(self) -> Iterator[tuple[int, bytes | None]]:
        """Yield every place with the sealed message in it, or None if it is free."""
        return iter(self._connection.execute("SELECT id, iif(taken, sealed, NULL) FROM place ORDER BY id"))

    def fingerprints(self, messages: Iterable[bytes]) -> list[bytes]:
        """Return the fingerprints of messages, which are hashes of their identity with the round's own key."""
        hash_, key, size = hashlib.blake2b, self._key, self.label.round.identity_size
        return [hash_(message[:size], digest_size=_FINGERPRINT_BYTES, key=key).digest() for message in messages]

    def has_delivered(self, fingerprints: Iterable[bytes]) -> bool:
        """Whether any of these messages was in an earlier batch of the version."""
        if not self._is_renewed:
            return False
        rows = (self._connection.execute(_DELIVERED, (fingerprint,)).fetchone() for fingerprint in fingerprints)
        return any(row is not None for row in rows)

    def write(self, reports: Iterable[tuple[bytes, int]]) -> None:
        """Write sealed messages into places, in a transaction that ``commit`` ends."""
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany("UPDATE place SET taken = 1, sealed = ? WHERE id = ?", reports)

    def reserve_tokens(self, size: int) -> None:
        """Reserve a place for each participant's upload token, once."""
        if self._has_tokens:
            return
        self._connection.execute("BEGIN IMMEDIATE")
        _reserve_tokens(self._connection, self.label, size)
        self._connection.execute("COMMIT")
        self._has_tokens = True
        self.truncate_log()

    def iter_tokens(self) -> Iterator[tuple[int, bytes | None]]:
        """Yield every place for a token with its token, or None if it is free."""
        return iter(self._connection.execute("SELECT id, iif(taken, token, NULL) FROM token ORDER BY id"))

    def write_tokens(self, tokens: Iterable[tuple[bytes, int]]) -> None:
        """Write tokens into places, in the transaction that `write` began."""
        self._connection.executemany("UPDATE token SET taken = 1, token = ? WHERE id = ?", tokens)

    def commit(self) -> None:
        """Commit the transaction durably."""
        self._connection.execute("COMMIT")

    def rollback(self) -> None:
        """Undo a write that could not be made durable."""
        _rollback(self._connection)

    def truncate_log(self) -> None:
        """Move the write-ahead log, which shows the order of arrival, into the database, and empty it."""
        self._connection.execute(_TRUNCATE_LOG)

    def read_batch(self) -> bytes:
        """Return the held messages, in the order of their places."""
        return b"".join(row[0] for row in self._connection.execute("SELECT sealed FROM place WHERE taken ORDER BY id"))

    def find_closing(self) -> bytes | None:
        """Return the helper's closing of this batch, if it was made."""
        if not self._has_table("closing"):
            return None
        row = self._connection.execute("SELECT body FROM closing").fetchone()
        return bytes(row[0]) if row else None

    def store_closing(self, body: bytes) -> None:
        """Store the helper's closing of this batch durably; there is none yet."""
        _rollback(self._connection)
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute(_CLOSING)
        self._connection.execute("INSERT INTO closing VALUES (1, ?)", (body,))
        self._connection.execute("COMMIT")

    def _has_table(self, name: str) -> bool:
        query = "SELECT 1 FROM sqlite_master WHERE name = ?"
        return self._connection.execute(query, (name,)).fetchone() is not None

    def start_next_batch(self) -> None:
        """Clear all places, and keep fingerprints of this batch, in one transaction. It may be tried again."""
        _rollback(self._connection)
        messages = self._connection.execute("SELECT sealed FROM place WHERE taken")
        rows = [(fingerprint,) for fingerprint in sorted(self.fingerprints(sealed for (sealed,) in messages))]
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany("INSERT OR IGNORE INTO delivered VALUES (?)", rows)
        self._connection.execute("UPDATE place SET taken = 0, sealed = zeroblob(?)", (self.label.round.sealed_size,))
        if self._has_tokens:
            self._connection.execute("UPDATE token SET taken = 0, token = zeroblob(length(token))")
        if self._has_table("closing"):
            self._connection.execute("DELETE FROM closing")
        self._connection.execute("COMMIT")
        self._is_renewed = True
        self.truncate_log()

    def examine(self) -> DatabaseFacts:
        """Read the whole file, and return the facts on its state."""
        return read_facts(self._connection)

    def erase(self) -> None:
        """Overwrite the reports with zeros and delete the files. It may be tried again if the disk is full."""
        _erase(self._path, self._connection)

    def close(self) -> None:
        """Close the file and keep it."""
        self._connection.close()


def _create_reserved(path: Path, label: Label, key: bytes, token_size: int) -> sqlite3.Connection:
    """Create the database with its label and all places reserved, and return the connection."""
    connection = connect(path, ROUND_DATABASE)
    try:
        connection.execute("BEGIN IMMEDIATE")
        sizes = (label.round.batch_size * label.round.messages, label.round.sealed_size)
        connection.execute(_RESERVE.format(table="place"), sizes)
        if token_size:
            _reserve_tokens(connection, label, token_size)
        connection.execute("INSERT INTO label VALUES (?, ?)", (msgspec.msgpack.encode(label), key))
        connection.execute("COMMIT")
        connection.execute(_TRUNCATE_LOG)
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def read_label(connection: sqlite3.Connection) -> tuple[Label, bytes] | None:
    """Return the label of a round and the key of its fingerprints, or None if the file does not have them."""
    row = connection.execute("SELECT label, key FROM label").fetchone()
    if row is None:
        return None
    label = msgspec.msgpack.decode(row[0], type=cache_decoder(Label))
    _check_complete(connection, label.round, row[1])
    return label, row[1]


def _check_complete(connection: sqlite3.Connection, round_: Round, key: object) -> None:
    """Refuse a file that lacks places, the key or the table of fingerprints."""
    places = connection.execute(_COUNT_VALID_PLACES, (round_.sealed_size,)).fetchone()[0]
    connection.execute(_DELIVERED, (b"",)).fetchone()
    has_key = isinstance(key, bytes) and len(key) == _KEY_BYTES
    if places != round_.batch_size * round_.messages or not has_key:
        raise sqlite3.DatabaseError


def _reserve_tokens(connection: sqlite3.Connection, label: Label, size: int) -> None:
    connection.execute(_TOKENS)
    connection.execute(_RESERVE.format(table="token"), (label.round.batch_size, size))


def _rollback(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def _erase(path: Path, connection: sqlite3.Connection) -> None:
    """Erase a round's rows durably, then delete its file; a second call goes on after a failure."""
    _rollback(connection)  # an earlier attempt may have failed
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("DELETE FROM label")  # once committed the round is erased, even if the deletion is cut short
    connection.execute("DELETE FROM place")
    connection.execute("DELETE FROM delivered")
    further = "SELECT name FROM sqlite_master WHERE name IN ('token', 'closing')"
    for (table,) in connection.execute(further).fetchall():
        connection.execute(f"DELETE FROM {table}")  # noqa: S608 - our own names
    connection.execute("COMMIT")
    connection.execute(_TRUNCATE_LOG)
    _delete(path)
    connection.close()  # last: if the folder is read-only, the whole function is tried again


def _delete(path: Path) -> None:
    for suffix in ("", "-wal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
