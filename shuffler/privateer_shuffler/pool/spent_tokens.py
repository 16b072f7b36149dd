"""Upload tokens that were spent: durable with the report that they came with, and until their key expires.

A round's own file has those of its reports, in places that are reserved and drawn as those of the reports are, but
apart from them: the file shows neither the order in which tokens came nor which report came with which. Before a round
is erased its tokens go, sorted, into one file for all rounds. Nonces are kept as hashes with a key of that file; in a
database of replicas with a key that the database does not have.
"""

import asyncio
import hashlib
import sqlite3
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from sqlalchemy import Connection, func, select
from typing_extensions import override

from privateer_core.clock import Clock, SystemClock
from privateer_core.serving.store.database import SECRET_BYTES, Database, DatabaseFacts, insert, own_secret
from privateer_core.serving.store.spent_tokens import forget_expired
from privateer_core.serving.store.sqlite import FileKind, SqliteDatabase, open_database
from privateer_core.serving.store.store_key import StoreKey
from privateer_shuffler.pool.round_file import REPAIR, RoundStore
from privateer_shuffler.pool.schema import SECRET, SPENT
from privateer_shuffler.pool.uploads import Portion
from privateer_shuffler.shuffle import RandomPlaces

TOKENS_FILE: Final = "spent.sqlite"
TOKENS_DATABASE: Final = FileKind(
    application=0x50525655,
    version=2,
    schema=(SECRET, SPENT),
    field="PRIVATEER_DATA",
    repair=REPAIR,
)
_KEEP: Final = insert(SPENT).on_conflict_do_nothing()
_HAS: Final = "SELECT 1 FROM spent WHERE expires = ? AND token = ?"
_AMONG: Final = """
SELECT token FROM spent JOIN unnest(%b::bigint[], %b::bytea[]) AS asked (expires, token) USING (expires, token)
"""
_SPEND: Final = """
INSERT INTO spent SELECT * FROM unnest(%b::bigint[], %b::bytea[]) ON CONFLICT DO NOTHING RETURNING token
"""
_FORGET_SECONDS: Final = 3600.0
_PAUSE_SECONDS: Final = 0.1
_PURPOSE: Final = b"privateer/spent-tokens/1"
_RECENT_MAX: Final = 1 << 17
_HASH_BYTES: Final = 16
_TIME_BYTES: Final = 8
TOKEN_BYTES: Final = _HASH_BYTES + _TIME_BYTES
"""What a round's file keeps of a token."""


class SpentFindings(NamedTuple):
    """The findings of a file of spent tokens that was read as a whole."""

    database: DatabaseFacts  # what the database says of itself
    disagreements: list[str]  # what does not agree in it: a sentence each


class SpentTokens:
    """Hashes of spent tokens, in a table."""

    def __init__(self, database: Database, key: bytes, clock: Clock | None = None) -> None:
        self._database, self._key, self._clock = database, key, clock or SystemClock()
        self.recent: set[bytes] = set()  # those in memory, too: of open rounds, or of what a replica has met

    def hash(self, nonce: bytes) -> bytes:
        """Return what is kept of a nonce."""
        return hashlib.blake2b(nonce, digest_size=_HASH_BYTES, key=self._key).digest()

    def knows(self, nonce: bytes, expires: int) -> bool:
        """Whether a token with this nonce is known to be spent, at once; a round decides when its report comes."""
        return self.has(self.hash(nonce), expires)

    def has(self, token: bytes, expires: int) -> bool:  # noqa: ARG002 - a file is asked by both
        """Do the same for what `hash` returned."""
        return token in self.recent

    def forget(self) -> bool:
        """Forget some tokens whose key has expired more than a day ago; whether there may be more of them."""
        is_more = False
        with suppress(OSError, sqlite3.Error):  # the disk or the database refuses: later
            is_more = forget_expired(self._database, SPENT, self._clock.now())
        self._database.tidy()
        return is_more

    async def forget_now_and_then(self) -> None:
        """Do that once an hour, until the task is cancelled; a few at a time, since uploads wait meanwhile."""
        while True:
            await asyncio.sleep(_PAUSE_SECONDS if await asyncio.to_thread(self.forget) else _FORGET_SECONDS)

    def close(self) -> None:
        """Close the database, so that another process may use the folder."""
        self._database.close()


class FiledTokens(SpentTokens):
    """The tokens spent at one shuffler: those of rounds that it holds in memory, those of earlier ones in a file."""

    def __init__(self, folder: Path, clock: Clock | None = None) -> None:
        self._file = open_database(folder / TOKENS_FILE, TOKENS_DATABASE)
        database = SqliteDatabase(self._file)
        super().__init__(database, own_secret(database, SECRET), clock)

    @override
    def has(self, token: bytes, expires: int) -> bool:
        # Every upload with a token asks: the driver's own statement takes 2 microseconds of 26.
        return token in self.recent or self._file.execute(_HAS, (expires, token)).fetchone() is not None

    def keep(self, tokens: Iterable[tuple[bytes, int]]) -> None:
        """Keep the tokens of a round that is about to be erased; durable when this returns. It may be tried again."""
        rows = [{"token": token, "expires": expires} for token, expires in sorted(tokens)]
        if rows:
            with self._database.transaction() as db:
                db.execute(_KEEP, rows)
            self._database.tidy()
        self.recent.difference_update(row["token"] for row in rows)

    def examine(self) -> SpentFindings:
        """Read the whole file, and look for what does not agree in it."""
        return examine(self._database)


def examine(database: Database) -> SpentFindings:
    """Read a whole file of spent tokens, which may be a copy, and look for what does not agree in it."""
    with database.connection() as db:
        keys = [len(key) for key in db.execute(select(SECRET.c.key)).scalars()]
        sizes = db.execute(select(func.length(SPENT.c.token)).distinct()).scalars().all()
    wrong = []
    if len(keys) > 1 or (sizes and not keys) or any(size != SECRET_BYTES for size in keys):
        wrong.append("the key of its hashes is lost: tokens that were spent would count again")
    if any(size != _HASH_BYTES for size in sizes):
        wrong.append("it holds what is no hash of a token")
    return SpentFindings(database.examine(), wrong)


class SharedTokens(SpentTokens):
    """The tokens spent at any replica, in the transactions of the reports that they come with.

    Those that this replica has met are in memory: a flood of one costs the database nothing.
    """

    def __init__(self, database: Database, store_key: StoreKey, clock: Clock | None = None) -> None:
        super().__init__(database, store_key.derived(_PURPOSE), clock)

    def among(self, db: Connection, portions: Iterable[Portion]) -> set[bytes]:
        """Return those of the tokens of portions that were spent."""
        paying = [one for one in portions if one.token]
        asked = [one.expires for one in paying], [one.token for one in paying]
        return {token for (token,) in db.exec_driver_sql(_AMONG, asked)} if paying else set()

    def spend(self, db: Connection, portions: Sequence[Portion]) -> list[Portion]:
        """Spend the tokens of portions, and refuse where another replica was faster; return the other portions."""
        paying = sorted((one for one in portions if one.token), key=lambda one: one.token)  # all in the same order
        if not paying:
            return list(portions)
        values = [one.expires for one in paying], [one.token for one in paying]
        spent = {token for (token,) in db.exec_driver_sql(_SPEND, values)}
        for one in paying:
            if one.token not in spent:
                one.upload.refuse_spent()
        return [one for one in portions if not one.token or one.token in spent]

    def note(self, portions: Collection[Portion]) -> None:
        """Remember that tokens are spent, once the database has it."""
        if len(self.recent) + len(portions) > _RECENT_MAX:
            self.recent.clear()
        self.recent.update(one.token for one in portions if one.token)


class RoundTokens:
    """The tokens that reports of one round come with, in places of its file.

    store: the round's file. Tokens that it holds already count as spent.
    spent: the tokens of all rounds.
    below: source of randomness of the places.
    """

    def __init__(self, store: RoundStore, spent: FiledTokens, below: Callable[[int], int]) -> None:
        self._store, self._spent = store, spent
        store.reserve_tokens(TOKEN_BYTES)
        free = []
        for place, row in store.tokens():
            if row is None:
                free.append(place)
            else:
                spent.recent.add(row[:_HASH_BYTES])
        self._places = RandomPlaces(free, below)

    def place(self, portions: Iterable[Portion]) -> list[tuple[bytes, int]]:
        """Spend the tokens of portions, and draw a place for each."""
        placed = []
        for one in portions:
            if one.token:
                self._spent.recent.add(one.token)
                placed.append((one.token + one.expires.to_bytes(_TIME_BYTES), self._places.draw()))
        return placed

    def take_back(self, placed: Iterable[tuple[bytes, int]]) -> None:
        """Undo what `place` did, since the disk did not take the reports."""
        for row, place in placed:
            self._spent.recent.discard(row[:_HASH_BYTES])
            self._places.give_back(place)

    def keep(self) -> None:
        """Keep the round's tokens beyond its end, durably."""
        rows = [row for _, row in self._store.tokens() if row is not None]
        self._spent.keep((row[:_HASH_BYTES], int.from_bytes(row[_HASH_BYTES:])) for row in rows)
