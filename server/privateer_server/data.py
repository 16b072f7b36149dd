"""The data folder of a running server: its database, its journal and the keys of its open rounds."""

import logging
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from privateer.clock import Clock
from privateer.errors import SpecError
from privateer_server.closing import Closer
from privateer_server.experiments import Experiments
from privateer_server.faults import trace
from privateer_server.round_keys import RoundKeys
from privateer_server.settings import Settings
from privateer_server.store import TRANSIENT
from privateer_server.store.journal import Journal
from privateer_server.store.sqlite import SqliteStore

_JOURNAL: Final = "journal.db"
_KEYS: Final = "keys"
_log = logging.getLogger("privateer.server")


@dataclass(frozen=True)
class Data:
    """What a server holds of its folder until `close`."""

    store: SqliteStore
    keys: RoundKeys
    closer: Closer
    experiments: Experiments
    _stack: ExitStack

    def close(self) -> None:
        """Let go of the files; nothing here is used again."""
        self._stack.close()


def open_data(settings: Settings, clock: Clock) -> Data:
    """Lock the folder, then mend and read what is there.

    Raises
    ------
    SpecError
        If the folder cannot be used, is in use, or holds what cannot be read.
    """
    with ExitStack() as stack:
        try:
            return _opened(settings, clock, stack)
        except SpecError:
            raise
        except TRANSIENT as error:
            raise _unusable(settings.data, error) from None
        except Exception as error:
            _log.error("the database cannot be read (%s)", trace(error))
            raise SpecError(
                "the database holds an experiment that cannot be read",
                field="PRIVATEER_DATA",
                remedy="restore a backup into an empty folder",
            ) from None


def _opened(settings: Settings, clock: Clock, stack: ExitStack) -> Data:
    folder = settings.data
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    # The database comes first: its lock keeps a second server from everything else.
    store = SqliteStore(folder)
    stack.callback(store.close)
    journal = Journal(settings.journal or folder / _JOURNAL)
    stack.callback(journal.close)
    keys = RoundKeys(folder / _KEYS)
    closer = Closer(store, journal, keys, clock)
    experiments = Experiments(store, journal, keys, closer, settings, clock)
    return Data(store, keys, closer, experiments, stack.pop_all())


def _unusable(folder: Path, error: Exception) -> SpecError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else "it cannot be written"
    return SpecError(
        f"{folder.name} cannot be used: {reason}", field="PRIVATEER_DATA", remedy="check the path and free space"
    )
