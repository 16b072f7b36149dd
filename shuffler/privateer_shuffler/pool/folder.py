"""What one shuffler holds, in a folder of its own."""

import asyncio
import sqlite3
from collections.abc import Collection
from pathlib import Path
from typing import Final

from privateer_core.serving.store.sqlite import FileKind, damaged, is_writable, open_database
from privateer_shuffler.pool.pool import Pool
from privateer_shuffler.pool.protocol import Label, Taken
from privateer_shuffler.pool.round_file import REPAIR, ROUND_DATABASE, SUFFIX, RoundStore
from privateer_shuffler.pool.spent_tokens import TOKEN_BYTES, Spent

HISTORY_DATABASE: Final = FileKind(
    application=0x50525654,
    version=1,
    schema="""
    CREATE TABLE taken (
        experiment TEXT PRIMARY KEY, version INTEGER NOT NULL, digest BLOB NOT NULL, over INTEGER NOT NULL
    )
    """,
    field="PRIVATEER_DATA",
    repair=REPAIR,
)
HISTORY_FILE: Final = "taken.sqlite"
_NOTE: Final = """
INSERT INTO taken VALUES (?, ?, ?, 0)
ON CONFLICT DO UPDATE SET version = excluded.version, digest = excluded.digest, over = 0
WHERE excluded.version > version
"""


class LastPublications:
    """Public facts alone, durable before the first report of a round is taken.

    Without it a server could show an older version again after the shuffler restarts, whose people have all reported,
    and fill its batch with one late device and reports of its own.

    Raises
    ------
    SpecError
        If the file cannot be used, or another shuffler has it open.
    """

    def __init__(self, folder: Path) -> None:
        self._connection = open_database(folder / HISTORY_FILE, HISTORY_DATABASE)

    def last(self, experiment: str) -> Taken | None:
        """Return the newest publication that reports were taken for."""
        row = self._connection.execute("SELECT version, digest, over FROM taken WHERE experiment = ?", (experiment,))
        found = row.fetchone()
        return None if found is None else Taken(found[0], found[1], bool(found[2]))

    def note(self, experiment: str, taken: Taken) -> None:
        """Remember a publication unless a newer one is known; durable when this returns."""
        self._connection.execute(_NOTE, (experiment, taken.version, taken.digest))

    def end(self, experiment: str, version: int) -> None:
        """Remember that a version takes no further batch; durable when this returns."""
        self._connection.execute(
            "UPDATE taken SET over = 1 WHERE experiment = ? AND version = ?", (experiment, version)
        )

    def close(self) -> None:
        """Close the file, so that another process may use the folder."""
        self._connection.close()


class Folder:
    """The data folder (`privateer_shuffler.pool.protocol.PoolStore`): a file a round, and files that outlive rounds.

    Parameters
    ----------
    history
        The last publications that reports were taken for.
    spent
        The upload tokens that were spent; None: reports come without.

    Raises
    ------
    SpecError
        If a round in the folder cannot be used.

    Attributes
    ----------
    found
        How many rounds were there at the start.
    """

    shared = False

    def __init__(self, folder: Path, history: LastPublications, spent: Spent | None = None) -> None:
        self._folder, self._history, self._spent = folder, history, spent
        self._found = _load_pools(folder, spent)
        self.found = len(self._found)

    def knows(self, nonce: bytes) -> bool:
        """Whether an upload token was spent."""
        return self._spent is not None and self._spent.knows(nonce)

    async def find(self, opened: Collection[bytes]) -> list[Pool]:
        """Return the rounds that were there at the start."""
        found, self._found = self._found, []
        return [pool for pool in found if pool.header.digest not in opened]

    async def open(self, label: Label) -> Pool:
        """Reserve the places of a round."""
        size = TOKEN_BYTES if self._spent else 0
        return await asyncio.to_thread(lambda: Pool(RoundStore.create(self._folder, label, size), spent=self._spent))

    async def last(self, experiment: str) -> Taken | None:
        """Return the newest publication that reports were taken for."""
        return self._history.last(experiment)

    async def note(self, experiment: str, taken: Taken) -> None:
        """Remember a publication unless a newer one is known; durable when this returns."""
        self._history.note(experiment, taken)

    async def end(self, experiment: str, version: int) -> None:
        """Remember that a version takes no further batch; durable when this returns."""
        self._history.end(experiment, version)

    async def is_writable(self) -> bool:
        """Whether the disk takes anything now."""
        return await asyncio.to_thread(is_writable, self._folder)

    async def tidy(self) -> None:
        """Forget spent tokens whose key has expired, until the task is cancelled."""
        if self._spent:
            await self._spent.forget_now_and_then()

    def close(self) -> None:
        """Close the files, so that another process may use the folder."""
        if self._spent:
            self._spent.close()
        self._history.close()


def _load_pools(folder: Path, spent: Spent | None) -> list[Pool]:
    return [pool for path in sorted(folder.glob(f"*{SUFFIX}")) if (pool := _load_pool(path, spent)) is not None]


def _load_pool(path: Path, spent: Spent | None) -> Pool | None:
    store = RoundStore.load(path)
    try:
        return None if store is None else Pool(store, spent=spent)
    except sqlite3.Error as error:
        raise damaged(path, ROUND_DATABASE) from error
