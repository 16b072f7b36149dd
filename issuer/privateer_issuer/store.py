"""The issuer's store of keys, and of tokens issued to each device."""

import hashlib
import logging
from collections.abc import Collection, Iterable
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

from sqlalchemy import Column, Connection, LargeBinary, MetaData, Table, Text, bindparam, delete, func, insert, select

from privateer_core.serving.logs import log_event
from privateer_core.serving.store.copies import remove_scratch_folders
from privateer_core.serving.store.database import (
    INTEGER,
    Database,
    DatabaseFacts,
    SqliteDatabase,
    get_or_create_secret,
    secret_table,
)
from privateer_core.serving.store.sqlite import FileKind, open_database, was_cut_short
from privateer_core.wire.token_keys import TokenKey

FILE: Final = "issuer.db"
_TABLES: Final = MetaData()
_SECRET: Final = secret_table(_TABLES)
_KEYS: Final = Table(
    "keys",
    _TABLES,
    Column("experiment", Text, primary_key=True),
    Column("not_before", INTEGER, primary_key=True),
    Column("not_after", INTEGER, nullable=False),
    Column("public", LargeBinary, nullable=False),
    Column("private", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)
_ISSUED: Final = Table(
    "issued",
    _TABLES,
    Column("experiment", Text, primary_key=True),
    Column("device", LargeBinary, primary_key=True),
    Column("request", LargeBinary, primary_key=True),
    sqlite_with_rowid=False,
)
DATABASE: Final = FileKind(application=0x50525649, version=1, schema=(_SECRET, _KEYS, _ISSUED), field="PRIVATEER_DATA")
_SELECT_KEYS: Final = select(_KEYS).order_by(_KEYS.c.experiment, _KEYS.c.not_before)
_COUNT_ISSUED: Final = select(
    func.count(), func.coalesce(func.max(_ISSUED.c.request == bindparam("request", type_=LargeBinary)), False)
).where(_ISSUED.c.experiment == bindparam("experiment"), _ISSUED.c.device == bindparam("device"))
"""Number of tokens of a device, and whether this request got a token before."""
_log = logging.getLogger("privateer.issuer")
_HASH_BYTES: Final = 16


class KeyRow(NamedTuple):
    """A key: its public half as published, and its private half in PKCS #8, empty after its expiry."""

    experiment: str
    not_before: int
    not_after: int
    public: bytes
    private: bytes


class TokenRequest(NamedTuple):
    """A device's request for one token of an experiment."""

    experiment: str
    device: str
    request: bytes


class IssuerFindings(NamedTuple):
    """Results of examining a store."""

    database: DatabaseFacts  # facts about the database itself
    without_key: list[str]  # names of experiments with counted tokens and without keys
    keys: dict[str, list[KeyRow]]  # all keys by experiment, the newest last

    @property
    def newest_keys(self) -> dict[str, KeyRow]:
        """The newest key of each experiment, which devices use."""
        return {name: rows[-1] for name, rows in self.keys.items()}

    def list_expired(self, now: float) -> list[str]:
        """Return the experiments whose newest key has expired."""
        return [name for name, key in self.newest_keys.items() if now >= key.not_after]

    def list_due(self, now: float) -> list[str]:
        """Return the experiments whose newest key is past half of its validity, and should have a successor."""
        newest = self.newest_keys.items()
        return [name for name, key in newest if (key.not_before + key.not_after) / 2 <= now < key.not_after]

    def count_unerased(self, now: float) -> int:
        """Return the number of expired keys with a private half."""
        return sum(bool(key.private) and now >= key.not_after for rows in self.keys.values() for key in rows)

    @property
    def ids(self) -> set[tuple[str, bytes]]:
        """Pairs of experiment and key id, of all keys."""
        rows = [row for key_rows in self.keys.values() for row in key_rows]
        return {(row.experiment, TokenKey(row.public, row.not_before, row.not_after).id) for row in rows}


class IssuerStore:
    """The issuer's SQLite file, fsynced at every commit.

    It has keyed hashes of pseudonyms and requests, and not these themselves. Methods raise ``sqlite3.Error`` if
    the disk is full or fails.
    """

    def __init__(self, folder: Path) -> None:
        is_cut_short = was_cut_short(folder / FILE)
        self._database = SqliteDatabase(open_database(folder / FILE, DATABASE))
        remove_scratch_folders(folder)
        if is_cut_short:
            log_event(_log, "recovered after an unclean stop", keys=len(self.keys()))
        self._secret = get_or_create_secret(self._database, _SECRET)

    def keys(self) -> list[KeyRow]:
        """Return all keys, the newest of each experiment last."""
        return _read_keys(self._database)

    def replace_keys(self, rows: Iterable[KeyRow]) -> None:
        """Replace all keys by ``rows`` and overwrite removed keys. Durable when this returns."""
        new = [row._asdict() for row in rows]
        with self._database.transaction() as db:
            db.execute(delete(_KEYS))
            if new:
                db.execute(insert(_KEYS), new)
        self._database.erase_old_states()

    def delete_counts_except(self, experiments: Collection[str]) -> None:
        """Delete and overwrite the token counts of all experiments but the given ones. Durable when this returns."""
        with self._database.connection() as db:
            removed = set(db.execute(select(_ISSUED.c.experiment).distinct()).scalars()).difference(experiments)
        if removed:
            with self._database.transaction() as db:
                db.execute(delete(_ISSUED).where(_ISSUED.c.experiment.in_(removed)))
        self._database.erase_old_states()

    def count_requests(self, token_requests: Iterable[TokenRequest], max_tokens: int) -> list[bool]:
        """Count requests in a single transaction, and return whether each is within its device's share.

        A repeated request is within the share, and counts once.
        """
        with self._database.transaction() as db:
            return [self._count_request(db, token_request, max_tokens) for token_request in token_requests]

    def _count_request(self, db: Connection, token_request: TokenRequest, max_tokens: int) -> bool:
        """Count a request, unless that was done; return False without counting if the device has its share already."""
        device, request = self._hash(token_request.device.encode()), self._hash(token_request.request)
        row = {"experiment": token_request.experiment, "device": device, "request": request}
        n_issued, is_counted = db.execute(_COUNT_ISSUED, row).one()
        if is_counted or n_issued >= max_tokens:
            return bool(is_counted)
        db.execute(insert(_ISSUED), row)
        return True

    def examine(self) -> IssuerFindings:
        """Read the whole file, and return inconsistencies."""
        return examine(self._database)

    def _hash(self, message: bytes) -> bytes:
        return hashlib.blake2b(message, digest_size=_HASH_BYTES, key=self._secret).digest()

    def close(self) -> None:
        """Close the file and release its lock."""
        self._database.close()


def examine(database: Database) -> IssuerFindings:
    """Read a whole database, which may be a copy, and return inconsistencies."""
    ownerless = select(_ISSUED.c.experiment).where(_ISSUED.c.experiment.not_in(select(_KEYS.c.experiment)))
    with database.connection() as db:
        names = db.execute(ownerless.distinct()).scalars().all()
    keys = {name: list(rows) for name, rows in groupby(_read_keys(database), lambda row: row.experiment)}
    return IssuerFindings(database.examine(), sorted(names), keys)


def _read_keys(database: Database) -> list[KeyRow]:
    with database.connection() as db:
        return [KeyRow(*row) for row in db.execute(_SELECT_KEYS)]
