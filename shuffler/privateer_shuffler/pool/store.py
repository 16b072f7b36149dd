"""The store of a shuffler's rounds, and of what it remembers beyond them: a folder of its own, or a shared database."""

import asyncio
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import ClassVar, Final, NamedTuple

from sqlalchemy import bindparam, select, update
from typing_extensions import override

from privateer_core.serving.store.copies import remove_scratch_folders
from privateer_core.serving.store.database import Database, DatabaseFacts, insert
from privateer_core.serving.store.sqlite import FileKind, SqliteDatabase, damaged, is_writable, open_database
from privateer_shuffler.pool.placed_round import PlacedRound
from privateer_shuffler.pool.pool import Pool
from privateer_shuffler.pool.round import Label
from privateer_shuffler.pool.round_file import REPAIR, ROUND_DATABASE, SUFFIX, RoundStore
from privateer_shuffler.pool.schema import TAKEN
from privateer_shuffler.pool.spent_tokens import TOKEN_BYTES, TOKENS_FILE, FiledTokens, SpentTokens

HISTORY_FILE: Final = "taken.sqlite"
HISTORY_DATABASE: Final = FileKind(
    application=0x50525654, version=1, schema=(TAKEN,), field="PRIVATEER_DATA", repair=REPAIR
)
_NAMED: Final = TAKEN.c.experiment == bindparam("name")
_LAST: Final = select(TAKEN.c.version, TAKEN.c.digest, TAKEN.c.over).where(_NAMED)
_NEW: Final = insert(TAKEN)
_NOTE: Final = _NEW.on_conflict_do_update(
    index_elements=[TAKEN.c.experiment],
    set_={"version": _NEW.excluded.version, "digest": _NEW.excluded.digest, "over": False},
    where=_NEW.excluded.version > TAKEN.c.version,
)
_END: Final = update(TAKEN).where(_NAMED, TAKEN.c.version == bindparam("ended")).values(over=True)


class Taken(NamedTuple):
    """Version and digest of a publication, and whether it takes no further batch."""

    version: int
    digest: bytes
    over: bool = False


class PoolFindings(NamedTuple):
    """The findings of a store that examines itself."""

    databases: dict[str, DatabaseFacts]  # what each of its databases says of itself, by name
    disagreements: list[str]  # what does not agree between them, or within one: a sentence each


def open_history(folder: Path) -> Database:
    """Open the file of last publications in a folder, and hold its lock."""
    database = SqliteDatabase(open_database(folder / HISTORY_FILE, HISTORY_DATABASE))
    remove_scratch_folders(folder)
    return database


class PoolStore(ABC):
    """Pools, and what is remembered beyond them. Methods raise ``OSError`` or ``sqlite3.Error`` if it fails.

    The last publication of each experiment is durable before the first report of its round is taken. Without it a
    server could show an older version again after the shuffler restarts, whose people have all reported, and fill its
    batch with one late device and reports of its own. ``last``, ``note`` and ``end`` wait for the database.

    database: where the last publications are.
    spent: the upload tokens that were spent; None: reports come without.
    """

    shared: ClassVar[bool]  # whether replicas share it, so that rounds appear which others have begun

    def __init__(self, database: Database, spent: SpentTokens | None) -> None:
        self._database, self._tokens = database, spent

    def knows(self, nonce: bytes, expires: int) -> bool:
        """Whether an upload token is known to be spent, at once; a round decides when its report comes."""
        return self._tokens is not None and self._tokens.knows(nonce, expires)

    def last(self, experiment: str) -> Taken | None:
        """Return the newest publication that reports were taken for."""
        return last_taken(self._database, experiment)

    def note(self, experiment: str, taken: Taken) -> None:
        """Remember a publication unless a newer one is known; durable when this returns."""
        row = {"experiment": experiment, "version": taken.version, "digest": taken.digest, "over": False}
        with self._database.transaction() as db:
            db.execute(_NOTE, row)
        self._database.tidy()

    def end(self, experiment: str, version: int) -> None:
        """Remember that a version takes no further batch; durable when this returns."""
        with self._database.transaction() as db:
            db.execute(_END, {"name": experiment, "ended": version})
        self._database.tidy()

    @abstractmethod
    async def find(self, opened: Collection[bytes]) -> Sequence[Pool]:
        """Open the rounds that are held but for those with these digests."""

    @abstractmethod
    async def open(self, label: Label) -> Pool:
        """Make room for a round, of whose publication `note` took note."""

    @abstractmethod
    async def is_writable(self) -> bool:
        """Whether reports can be stored now."""

    @abstractmethod
    def examine(self) -> PoolFindings:
        """Read all databases but those of rounds that `find` has opened, and compare them with each other."""

    async def tidy(self) -> None:
        """Forget spent tokens whose key has expired, until the task is cancelled."""
        if self._tokens:
            await self._tokens.forget_now_and_then()

    def close(self) -> None:
        """Let go of everything; nothing here is used again."""
        if self._tokens:
            self._tokens.close()
        self._database.close()


class FolderStore(PoolStore):
    """A data folder: a file a round, and files that outlive rounds."""

    shared = False

    def __init__(self, folder: Path, history: Database, spent: FiledTokens | None = None) -> None:
        super().__init__(history, spent)
        self._folder, self._spent = folder, spent
        loaded = {path.name: _load(path, spent) for path in sorted(folder.glob(f"*{SUFFIX}"))}
        self._found = {name: held for name, held in loaded.items() if held}
        self.found = len(self._found)  # how many rounds were there at the start

    @override
    async def find(self, opened: Collection[bytes]) -> list[Pool]:
        found, self._found = self._found.values(), {}
        return [Pool(held) for held in found if held.label.digest not in opened]

    @override
    async def open(self, label: Label) -> Pool:
        size = TOKEN_BYTES if self._spent else 0
        store = await asyncio.to_thread(RoundStore.create, self._folder, label, size)
        return Pool(PlacedRound(store, self._spent))

    @override
    def examine(self) -> PoolFindings:
        databases = {HISTORY_FILE: self._database.examine()}
        wrong = unknown_rounds(self._database, [held.label for held in self._found.values()])
        if self._spent:
            spent = self._spent.examine()
            databases[TOKENS_FILE] = spent.database
            wrong += spent.disagreements
        databases |= {name: held.examine() for name, held in self._found.items()}
        return PoolFindings(databases, wrong)

    @override
    async def is_writable(self) -> bool:
        return await asyncio.to_thread(is_writable, self._folder)


def last_taken(history: Database, experiment: str) -> Taken | None:
    """Return the newest publication of an experiment that reports were taken for."""
    with history.connection() as db:
        found = db.execute(_LAST, {"name": experiment}).fetchone()
    return Taken(*found) if found else None


def unknown_rounds(history: Database, labels: Iterable[Label]) -> list[str]:
    """Say which rounds the history does not know, though it has every round before any report comes."""
    wrong = []
    for label in labels:
        name, last = label.round.experiment, last_taken(history, label.round.experiment)
        is_older = last is not None and label.round.version < last.version
        if not is_older and (last is None or last[:2] != (label.round.version, label.digest)):
            wrong.append(f"the history does not know the round of {name}: one of the two is an earlier copy")
    return wrong


def _load(path: Path, spent: FiledTokens | None) -> PlacedRound | None:
    store = RoundStore.load(path)
    try:
        return PlacedRound(store, spent) if store else None
    except sqlite3.Error as error:
        raise damaged(path, ROUND_DATABASE) from error
