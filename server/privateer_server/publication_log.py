"""The public log of all publications, and the key that signs publications and log heads."""

import logging
import secrets
from pathlib import Path
from threading import Lock
from typing import Final

from privateer_core.errors import NotFound, SpecError, Unavailable
from privateer_core.spec.experiment import is_name
from privateer_core.wire.identity import Identity
from privateer_core.wire.keys import load_or_create_key
from privateer_core.wire.merkle import MerkleTree
from privateer_core.wire.transparency_log import BLOCK, Entry, Head, Proof, make_proof
from privateer_server.store.journal import Journal
from privateer_server.store.records import TRANSIENT_ERRORS, Leaf
from privateer_server.store.store import Store

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
