"""What a running shuffler has: the reports that it holds, its key, and the key that it knows the server by."""

import logging
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_core.errors import PrivateerError
from privateer_core.serving.database import check_header, was_cut_short
from privateer_core.serving.logs import tell
from privateer_core.wire.keys import own_key
from privateer_shuffler import history, spent, store
from privateer_shuffler.folder import Folder
from privateer_shuffler.history import History
from privateer_shuffler.holdings import Holdings
from privateer_shuffler.pin import Pin
from privateer_shuffler.settings import Settings
from privateer_shuffler.spent import Spent

KEY_FILE: Final = "shuffler.key"
_log = logging.getLogger("privateer.shuffler")


class Checks(Protocol):
    """Checks who signs publications."""

    def check(self, signed: str, body: bytes) -> None:
        """Refuse a publication that the known server has not signed."""


class Held(NamedTuple):
    """All that outlives the process.

    Attributes
    ----------
    key, key_file
        The key that signs batches, and its file.
    folder
        Where reports are held; None: in a database.
    """

    holdings: Holdings
    key: Ed25519PrivateKey
    key_file: Path
    pin: Checks
    folder: Path | None


def open_held(settings: Settings) -> Held:
    """Open what the settings name.

    Raises
    ------
    PrivateerError, OSError
        If it cannot be used.
    """
    if settings.database:
        return _in_database(settings)
    folder = settings.data
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)  # the times of its files tell when somebody reports
    _check_headers(folder)
    is_cut_short = was_cut_short(folder / history.FILE)
    # Its lock comes first: two shufflers that start at once on an empty folder do not both make a key.
    taken = History(folder)
    try:
        key_file = settings.signing_key or folder / KEY_FILE
        key = own_key(key_file, "PRIVATEER_SIGNING_KEY" if settings.signing_key else "PRIVATEER_DATA")
        pin = Pin(folder, settings.server_key)
        holdings = Folder(folder, taken, Spent(folder) if settings.tokens.required else None)
    except (PrivateerError, OSError):
        taken.close()
        raise
    if is_cut_short:
        tell(_log, "recovered after an unclean stop", open_rounds=holdings.found)
    return Held(holdings, key, key_file, pin, folder)


def _check_headers(folder: Path) -> None:
    """Refuse a folder with a file that is too old or too new before anything there is opened."""
    check_header(folder / history.FILE, history.DATABASE)
    check_header(folder / spent.FILE, spent.DATABASE)
    for path in folder.glob(f"*{store.SUFFIX}"):
        check_header(path, store.DATABASE)


def _in_database(settings: Settings) -> Held:
    from privateer_shuffler.postgres import open_database

    key_file = settings.signing_key or settings.data / KEY_FILE
    key = own_key(key_file, "PRIVATEER_SIGNING_KEY")
    holdings, pin = open_database(settings, key.public_key().public_bytes_raw())
    return Held(holdings, key, key_file, pin, None)
