"""The data of a running server: its database, its journal and the keys of its open rounds."""

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from privateer_core.clock import Clock
from privateer_core.serving.store.copies import remove_scratch_folders
from privateer_core.serving.store.sqlite import SqliteDatabase, check_header, is_writable, open_database, was_cut_short
from privateer_core.serving.store.store_key import read_store_key
from privateer_server.publication_log import PublicationLog, read_identity
from privateer_server.settings import ServerSettings
from privateer_server.store import schema
from privateer_server.store.journal import Journal
from privateer_server.store.records import TRANSIENT_ERRORS
from privateer_server.store.round_keys import KeyFolder, KeyTable, RoundKeys
from privateer_server.store.rounds import CHANNEL
from privateer_server.store.store import Store

if TYPE_CHECKING:
    from privateer_core.serving.store.postgres import Notifications

KEYS_FOLDER: Final = "keys"
_CLEANUP_INTERVAL_SECONDS: Final = 1.0
_TOKEN_CLEANUP_INTERVAL_SECONDS: Final = 3600.0


@dataclass(frozen=True)
class Data:
    """A server's data: in a folder that is locked until `close`, or in databases that servers share."""

    store: Store
    journal: Journal
    keys: RoundKeys
    log: PublicationLog  # the public log of publications
    # folders whose disks the server can fill, by their content
    folders: Mapping[str, Path] = field(default_factory=dict)
    # notifications of other servers' publications and changes; None for a single server
    notifications: "Notifications | None" = None
    # whether the last process on the folder stopped uncleanly; servers that share their data do not know that
    was_cut_short: bool = False

    async def clean(self, clock: Clock) -> None:
        """Erase obsolete data once a second, until the task is cancelled.

        A seized disk shows at most the last moments of a round: earlier states of database and journal are erased, and
        keys that could not be erased before. Once an hour spent upload tokens with long expired keys are deleted.
        """
        next_token_cleanup = clock.monotonic()
        while True:
            if clock.monotonic() >= next_token_cleanup:
                has_more = False
                with suppress(*TRANSIENT_ERRORS):  # an hour later is early enough
                    has_more = await asyncio.to_thread(self.store.delete_some_expired_tokens, clock.now())
                next_token_cleanup = clock.monotonic() + (0.0 if has_more else _TOKEN_CLEANUP_INTERVAL_SECONDS)
            await asyncio.sleep(_CLEANUP_INTERVAL_SECONDS)
            await asyncio.to_thread(self.store.erase_old_states)
            await asyncio.to_thread(self.journal.erase_old_states)
            await asyncio.to_thread(self.keys.retry_erasures)

    def write_probes(self) -> None:
        """Write a row, and a file into each folder, or raise the error that prevents writing."""
        self.store.write_probe()
        keys = [self.folders["data"] / KEYS_FOLDER] if self.folders else []
        for folder in (*self.folders.values(), *keys):
            if not is_writable(folder):
                raise OSError("a folder of the server cannot be written")

    def close(self) -> None:
        """Close the databases and notifications."""
        if self.notifications:
            self.notifications.close()
        self.journal.close()
        self.store.close()


def open_data(settings: ServerSettings) -> Data:
    """Open the data folder or the shared databases of the settings."""
    return _open_shared(settings) if settings.database else _open_folder(settings)


def _open_folder(settings: ServerSettings) -> Data:
    """Open the data folder with its database, which is locked first, and its journal; missing ones are created."""
    folder = settings.data
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    path = settings.journal or folder / schema.JOURNAL_FILE
    check_header(path, schema.JOURNAL_KIND)  # before the database is migrated
    is_cut_short = was_cut_short(folder / schema.STORE_FILE)
    with ExitStack() as stack:
        # The database comes first: its lock keeps a second server from everything else.
        store = Store(SqliteDatabase(open_database(folder / schema.STORE_FILE, schema.STORE_KIND)))
        stack.callback(store.close)
        journal = Journal(SqliteDatabase(open_database(path, schema.JOURNAL_KIND)))
        stack.callback(journal.close)
        for folder_to_clean in {folder, path.parent}:
            remove_scratch_folders(folder_to_clean)
        log = PublicationLog(store, journal, read_identity(folder, settings.publication_key))
        folders = {"data": folder, "journal": path.parent}
        keys = RoundKeys(KeyFolder(folder / KEYS_FOLDER))
        data = Data(store, journal, keys, log, folders, was_cut_short=is_cut_short)
        stack.pop_all()
    return data


def _open_shared(settings: ServerSettings) -> Data:
    """Connect to two PostgreSQL databases, of which the journal's is never copied nor restored."""
    from privateer_core.serving.store.postgres import Notifications, PostgresDatabase

    setting, store_key = "PRIVATEER_JOURNAL_DATABASE", read_store_key(settings.store_key_file)
    with ExitStack() as stack:
        shared = PostgresDatabase(settings.database, schema.STORE_SCHEMA, "PRIVATEER_DATABASE")
        stack.callback(shared.close)
        unshared = PostgresDatabase(settings.journal_database, schema.JOURNAL_SCHEMA, setting)
        stack.callback(unshared.close)
        store, journal, keys = Store(shared), Journal(unshared), RoundKeys(KeyTable(unshared, store_key))
        identity = read_identity(settings.data, settings.publication_key)
        log = PublicationLog(store, journal, identity, setting)
        data = Data(store, journal, keys, log, {}, Notifications(settings.database, CHANNEL))
        stack.pop_all()
    return data
