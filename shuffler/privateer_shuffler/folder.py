"""What one shuffler holds, in a folder of its own."""

import asyncio
import sqlite3
from collections.abc import Collection
from pathlib import Path

from privateer_core.serving.database import damaged
from privateer_core.serving.disk import is_writable
from privateer_shuffler.history import History
from privateer_shuffler.holdings import Taken
from privateer_shuffler.label import Label
from privateer_shuffler.pool import Pool
from privateer_shuffler.spent import TOKEN_BYTES, Spent
from privateer_shuffler.store import DATABASE, SUFFIX, RoundStore


class Folder:
    """The data folder (`privateer_shuffler.holdings.Holdings`): a database a round, and files that outlive rounds.

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

    def __init__(self, folder: Path, history: History, spent: Spent | None = None) -> None:
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
        raise damaged(path, DATABASE) from error
