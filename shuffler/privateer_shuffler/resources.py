"""Resources of a running shuffler: the reports that it holds, its key, and the key that it knows the server by."""

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_core.errors import PrivateerError, SpecError, Unavailable
from privateer_core.serving.logs import tell
from privateer_core.serving.store.sqlite import check_header, was_cut_short
from privateer_core.wire.identity import check_signed, key_changed
from privateer_core.wire.keys import own_key, read_public_keys, write_public_key
from privateer_shuffler.pool.round_file import ROUND_DATABASE, SUFFIX
from privateer_shuffler.pool.spent_tokens import TOKENS_DATABASE, TOKENS_FILE, FiledTokens
from privateer_shuffler.pool.store import HISTORY_DATABASE, HISTORY_FILE, FolderStore, PoolStore, open_history
from privateer_shuffler.settings import ShufflerSettings

PIN_FILE: Final = "server.pin"
"""Not ``*.pub``: nobody shall take it for a shuffler's key."""
KEY_FILE: Final = "shuffler.key"
_log = logging.getLogger("privateer.shuffler")


class Pin:
    """Checks who signs publications: one of the keys that the operator names, or else the first that was met.

    named: the keys that the operator names.
    known, keep: return the first keys, if there are some; keep one unless there is one, and return the one that counts.
    """

    def __init__(
        self, named: frozenset[bytes], known: Callable[[], frozenset[bytes]], keep: Callable[[bytes], bytes]
    ) -> None:
        self._known, self._keep = named or known(), keep

    def check(self, signed: str, body: bytes) -> None:
        """Refuse a publication that the server has not signed; the first key becomes the known one."""
        key = check_signed(signed, body, self._known)
        if not self._known:
            self._known = frozenset({self._keep(key)})
            check_signed(signed, body, self._known)  # another replica may have met another server

    def check_key(self, key: bytes) -> None:
        """Refuse a server that shows another key than the known ones; anybody can show one that is known."""
        if self._known and key not in self._known:
            raise key_changed()


def pinned_keys(path: Path) -> frozenset[bytes]:
    """Return the keys in a file; none if there is no file."""
    try:
        return frozenset(key.public_bytes_raw() for key in read_public_keys(path))
    except FileNotFoundError:
        return frozenset()
    except (OSError, ValueError):
        remedy = "name the server's key: PRIVATEER_SERVER_KEY"
        raise SpecError(f"{PIN_FILE} holds no key", field="PRIVATEER_DATA", remedy=remedy) from None


def _pin(path: Path, key: bytes) -> bytes:
    """Write a key into a file."""
    try:
        write_public_key(key, path, 0o600)
    except OSError:
        detail = "the shuffler cannot keep the server's key"
        raise Unavailable(detail, remedy="its operator must check its disk") from None
    return key


class Resources(NamedTuple):
    """All that outlives the process."""

    pool_store: PoolStore
    # key, key_file: the key that signs batches, and its file
    key: Ed25519PrivateKey
    key_file: Path
    pin: Pin
    folder: Path | None  # where reports are held; None: in a database


def open_resources(settings: ShufflerSettings) -> Resources:
    """Open what the settings name."""
    if settings.database:
        return _in_database(settings)
    folder = settings.data
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)  # the times of its files tell when somebody reports
    _check_headers(folder)
    is_cut_short = was_cut_short(folder / HISTORY_FILE)
    # Its lock comes first: two shufflers that start at once on an empty folder do not both make a key.
    history = open_history(folder)
    try:
        key_file = settings.signing_key or folder / KEY_FILE
        key = own_key(key_file, "PRIVATEER_SIGNING_KEY" if settings.signing_key else "PRIVATEER_DATA")
        file = folder / PIN_FILE
        pin = Pin(settings.server_key, partial(pinned_keys, file), partial(_pin, file))
        pool_store = FolderStore(folder, history, FiledTokens(folder) if settings.tokens.required else None)
    except (PrivateerError, OSError):
        history.close()
        raise
    if is_cut_short:
        tell(_log, "recovered after an unclean stop", open_rounds=pool_store.found)
    return Resources(pool_store, key, key_file, pin, folder)


def _check_headers(folder: Path) -> None:
    """Refuse a folder with a file that is too old or too new before anything there is opened."""
    check_header(folder / HISTORY_FILE, HISTORY_DATABASE)
    check_header(folder / TOKENS_FILE, TOKENS_DATABASE)
    for path in folder.glob(f"*{SUFFIX}"):
        check_header(path, ROUND_DATABASE)


def _in_database(settings: ShufflerSettings) -> Resources:
    from privateer_shuffler.pool.shared_store import SharedStore

    key_file = settings.signing_key or settings.data / KEY_FILE
    key = own_key(key_file, "PRIVATEER_SIGNING_KEY")
    pool_store = SharedStore.connect(settings, key.public_key().public_bytes_raw())
    pin = Pin(settings.server_key, pool_store.server_keys, pool_store.keep_server_key)
    return Resources(pool_store, key, key_file, pin, None)
