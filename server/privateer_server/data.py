"""The data of a running server: its database, its journal, the keys of its open rounds, and its public log."""

import asyncio
import logging
import secrets
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final

from privateer_core.clock import Clock
from privateer_core.errors import NotFound, SpecError, Unavailable
from privateer_core.serving.store.copies import remove_scratch_folders
from privateer_core.serving.store.database import SqliteDatabase
from privateer_core.serving.store.sqlite import check_header_version, is_writable, open_database, was_cut_short
from privateer_core.serving.store.store_key import read_store_key
from privateer_core.spec.experiment import is_name
from privateer_core.wire.identity import Identity
from privateer_core.wire.keys import load_or_create_key
from privateer_core.wire.merkle import MerkleTree
from privateer_core.wire.transparency_log import BLOCK, Entry, Head, Proof, make_proof
from privateer_server.intake.decryption import RoundKeys
from privateer_server.settings import ServerSettings
from privateer_server.store import schema
from privateer_server.store.journal import Journal
from privateer_server.store.records import TRANSIENT_ERRORS, Leaf
from privateer_server.store.round_keys import KeyFolder, KeyTable
from privateer_server.store.rounds import CHANNEL
from privateer_server.store.store import Store

if TYPE_CHECKING:
    from privateer_core.serving.store.postgres import Notifications


IDENTITY_FILE: Final = "identity.key"
_log = logging.getLogger("privateer.server")
MAX_ENTRIES: Final = 1000  # the number of entries in an answer
_HEAD_REMEDY: Final = "fetch /log/head, which has the log's size"


def read_identity(folder: Path, path: Path | None) -> Identity:
    """Return the server's identity, which is created if the file is missing."""
    return Identity(load_or_create_key(path or folder / IDENTITY_FILE, "PRIVATEER_PUBLICATION_KEY"))


class PublicationLog:
    """The log whose heads this server signs.

    The database adds a leaf in the transaction that publishes. The journal has a leaf before a head is signed for it,
    and is never rolled back: an earlier copy of the database gets missing leaves from there, so that the log continues
    where it was. Without its journal the server cannot know which heads it has signed, and begins another log with
    another name.

    Servers that share their data have the same log and key: each reads all publications before it signs a head.

    field: the setting that names the journal.
    """

    def __init__(self, store: Store, journal: Journal, identity: Identity, field: str = "PRIVATEER_JOURNAL") -> None:
        self.identity, self._field = identity, field
        self._store, self._journal, self._lock = store, journal, Lock()
        self._tree, self._signed_head = MerkleTree(), Head("", 0, b"", "")
        if journal.register_signer(identity.public) != identity.public:
            detail = "the servers on these databases sign with another key"
            remedy = "give all servers the same key file; docs/operations/scale-servers.md says how to replace it"
            raise SpecError(detail, field="PRIVATEER_PUBLICATION_KEY", remedy=remedy)
        if not journal.origin():
            journal.extend_log(f"privateer/log/{secrets.token_hex(8)}", 0, store.leaves(0))
        self.origin = journal.origin()  # the first of several servers has named it
        self._restore_leaves()
        self._append(journal.leaves(0))

    def _restore_leaves(self) -> None:
        """Add the journal's leaves that an earlier copy of the database lacks."""
        journal_leaves, store_leaves = self._journal.leaves(0), self._store.leaves(0)
        n_common = min(len(journal_leaves), len(store_leaves))
        if journal_leaves[:n_common] != store_leaves[:n_common]:
            remedy = "start with the journal of this database; with none, the log begins anew and devices refuse it"
            raise SpecError("the log in the database is not the one in the journal", field=self._field, remedy=remedy)
        if journal_leaves[n_common:]:
            self._store.add_missing_leaves(journal_leaves[n_common:])

    def append_and_sign_head(self) -> Head:
        """Record new publications in the journal, and return the signed head of the log with them."""
        with self._lock:
            self._append_new_leaves()
            size = len(self._tree)
            if not self._signed_head.signed or self._signed_head.size != size:
                self._signed_head = Head.sign(self.origin, size, self._tree.root(size), self.identity.key)
            return self._signed_head

    def _append_new_leaves(self) -> None:
        """Record new publications in the journal, and append them to the tree."""
        size = len(self._tree)
        try:
            if new_leaves := self._store.leaves(size):
                self._journal.extend_log(self.origin, size, new_leaves)
        except TRANSIENT_ERRORS as error:
            _log.error("the log of publications cannot go on: %s", error)
            raise Unavailable("the server cannot store its log now", remedy="try again later") from None
        self._append(new_leaves)

    def _append(self, leaves: list[Leaf]) -> None:
        for leaf in leaves:
            self._tree.append(Entry(leaf.experiment, leaf.version, leaf.digest).leaf)

    def make_proof(self, experiment: str, version: int, block: int | None) -> Proof:
        """Return the proof for devices that a publication is in the log."""
        head, index = self.append_and_sign_head(), self._find_leaf_index(experiment, version)
        if block is not None and block * BLOCK > head.size:
            raise NotFound("the log has fewer blocks", field="block", remedy=_HEAD_REMEDY)
        return make_proof(self._tree, head, index, block)

    def _find_leaf_index(self, experiment: str, version: int) -> int:
        """Return the index of a publication in the tree, or raise an error if it is not in the log."""
        index = self._store.leaf_index(experiment, version) if is_name(experiment) else None
        if index is None or index >= len(self._tree):
            raise NotFound("this publication is not in the log", field="version", remedy="see the history")
        return index

    def prove_inclusion(self, experiment: str, version: int, size: int | None) -> tuple[int, int, list[bytes]]:
        """Return index, size and path of a publication in the tree of ``size`` leaves; `NotFound` for another size."""
        head, index = self.append_and_sign_head(), self._find_leaf_index(experiment, version)
        size = head.size if size is None else size
        if not index < size <= head.size:
            detail = "must be above the publication's place in the log, and at most the log's size"
            raise NotFound(detail, field="size", remedy=_HEAD_REMEDY)
        return index, size, self._tree.inclusion_proof(index, size)

    def prove_consistency(self, first: int, second: int) -> list[bytes]:
        """Return the proof that the log of ``second`` leaves begins with ``first``; `NotFound` beyond the log."""
        if not first <= second <= self.append_and_sign_head().size:
            detail = "must be at least the first size, and at most the log's size"
            raise NotFound(detail, field="second", remedy=_HEAD_REMEDY)
        return self._tree.consistency_proof(first, second)

    def read_entries(self, start: int, end: int) -> list[Leaf]:
        """Return the leaves of a signed head from ``start`` to ``end``, at most `MAX_ENTRIES`."""
        end = min(end, start + MAX_ENTRIES, self.append_and_sign_head().size)
        return self._journal.leaves(start, max(0, end - start))


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

    async def erase_obsolete_data(self, clock: Clock) -> None:
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
    check_header_version(path, schema.JOURNAL_KIND)  # before the database is migrated
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
