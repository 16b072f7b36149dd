"""Opens the data of a running server: its database, its journal and the keys of its open rounds."""

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from privateer_core.clock import Clock
from privateer_core.serving.store.copies import remove_scratch_folders
from privateer_core.serving.store.sqlite import (
    SqliteDatabase,
    check_header,
    is_writable,
    open_database,
    was_cut_short,
)
from privateer_core.serving.store.store_key import read_store_key
from privateer_server.publication_log import PublicationLog, read_identity
from privateer_server.rounds.open_round import OpenRound
from privateer_server.settings import ServerSettings
from privateer_server.store.journal import Journal
from privateer_server.store.records import TRANSIENT
from privateer_server.store.round_keys import KeyFolder, KeyTable, RoundKeys
from privateer_server.store.rounds import CHANNEL
from privateer_server.store.schema import (
    FILE,
    JOURNAL_FILE,
    JOURNAL_KIND,
    JOURNAL_SCHEMA,
    STORE_KIND,
    STORE_SCHEMA,
)
from privateer_server.store.store import Store

if TYPE_CHECKING:
    from privateer_core.serving.store.postgres import Notifications

KEYS_FOLDER: Final = "keys"
_CLEAN_SECONDS: Final = 1.0
_FORGET_SECONDS: Final = 3600.0


@dataclass(frozen=True)
class Data:
    """A server's data: in a folder that no other server can open until `close`, or in databases that are shared."""

    store: Store
    journal: Journal
    keys: RoundKeys
    log: PublicationLog  # the public log of what is published
    # folders whose disks the server can fill, by what they hold
    folders: Mapping[str, Path] = field(default_factory=dict)
    # say when another server has published or changed something; None if there is no other server
    notifications: "Notifications | None" = None
    # whether the process that had the folder last did not stop as it should; servers that share their data do not know
    was_cut_short: bool = False

    async def clean(self, clock: Clock) -> None:
        """Clean up once a second, until the task is cancelled.

        Whoever takes the disk finds the last moments of a round at most: earlier states of database and journal go, and
        keys that could not be erased before. Once an hour spent upload tokens go whose key has long expired.
        """
        due = clock.monotonic()
        while True:
            if clock.monotonic() >= due:
                is_more = False
                with suppress(*TRANSIENT):  # an hour later is early enough
                    is_more = await asyncio.to_thread(self.store.forget_tokens, clock.now())
                due = clock.monotonic() + (0.0 if is_more else _FORGET_SECONDS)
            await asyncio.sleep(_CLEAN_SECONDS)
            await asyncio.to_thread(self.store.tidy)
            await asyncio.to_thread(self.journal.tidy)
            await asyncio.to_thread(self.keys.retry)

    def check(self) -> None:
        """Write a row, and a file into each folder, or raise what keeps the server from writing."""
        self.store.check()
        keys = [self.folders["data"] / KEYS_FOLDER] if self.folders else []
        for folder in (*self.folders.values(), *keys):
            if not is_writable(folder):
                raise OSError("a folder of the server cannot be written")

    def journal_is_ahead(self, current: OpenRound) -> bool:
        """Whether the journal has the round's end, so that nothing can be added to it or planned for it any more."""
        entry = self.journal.last(current.round.experiment)
        return bool(entry and entry.closed == current.digest)

    def close(self) -> None:
        """Let go of everything; nothing here is used again."""
        if self.notifications:
            self.notifications.close()
        self.journal.close()
        self.store.close()


def open_data(settings: ServerSettings) -> Data:
    """Open what the settings name."""
    return _open_shared(settings) if settings.database else _open_folder(settings)


def _open_folder(settings: ServerSettings) -> Data:
    folder = settings.data
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    path = settings.journal or folder / JOURNAL_FILE
    check_header(path, JOURNAL_KIND)  # before the database is migrated
    is_cut_short = was_cut_short(folder / FILE)
    with ExitStack() as stack:
        # The database comes first: its lock keeps a second server from everything else.
        store = Store(SqliteDatabase(open_database(folder / FILE, STORE_KIND)))
        stack.callback(store.close)
        journal = Journal(SqliteDatabase(open_database(path, JOURNAL_KIND)))
        stack.callback(journal.close)
        for place in {folder, path.parent}:
            remove_scratch_folders(place)
        log = PublicationLog(store, journal, read_identity(folder, settings.identity))
        folders = {"data": folder, "journal": path.parent}
        keys = RoundKeys(KeyFolder(folder / KEYS_FOLDER))
        data = Data(store, journal, keys, log, folders, was_cut_short=is_cut_short)
        stack.pop_all()
    return data


def _open_shared(settings: ServerSettings) -> Data:
    """Connect to two PostgreSQL databases, of which one is never copied nor put back."""
    from privateer_core.serving.store.postgres import Notifications, PostgresDatabase

    setting, store_key = "PRIVATEER_JOURNAL_DATABASE", read_store_key(settings.store_key_file)
    with ExitStack() as stack:
        shared = PostgresDatabase(settings.database, STORE_SCHEMA, "PRIVATEER_DATABASE")
        stack.callback(shared.close)
        unshared = PostgresDatabase(settings.journal_database, JOURNAL_SCHEMA, setting)
        stack.callback(unshared.close)
        store, journal, keys = Store(shared), Journal(unshared), RoundKeys(KeyTable(unshared, store_key))
        identity = read_identity(settings.data, settings.identity)
        log = PublicationLog(store, journal, identity, setting)
        data = Data(store, journal, keys, log, {}, Notifications(settings.database, CHANNEL))
        stack.pop_all()
    return data
