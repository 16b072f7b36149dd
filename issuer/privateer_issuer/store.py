"""The issuer's store: its keys, and how many tokens each device has had."""

import hashlib
import logging
import secrets
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final, NamedTuple

from sqlalchemy import Column, Connection, LargeBinary, MetaData, Table, Text, bindparam, delete, func, insert, select

from privateer_core.serving.logs import tell
from privateer_core.serving.store.database import INTEGER, DatabaseFacts
from privateer_core.serving.store.sqlite import FileKind, SqliteDatabase, open_database, was_cut_short

FILE: Final = "issuer.db"
_TABLES: Final = MetaData()
_SECRET: Final = Table("secret", _TABLES, Column("key", LargeBinary, nullable=False))
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


class IssuerFindings(NamedTuple):
    """The findings of a store that examines itself.

    Attributes
    ----------
    database
        What the database says of itself.
    without_key
        The names of experiments of which tokens are counted though they have no key, so that none could count.
    """

    database: DatabaseFacts
    without_key: list[str]


class IssuerStore:
    """One SQLite file, fsynced at every commit.

    It has no pseudonyms and no requests, but hashes of them with a key of its own. Methods raise ``sqlite3.Error`` if
    the disk is full or fails.

    Raises
    ------
    SpecError
        If the file cannot be used, or another issuer has it.
    """

    def __init__(self, folder: Path) -> None:
        is_cut_short = was_cut_short(folder / FILE)
        self._database = SqliteDatabase(open_database(folder / FILE, DATABASE))
        if is_cut_short:
            tell(_log, "recovered after an unclean stop", keys=len(self.keys()))
        with self._database.transaction() as db:
            secret = db.execute(select(_SECRET.c.key)).scalar()
            if secret is None:
                secret = secrets.token_bytes(_KEY_BYTES)
                db.execute(insert(_SECRET).values(key=secret))
        self._secret: bytes = secret

    def keys(self) -> list[KeyRow]:
        """Return all keys, the newest of each experiment last."""
        with self._database.connection() as db:
            return [KeyRow(*row) for row in db.execute(_IN_ORDER)]

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
        ownerless = select(_ISSUED.c.experiment).where(_ISSUED.c.experiment.not_in(select(_KEYS.c.experiment)))
        with self._database.connection() as db:
            names = db.execute(ownerless.distinct()).scalars().all()
        return IssuerFindings(self._database.examine(), sorted(names))

    def _hash(self, some: bytes) -> bytes:
        return hashlib.blake2b(some, digest_size=_HASH_BYTES, key=self._secret).digest()

    def close(self) -> None:
        """Close the file and give up its lock."""
        self._database.close()
