"""The issuer's store: its keys, and how many tokens each device has had."""

import hashlib
import logging
from collections.abc import Collection, Iterable
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

from sqlalchemy import Column, Connection, LargeBinary, MetaData, Table, Text, bindparam, delete, func, insert, select

from privateer_core.serving.logs import tell
from privateer_core.serving.store.copies import remove_scratch_folders
from privateer_core.serving.store.database import INTEGER, Database, DatabaseFacts, own_secret, secret_table
from privateer_core.serving.store.sqlite import FileKind, SqliteDatabase, open_database, was_cut_short
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
_IN_ORDER: Final = select(_KEYS).order_by(_KEYS.c.experiment, _KEYS.c.not_before)
_HAD: Final = select(
    func.count(), func.coalesce(func.max(_ISSUED.c.request == bindparam("request", type_=LargeBinary)), False)
).where(_ISSUED.c.experiment == bindparam("experiment"), _ISSUED.c.device == bindparam("device"))
"""How many tokens a device has had, and whether one of them was for this request."""
_ISSUE: Final = insert(_ISSUED)
_log = logging.getLogger("privateer.issuer")
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


class IssuerFindings(NamedTuple):
    """The findings of a store that examines itself."""

    database: DatabaseFacts  # what the database says of itself
    # the names of experiments of which tokens are counted though they have no key, so that none could count
    without_key: list[str]
    keys: dict[str, list[KeyRow]]  # all keys by experiment, the newest last

    @property
    def newest(self) -> dict[str, KeyRow]:
        """The key of each experiment that devices ask for now."""
        return {name: rows[-1] for name, rows in self.keys.items()}

    def expired(self, now: float) -> list[str]:
        """Return the experiments whose newest key has expired."""
        return [name for name, key in self.newest.items() if now >= key.not_after]

    def due(self, now: float) -> list[str]:
        """Return the experiments whose newest key has lived for half of its time, and should have a successor."""
        newest = self.newest.items()
        return [name for name, key in newest if (key.not_before + key.not_after) / 2 <= now < key.not_after]

    def unerased(self, now: float) -> int:
        """Return how many expired keys could still sign."""
        return sum(bool(key.private) and now >= key.not_after for rows in self.keys.values() for key in rows)

    @property
    def ids(self) -> set[tuple[str, bytes]]:
        """The ids of all keys, with their experiments."""
        rows = [row for some in self.keys.values() for row in some]
        return {(row.experiment, TokenKey(row.public, row.not_before, row.not_after).id) for row in rows}


class IssuerStore:
    """One SQLite file, fsynced at every commit.

    It has no pseudonyms and no requests, but hashes of them with a key of its own. Methods raise ``sqlite3.Error`` if
    the disk is full or fails.
    """

    def __init__(self, folder: Path) -> None:
        is_cut_short = was_cut_short(folder / FILE)
        self._database = SqliteDatabase(open_database(folder / FILE, DATABASE))
        remove_scratch_folders(folder)
        if is_cut_short:
            tell(_log, "recovered after an unclean stop", keys=len(self.keys()))
        self._secret = own_secret(self._database, _SECRET)

    def keys(self) -> list[KeyRow]:
        """Return all keys, the newest of each experiment last."""
        return _keys(self._database)

    def replace_keys(self, rows: Iterable[KeyRow]) -> None:
        """Keep these keys and no others; what is gone is overwritten. Durable when this returns."""
        new = [row._asdict() for row in rows]
        with self._database.transaction() as db:
            db.execute(delete(_KEYS))
            if new:
                db.execute(insert(_KEYS), new)
        self._database.tidy()

    def forget_shares(self, experiments: Collection[str]) -> None:
        """Forget who had tokens of any experiment but these; what is gone is overwritten. Durable when this returns."""
        with self._database.connection() as db:
            gone = set(db.execute(select(_ISSUED.c.experiment).distinct()).scalars()).difference(experiments)
        if gone:
            with self._database.transaction() as db:
                db.execute(delete(_ISSUED).where(_ISSUED.c.experiment.in_(gone)))
        self._database.tidy()

    def take(self, takings: Iterable[Taking], most: int) -> list[bool]:
        """Count requests in one transaction, and return which of them are within their devices' shares.

        A request that was counted before is within the share, and counts once.
        """
        with self._database.transaction() as db:
            return [self._take(db, taking, most) for taking in takings]

    def _take(self, db: Connection, taking: Taking, most: int) -> bool:
        device, request = self._hash(taking.device.encode()), self._hash(taking.request)
        row = {"experiment": taking.experiment, "device": device, "request": request}
        had, is_counted = db.execute(_HAD, row).one()
        if is_counted or had >= most:
            return bool(is_counted)
        db.execute(_ISSUE, row)
        return True

    def examine(self) -> IssuerFindings:
        """Read the whole file, and look for what does not agree in it."""
        return examine(self._database)

    def _hash(self, some: bytes) -> bytes:
        return hashlib.blake2b(some, digest_size=_HASH_BYTES, key=self._secret).digest()

    def close(self) -> None:
        """Close the file and give up its lock."""
        self._database.close()


def examine(database: Database) -> IssuerFindings:
    """Read a whole database, which may be a copy, and look for what does not agree in it."""
    ownerless = select(_ISSUED.c.experiment).where(_ISSUED.c.experiment.not_in(select(_KEYS.c.experiment)))
    with database.connection() as db:
        names = db.execute(ownerless.distinct()).scalars().all()
    keys = {name: list(rows) for name, rows in groupby(_keys(database), lambda row: row.experiment)}
    return IssuerFindings(database.examine(), sorted(names), keys)


def _keys(database: Database) -> list[KeyRow]:
    with database.connection() as db:
        return [KeyRow(*row) for row in db.execute(_IN_ORDER)]
