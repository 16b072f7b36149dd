"""Upload tokens that were spent: durable with the report that they came with, and until their key expires.

A round's own database has those of its reports, in places that are reserved and drawn as those of the reports are, but
apart from them: the file shows neither the order in which tokens came nor which report came with which. Before a round
is erased its tokens go, sorted, into one file for all rounds. Nonces are kept as hashes with a key of that file.
"""

import asyncio
import hashlib
import secrets
import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from privateer_core.clock import Clock, SystemClock
from privateer_core.errors import Unavailable
from privateer_core.serving.store.sqlite import FileKind, open_database
from privateer_core.serving.token_gate import Admission
from privateer_shuffler.pool.round_file import REPAIR, RoundStore
from privateer_shuffler.shuffle import RandomPlaces

TOKENS_FILE: Final = "spent.sqlite"
TOKENS_DATABASE: Final = FileKind(
    application=0x50525655,
    version=1,
    schema="""
    CREATE TABLE secret (key BLOB NOT NULL);
    CREATE TABLE spent (token BLOB PRIMARY KEY, expires INTEGER NOT NULL) WITHOUT ROWID
    """,
    field="PRIVATEER_DATA",
    repair=REPAIR,
)
_FORGET: Final = "DELETE FROM spent WHERE token IN (SELECT token FROM spent WHERE expires <= ? LIMIT ?)"
_FORGET_SECONDS: Final = 3600.0
_FORGOTTEN_AT_ONCE: Final = 5000
_PAUSE_SECONDS: Final = 0.1
GRACE_SECONDS: Final = 86_400.0
"""A clock that is set wrong by less than a day has no token spent twice."""
_KEY_BYTES: Final = 32
_HASH_BYTES: Final = 16
_TIME_BYTES: Final = 8
TOKEN_BYTES: Final = _HASH_BYTES + _TIME_BYTES
"""What a round keeps of a token."""


class Spent:
    """The tokens spent at a shuffler: those of rounds that it holds in memory, those of earlier ones in a file.

    Raises
    ------
    SpecError
        If the file cannot be used, or another shuffler has it open.
    """

    def __init__(self, folder: Path, clock: Clock | None = None) -> None:
        self._db, self._clock = open_database(folder / TOKENS_FILE, TOKENS_DATABASE), clock or SystemClock()
        row = self._db.execute("SELECT key FROM secret").fetchone()
        if row is None:
            row = (secrets.token_bytes(_KEY_BYTES),)
            self._db.execute("INSERT INTO secret VALUES (?)", row)
        self._key: bytes = row[0]
        self._recent: set[bytes] = set()

    def knows(self, nonce: bytes) -> bool:
        """Whether a token with this nonce was spent."""
        token = self.hash(nonce)
        return token in self._recent or self._has_kept(token)

    def _has_kept(self, token: bytes) -> bool:
        return self._db.execute("SELECT 1 FROM spent WHERE token = ?", (token,)).fetchone() is not None

    def hash(self, nonce: bytes) -> bytes:
        """Return what is kept of a nonce."""
        return hashlib.blake2b(nonce, digest_size=_HASH_BYTES, key=self._key).digest()

    def spend(self, token: bytes) -> None:
        """Note a token of an open round."""
        self._recent.add(token)

    def take_back(self, token: bytes) -> None:
        """Forget a token of an open round, since the disk did not take its report."""
        self._recent.discard(token)

    def keep(self, tokens: Iterable[tuple[bytes, int]]) -> None:
        """Keep the tokens of a round that is about to be erased; durable when this returns. It may be tried again.

        Raises
        ------
        sqlite3.Error
            If the disk is full or fails.
        """
        rows = sorted(tokens)
        if self._db.in_transaction:  # an earlier attempt may have failed
            self._db.execute("ROLLBACK")
        self._db.execute("BEGIN IMMEDIATE")
        self._db.executemany("INSERT OR IGNORE INTO spent VALUES (?, ?)", rows)
        self._db.execute("COMMIT")
        self._recent.difference_update(token for token, _ in rows)

    def forget(self) -> bool:
        """Forget some tokens whose key has expired more than a day ago; whether there may be more of them."""
        expired = int(self._clock.now() - GRACE_SECONDS)
        try:
            if self._db.execute(_FORGET, (expired, _FORGOTTEN_AT_ONCE)).rowcount:
                return True
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error:  # the disk refuses, or a round's tokens are just being kept: later
            pass
        return False

    async def forget_now_and_then(self) -> None:
        """Do that once an hour, until the task is cancelled; a few at a time, since uploads wait meanwhile."""
        while True:
            await asyncio.sleep(_PAUSE_SECONDS if self.forget() else _FORGET_SECONDS)

    def close(self) -> None:
        """Close the file, so that another process may use the folder."""
        self._db.close()


class RoundTokens:
    """The tokens that reports of one round come with.

    Parameters
    ----------
    store
        The round's database. Tokens that it holds already count as spent.
    spent
        The tokens of all rounds.
    below
        Source of randomness of the places.
    """

    def __init__(self, store: RoundStore, spent: Spent, below: Callable[[int], int]) -> None:
        self._store, self._spent = store, spent
        store.reserve_tokens(TOKEN_BYTES)
        free = []
        for place, row in store.tokens():
            if row is None:
                free.append(place)
            else:
                spent.spend(row[:_HASH_BYTES])
        self._places = RandomPlaces(free, below)
        self._placed: list[tuple[bytes, int]] = []

    def spend(self, admission: Admission) -> bool:
        """Spend a token with the next write; False if it was spent before.

        Raises
        ------
        Unavailable
            If it was, and has been taken back since: nobody has looked at its signature.
        """
        if self._spent.knows(admission.nonce):
            return False
        if admission.is_spent:
            raise Unavailable("the disk did not take the report", remedy="send the same bytes again later")
        token = self._spent.hash(admission.nonce)
        self._spent.spend(token)
        self._placed.append((token + admission.expires.to_bytes(_TIME_BYTES), self._places.draw()))
        return True

    def write(self) -> None:
        """Put what was spent into the transaction that writes the reports."""
        self._store.write_tokens(self._placed)

    def written(self) -> None:
        """Note that the transaction is durable."""
        self._placed = []

    def take_back(self) -> None:
        """Undo what was spent, since the disk did not take the reports."""
        for row, place in self._placed:
            self._spent.take_back(row[:_HASH_BYTES])
            self._places.give_back(place)
        self._placed = []

    def keep(self) -> None:
        """Keep the round's tokens beyond its end, durably.

        Raises
        ------
        sqlite3.Error
            If the disk is full or fails; call it again.
        """
        rows = [row for _, row in self._store.tokens() if row is not None]
        self._spent.keep((row[:_HASH_BYTES], int.from_bytes(row[_HASH_BYTES:])) for row in rows)
