"""The data folder of a running server: its database, its journal and the keys of its open rounds."""

import asyncio
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from privateer_server.publication_log import PublicationLog, read_identity
from privateer_server.round_keys import RoundKeys
from privateer_server.rounds import OpenRound
from privateer_server.settings import Settings
from privateer_server.store.journal import Journal
from privateer_server.store.sqlite import SqliteStore

JOURNAL_FILE: Final = "journal.db"
KEYS_FOLDER: Final = "keys"
_CLEAN_SECONDS: Final = 1.0


@dataclass(frozen=True)
class Data:
    """The files of a server, which no other server can open until `close`."""

    store: SqliteStore
    journal: Journal
    keys: RoundKeys
    journal_folder: Path
    log: PublicationLog

    async def clean(self) -> None:
        """Clean up once a second, until the task is cancelled.

        Whoever takes the disk finds the last moments of a round at most: earlier states of the database go, and keys
        that could not be erased before.
        """
        while True:
            await asyncio.sleep(_CLEAN_SECONDS)
            await asyncio.to_thread(self.store.tidy)
            await asyncio.to_thread(self.keys.retry)

    def journal_is_ahead(self, current: OpenRound) -> bool:
        """Whether the journal has the round's end, so that nothing can be added to it or planned for it any more."""
        entry = self.journal.last(current.round.experiment)
        return bool(entry and entry.closed == current.digest)

    def close(self) -> None:
        """Let go of the files; nothing here is used again."""
        self.journal.close()
        self.store.close()


def open_data(settings: Settings) -> Data:
    """Lock the folder and open what is there.

    Raises
    ------
    SpecError
        If another server has the folder, or its files are damaged or of another version.
    OSError, sqlite3.OperationalError
        If the folder cannot be used.
    """
    folder = settings.data
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    with ExitStack() as stack:
        # The database comes first: its lock keeps a second server from everything else.
        store = SqliteStore(folder)
        stack.callback(store.close)
        path = settings.journal or folder / JOURNAL_FILE
        journal = Journal(path)
        stack.callback(journal.close)
        log = PublicationLog(store, journal, read_identity(folder, settings.identity))
        data = Data(store, journal, RoundKeys(folder / KEYS_FOLDER), path.parent, log)
        stack.pop_all()
    return data
