"""Spent upload tokens: durable with the report that they came with, and until their key expires.

A round's own file has the tokens of its reports, in reserved random places independent of the reports': the file shows
neither the order in which tokens came nor the report of a token. Before a round is erased its tokens move, sorted, into
one file for all rounds. Nonces are stored as hashes with a key of that file; in a database of replicas with a key that
the database does not have.
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
from privateer_core.serving.store.database import (
    SECRET_BYTES,
    Database,
    DatabaseFacts,
    SqliteDatabase,
    get_or_create_secret,
    insert,
)
from privateer_core.serving.store.sqlite import FileKind, open_database
from privateer_core.serving.store.store_key import StoreKey
from privateer_core.serving.store.token_table import delete_expired
from privateer_shuffler.pool.round_file import REPAIR, RoundStore
from privateer_shuffler.pool.schema import SECRET, SPENT
from privateer_shuffler.pool.uploads import Portion
from privateer_shuffler.shuffle import ShuffledPlaces

TOKENS_FILE: Final = "spent.sqlite"
TOKENS_DATABASE: Final = FileKind(
    application=0x50525655, version=2, schema=(SECRET, SPENT), field="PRIVATEER_DATA", repair=REPAIR
)
_INSERT_SPENT: Final = insert(SPENT).on_conflict_do_nothing()
_SELECT_SPENT: Final = "SELECT 1 FROM spent WHERE expires = ? AND token = ?"
_SELECT_SPENT_AMONG: Final = """
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
TOKEN_BYTES: Final = _HASH_BYTES + _TIME_BYTES  # size of a token in a round's file: its hash and expiry


class SpentFindings(NamedTuple):
    """The findings of a complete check of a file of spent tokens."""

    database: DatabaseFacts  # facts on the state of the database
    disagreements: list[str]  # inconsistencies, a sentence each


class SpentTokens:
    """Hashes of spent tokens, in a table."""

    def __init__(self, database: Database, key: bytes, clock: Clock | None = None) -> None:
        self._database, self._key, self._clock = database, key, clock or SystemClock()
        self.recent: set[bytes] = set()  # hashes in memory, too: of open rounds, or of tokens that a replica has met

    def hash(self, nonce: bytes) -> bytes:
        """Return the hash of a nonce."""
        return hashlib.blake2b(nonce, digest_size=_HASH_BYTES, key=self._key).digest()

    def is_known_spent(self, nonce: bytes, expires: int) -> bool:
        """Whether a token with this nonce is known to be spent, without waiting; a round decides on its report."""
        return self.is_spent(self.hash(nonce), expires)

    def is_spent(self, token: bytes, expires: int) -> bool:  # noqa: ARG002 - a file is asked by both
        """Whether a token with this hash is known to be spent."""
        return token in self.recent

    def delete_some_expired(self) -> bool:
        """Delete tokens whose key expired more than a day ago, up to a limit, and return whether more may be left."""
        has_more = False
        with suppress(OSError, sqlite3.Error):  # if the disk or the database fails, try again later
            has_more = delete_expired(self._database, SPENT, self._clock.now())
        self._database.erase_old_states()
        return has_more

    async def delete_expired_periodically(self) -> None:
        """Delete expired tokens once an hour, until the task is cancelled; a few at a time, since uploads wait."""
        while True:
            await asyncio.sleep(
                _PAUSE_SECONDS if await asyncio.to_thread(self.delete_some_expired) else _FORGET_SECONDS
            )

    def close(self) -> None:
        """Close the database, so that another process may use the folder."""
        self._database.close()


class FiledTokens(SpentTokens):
    """The tokens spent at a single shuffler: of open rounds in memory, of earlier rounds in a file."""

    def __init__(self, folder: Path, clock: Clock | None = None) -> None:
        self._file = open_database(folder / TOKENS_FILE, TOKENS_DATABASE)
        database = SqliteDatabase(self._file)
        super().__init__(database, get_or_create_secret(database, SECRET), clock)

    @override
    def is_spent(self, token: bytes, expires: int) -> bool:
        # Every upload with a token asks: the driver's own statement takes 2 microseconds of 26.
        return token in self.recent or self._file.execute(_SELECT_SPENT, (expires, token)).fetchone() is not None

    def store(self, tokens: Iterable[tuple[bytes, int]]) -> None:
        """Store the tokens of a round before its erasure; durable when this returns. It may be tried again."""
        rows = [{"token": token, "expires": expires} for token, expires in sorted(tokens)]
        if rows:
            with self._database.transaction() as db:
                db.execute(_INSERT_SPENT, rows)
            self._database.erase_old_states()
        self.recent.difference_update(row["token"] for row in rows)

    def examine(self) -> SpentFindings:
        """Read the whole file, and look for inconsistencies."""
        return examine(self._database)


def examine(database: Database) -> SpentFindings:
    """Read a whole file of spent tokens, which may be a copy, and look for inconsistencies."""
    with database.connection() as db:
        keys = [len(key) for key in db.execute(select(SECRET.c.key)).scalars()]
        sizes = db.execute(select(func.length(SPENT.c.token)).distinct()).scalars().all()
    disagreements = []
    if len(keys) > 1 or (sizes and not keys) or any(size != SECRET_BYTES for size in keys):
        disagreements.append("the key of its hashes is lost: tokens that were spent would count again")
    if any(size != _HASH_BYTES for size in sizes):
        disagreements.append("it holds what is no hash of a token")
    return SpentFindings(database.examine(), disagreements)


class SharedTokens(SpentTokens):
    """The tokens spent at any replica, in the transactions of the reports that they come with.

    Tokens that this replica has met are in memory: a flood with the same token does not reach the database.
    """

    def __init__(self, database: Database, store_key: StoreKey, clock: Clock | None = None) -> None:
        super().__init__(database, store_key.derive_key(_PURPOSE), clock)

    def find_spent(self, db: Connection, portions: Iterable[Portion]) -> set[bytes]:
        """Return the tokens of portions that are spent."""
        with_token = [portion for portion in portions if portion.token]
        values = [portion.expires for portion in with_token], [portion.token for portion in with_token]
        return {token for (token,) in db.exec_driver_sql(_SELECT_SPENT_AMONG, values)} if with_token else set()

    def spend(self, db: Connection, portions: Sequence[Portion]) -> list[Portion]:
        """Spend the tokens of portions, refuse portions whose token a replica has spent, and return the others."""
        # All replicas lock tokens in the same order.
        with_token = sorted((portion for portion in portions if portion.token), key=lambda portion: portion.token)
        if not with_token:
            return list(portions)
        values = [portion.expires for portion in with_token], [portion.token for portion in with_token]
        spent_now = {token for (token,) in db.exec_driver_sql(_SPEND, values)}
        for portion in with_token:
            if portion.token not in spent_now:
                portion.upload.refuse_spent()
        return [portion for portion in portions if not portion.token or portion.token in spent_now]

    def cache(self, portions: Collection[Portion]) -> None:
        """Cache spent tokens in memory, once they are durable in the database."""
        if len(self.recent) + len(portions) > _RECENT_MAX:
            self.recent.clear()
        self.recent.update(portion.token for portion in portions if portion.token)


class RoundTokens:
    """The tokens of the reports of a round, in places of its file.

    store: the round's file. Tokens that it holds already count as spent.
    spent_tokens: the tokens of all rounds.
    below: source of randomness of the places.
    """

    def __init__(self, store: RoundStore, spent_tokens: FiledTokens, below: Callable[[int], int]) -> None:
        self._store, self._spent_tokens = store, spent_tokens
        store.reserve_tokens(TOKEN_BYTES)
        free = []
        for place, row in store.iter_tokens():
            if row is None:
                free.append(place)
            else:
                spent_tokens.recent.add(row[:_HASH_BYTES])
        self._places = ShuffledPlaces(free, below)

    def spend(self, portions: Iterable[Portion]) -> list[tuple[bytes, int]]:
        """Spend the tokens of portions, and draw a place for each."""
        rows_and_places = []
        for portion in portions:
            if portion.token:
                self._spent_tokens.recent.add(portion.token)
                rows_and_places.append((portion.token + portion.expires.to_bytes(_TIME_BYTES), self._places.draw()))
        return rows_and_places

    def undo_spend(self, rows_and_places: Iterable[tuple[bytes, int]]) -> None:
        """Undo what `spend` did, since the disk did not take the reports."""
        for row, place in rows_and_places:
            self._spent_tokens.recent.discard(row[:_HASH_BYTES])
            self._places.give_back(place)

    def store(self) -> None:
        """Store the round's tokens durably in the file of all rounds."""
        rows = [row for _, row in self._store.iter_tokens() if row is not None]
        self._spent_tokens.store((row[:_HASH_BYTES], int.from_bytes(row[_HASH_BYTES:])) for row in rows)
