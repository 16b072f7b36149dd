"""Resources of a running shuffler: the held reports, its signing key, and the known keys of the server."""

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_core.errors import PrivateerError, SpecError, Unavailable
from privateer_core.serving.logs import log_event
from privateer_core.serving.store.sqlite import check_header_version, was_cut_short
from privateer_core.wire.identity import key_changed_error, verify_signature
from privateer_core.wire.keys import load_or_create_key, read_public_keys, write_public_key
from privateer_shuffler.pool.round_file import ROUND_DATABASE, SUFFIX
from privateer_shuffler.pool.spent_tokens import TOKENS_DATABASE, TOKENS_FILE, FiledTokens
from privateer_shuffler.pool.store import HISTORY_DATABASE, HISTORY_FILE, FolderStore, PoolStore, open_history
from privateer_shuffler.settings import ShufflerSettings

PIN_FILE: Final = "server.pin"
"""File of the server's key; not ``*.pub``, so that it cannot be mistaken for a shuffler's key."""
KEY_FILE: Final = "shuffler.key"
_log = logging.getLogger("privateer.shuffler")


class Pin:
    """Verification of the signer of publications: a key that the operator names, or else the first key met.

    named_keys: keys that the operator names.
    load_keys, store_key: load the stored keys; store a first key, and return the key that is stored then.
    """

    def __init__(
        self, named_keys: frozenset[bytes], load_keys: Callable[[], frozenset[bytes]], store: Callable[[bytes], bytes]
    ) -> None:
        self._known_keys, self._store_key = named_keys or load_keys(), store

    def check_signature(self, signed: str, body: bytes) -> None:
        """Refuse a publication that the server has not signed; the first signer's key becomes the known key."""
        key = verify_signature(signed, body, self._known_keys)
        if not self._known_keys:
            self._known_keys = frozenset({self._store_key(key)})
            verify_signature(signed, body, self._known_keys)  # another replica may have met another server

    def check_key(self, key: bytes) -> None:
        """Refuse a server with an unknown key. Any server can show a known key, so that this proves no identity."""
        if self._known_keys and key not in self._known_keys:
            raise key_changed_error()


def read_pinned_keys(path: Path) -> frozenset[bytes]:
    """Return the keys in a file; no keys if the file is missing."""
    try:
        return frozenset(key.public_bytes_raw() for key in read_public_keys(path))
    except FileNotFoundError:
        return frozenset()
    except (OSError, ValueError):
        remedy = "name the server's key: PRIVATEER_SERVER_KEY"
        raise SpecError(f"{PIN_FILE} holds no key", field="PRIVATEER_DATA", remedy=remedy) from None


def _write_pinned_key(path: Path, key: bytes) -> bytes:
    try:
        write_public_key(key, path, 0o600)
    except OSError:
        detail = "the shuffler cannot keep the server's key"
        raise Unavailable(detail, remedy="its operator must check its disk") from None
    return key


class Resources(NamedTuple):
    """The resources that outlive the process."""

    pool_store: PoolStore
    # key, key_file: the key that signs batches, and its file
    key: Ed25519PrivateKey
    key_file: Path
    pin: Pin
    folder: Path | None  # folder of held reports; None: a database holds them


def open_resources(settings: ShufflerSettings) -> Resources:
    """Open the resources that the settings name."""
    if settings.database:
        return _open_database_resources(settings)
    folder = settings.data
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)  # the times of its files reveal the times of reports
    _check_headers(folder)
    is_cut_short = was_cut_short(folder / HISTORY_FILE)
    # Its lock comes first: two shufflers that start at once on an empty folder do not both create a key.
    history = open_history(folder)
    try:
        key_file = settings.signing_key or folder / KEY_FILE
        key = load_or_create_key(key_file, "PRIVATEER_SIGNING_KEY" if settings.signing_key else "PRIVATEER_DATA")
        file = folder / PIN_FILE
        pin = Pin(settings.server_key, partial(read_pinned_keys, file), partial(_write_pinned_key, file))
        pool_store = FolderStore(folder, history, FiledTokens(folder) if settings.tokens.required else None)
    except (PrivateerError, OSError):
        history.close()
        raise
    if is_cut_short:
        log_event(_log, "recovered after an unclean stop", open_rounds=pool_store.n_stored_rounds)
    return Resources(pool_store, key, key_file, pin, folder)


def _check_headers(folder: Path) -> None:
    """Refuse a folder with a file of an unknown version before a file is opened."""
    check_header_version(folder / HISTORY_FILE, HISTORY_DATABASE)
    check_header_version(folder / TOKENS_FILE, TOKENS_DATABASE)
    for path in folder.glob(f"*{SUFFIX}"):
        check_header_version(path, ROUND_DATABASE)


def _open_database_resources(settings: ShufflerSettings) -> Resources:
    """Open the resources of a replica, whose rounds are in a shared database."""
    from privateer_shuffler.pool.shared_store import SharedStore

    key_file = settings.signing_key or settings.data / KEY_FILE
    key = load_or_create_key(key_file, "PRIVATEER_SIGNING_KEY")
    pool_store = SharedStore.connect(settings, key.public_key().public_bytes_raw())
    pin = Pin(settings.server_key, pool_store.server_keys, pool_store.keep_server_key)
    return Resources(pool_store, key, key_file, pin, None)
