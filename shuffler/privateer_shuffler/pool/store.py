"""The store of a shuffler's rounds, last publications and spent tokens: a data folder, or a shared database."""

import asyncio
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import ClassVar, Final, NamedTuple

from sqlalchemy import bindparam, select, update
from typing_extensions import override

from privateer_core.serving.store.copies import remove_scratch_folders
from privateer_core.serving.store.database import Database, DatabaseFacts, SqliteDatabase, insert
from privateer_core.serving.store.sqlite import FileKind, damage_error, is_writable, open_database
from privateer_shuffler.pool.placed_round import PlacedRound
from privateer_shuffler.pool.pool import Label, Pool
from privateer_shuffler.pool.round_file import REPAIR, ROUND_DATABASE, SUFFIX, RoundStore
from privateer_shuffler.pool.schema import TAKEN
from privateer_shuffler.pool.spent_tokens import TOKEN_BYTES, TOKENS_FILE, FiledTokens, SpentTokens

HISTORY_FILE: Final = "taken.sqlite"
HISTORY_DATABASE: Final = FileKind(
    application=0x50525654, version=1, schema=(TAKEN,), field="PRIVATEER_DATA", repair=REPAIR
)
_IS_EXPERIMENT: Final = TAKEN.c.experiment == bindparam("name")
_SELECT_LAST: Final = select(TAKEN.c.version, TAKEN.c.digest, TAKEN.c.over).where(_IS_EXPERIMENT)
_INSERT_LAST: Final = insert(TAKEN)
_UPSERT_LAST: Final = _INSERT_LAST.on_conflict_do_update(
    index_elements=[TAKEN.c.experiment],
    set_={"version": _INSERT_LAST.excluded.version, "digest": _INSERT_LAST.excluded.digest, "over": False},
    where=_INSERT_LAST.excluded.version > TAKEN.c.version,
)
_END_VERSION: Final = update(TAKEN).where(_IS_EXPERIMENT, TAKEN.c.version == bindparam("ended")).values(over=True)


class LastPublication(NamedTuple):
    """Version and digest of a publication, and whether it takes no further batch."""

    version: int
    digest: bytes
    over: bool = False


class PoolFindings(NamedTuple):
    """The findings of a complete check of a store."""

    databases: dict[str, DatabaseFacts]  # facts on the state of each database, by name
    disagreements: list[str]  # inconsistencies between databases, or within one: a sentence each


def open_history(folder: Path) -> Database:
    """Open the file of last publications in a folder, and hold its lock."""
    database = SqliteDatabase(open_database(folder / HISTORY_FILE, HISTORY_DATABASE))
    remove_scratch_folders(folder)
    return database


class PoolStore(ABC):
    """The store of pools, last publications and spent tokens. Methods raise ``OSError`` or ``sqlite3.Error``.

    The last publication of each experiment is durable before the first report of its round is taken. Without it a
    server could publish an older version again after the shuffler restarts, whose participants have all reported, and
    fill its batch with a late device and reports of its own. All methods that are not ``async`` block.

    database: database of the last publications.
    spent_tokens: spent upload tokens; None: reports come without tokens.
    """

    shared: ClassVar[bool]  # whether replicas share the store, so that rounds of other replicas appear

    def __init__(self, database: Database, spent_tokens: SpentTokens | None) -> None:
        self._database, self._tokens = database, spent_tokens

    def is_known_spent(self, nonce: bytes, expires: int) -> bool:
        """Whether an upload token is known to be spent, without waiting; a round decides on its report."""
        return self._tokens is not None and self._tokens.is_known_spent(nonce, expires)

    def load_last_publication(self, experiment: str) -> LastPublication | None:
        """Return the newest publication with accepted reports, or None."""
        return last_publication(self._database, experiment)

    def store_publication(self, experiment: str, publication: LastPublication) -> None:
        """Store a publication unless a newer one is stored; durable when this returns."""
        row = {"experiment": experiment, "version": publication.version, "digest": publication.digest, "over": False}
        with self._database.transaction() as db:
            db.execute(_UPSERT_LAST, row)
        self._database.erase_old_states()

    def end_version(self, experiment: str, version: int) -> None:
        """Store that a version takes no further batch; durable when this returns."""
        with self._database.transaction() as db:
            db.execute(_END_VERSION, {"name": experiment, "ended": version})
        self._database.erase_old_states()

    @abstractmethod
    async def open_stored_rounds(self, opened: Collection[bytes]) -> Sequence[Pool]:
        """Open the stored rounds except the rounds with these digests, and return their pools."""

    @abstractmethod
    async def create_round(self, label: Label) -> Pool:
        """Create a round, whose publication is stored already, and return its empty pool."""

    @abstractmethod
    async def is_writable(self) -> bool:
        """Whether reports can be stored now."""

    @abstractmethod
    def examine(self) -> PoolFindings:
        """Read all databases except rounds that `open_stored_rounds` has opened, and report inconsistencies."""

    async def delete_expired_tokens(self) -> None:
        """Delete spent tokens whose key has expired, until the task is cancelled."""
        if self._tokens:
            await self._tokens.delete_expired_periodically()

    def close(self) -> None:
        """Close all databases; the store is not usable afterwards."""
        if self._tokens:
            self._tokens.close()
        self._database.close()


class FolderStore(PoolStore):
    """A data folder: a file per round, and files that outlive rounds."""

    shared = False

    def __init__(self, folder: Path, history: Database, spent_tokens: FiledTokens | None = None) -> None:
        super().__init__(history, spent_tokens)
        self._folder, self._spent_tokens = folder, spent_tokens
        rounds = {path.name: _load_round(path, spent_tokens) for path in sorted(folder.glob(f"*{SUFFIX}"))}
        self._unopened_rounds = {name: round_ for name, round_ in rounds.items() if round_}
        self.n_stored_rounds = len(self._unopened_rounds)  # number of rounds at the start

    @override
    async def open_stored_rounds(self, opened: Collection[bytes]) -> list[Pool]:
        rounds, self._unopened_rounds = self._unopened_rounds.values(), {}
        return [Pool(round_) for round_ in rounds if round_.label.digest not in opened]

    @override
    async def create_round(self, label: Label) -> Pool:
        size = TOKEN_BYTES if self._spent_tokens else 0
        store = await asyncio.to_thread(RoundStore.create, self._folder, label, size)
        return Pool(PlacedRound(store, self._spent_tokens))

    @override
    def examine(self) -> PoolFindings:
        databases = {HISTORY_FILE: self._database.examine()}
        disagreements = describe_unknown_rounds(
            self._database, [round_.label for round_ in self._unopened_rounds.values()]
        )
        if self._spent_tokens:
            findings = self._spent_tokens.examine()
            databases[TOKENS_FILE] = findings.database
            disagreements += findings.disagreements
        databases |= {name: round_.examine() for name, round_ in self._unopened_rounds.items()}
        return PoolFindings(databases, disagreements)

    @override
    async def is_writable(self) -> bool:
        return await asyncio.to_thread(is_writable, self._folder)


def last_publication(history: Database, experiment: str) -> LastPublication | None:
    """Return the newest publication of an experiment with accepted reports, or None."""
    with history.connection() as db:
        row = db.execute(_SELECT_LAST, {"name": experiment}).fetchone()
    return LastPublication(*row) if row else None


def describe_unknown_rounds(history: Database, labels: Iterable[Label]) -> list[str]:
    """Describe the rounds that the history lacks, although it has every round before its first report."""
    disagreements = []
    for label in labels:
        name, last = label.round.experiment, last_publication(history, label.round.experiment)
        is_older = last is not None and label.round.version < last.version
        if not is_older and (last is None or last[:2] != (label.round.version, label.digest)):
            disagreements.append(f"the history does not know the round of {name}: one of the two is an earlier copy")
    return disagreements


def _load_round(path: Path, spent_tokens: FiledTokens | None) -> PlacedRound | None:
    """Open a round's file again; None if its creation or deletion was cut short, which deletes the file."""
    store = RoundStore.load(path)
    try:
        return PlacedRound(store, spent_tokens) if store else None
    except sqlite3.Error as error:
        raise damage_error(path, ROUND_DATABASE) from error
