"""The public log of all publications, and the key that signs them and its heads."""

import logging
import secrets
from pathlib import Path
from threading import Lock
from typing import Final

from privateer_core.errors import NotFound, SpecError, Unavailable
from privateer_core.spec.experiment import is_name
from privateer_core.wire.identity import Identity
from privateer_core.wire.keys import own_key
from privateer_core.wire.merkle import MerkleTree
from privateer_core.wire.transparency_log import BLOCK, Entry, Head, Proof, prove
from privateer_server.store.journal import Journal
from privateer_server.store.records import TRANSIENT, Leaf
from privateer_server.store.store import Store

IDENTITY_FILE: Final = "identity.key"
_log = logging.getLogger("privateer.server")
ENTRIES_MAX: Final = 1000
"""Entries that one answer lists."""


def read_identity(folder: Path, path: Path | None) -> Identity:
    """Return the server's identity, which is made if the file is not there."""
    return Identity(own_key(path or folder / IDENTITY_FILE, "PRIVATEER_IDENTITY"))


class PublicationLog:
    """The log that this server signs heads of.

    The database adds a leaf in the transaction that publishes. The journal has a leaf before a head is signed for it,
    and never goes back: an earlier copy of the database gets the leaves that it lacks from there, so that the log goes
    on where it was. Without its journal the server cannot know what it has signed, and begins another log, under
    another name.

    Servers that share their data have one log and one key: each reads what all have published before it signs a head.

    field: the setting that names the journal.
    """

    def __init__(self, store: Store, journal: Journal, identity: Identity, field: str = "PRIVATEER_JOURNAL") -> None:
        self.identity, self._field = identity, field
        self._store, self._journal, self._lock = store, journal, Lock()
        self._tree, self._signed = MerkleTree(), Head("", 0, b"", "")
        if journal.signer(identity.public) != identity.public:
            raise SpecError(
                "the servers on these databases sign with another key",
                field="PRIVATEER_IDENTITY",
                remedy="give all servers the same key file; docs/operations/scale-servers.md says how to replace it",
            )
        if not journal.origin():
            journal.extend(f"privateer/log/{secrets.token_hex(8)}", 0, store.leaves(0))
        self.origin = journal.origin()  # of several servers that begin it, one has named it
        self._recall()
        for leaf in journal.leaves(0):
            self._tree.append(_entry(leaf).leaf)

    def _recall(self) -> None:
        """Give an earlier copy of the database the leaves that it lacks."""
        known, here = self._journal.leaves(0), self._store.leaves(0)
        common = min(len(known), len(here))
        if known[:common] != here[:common]:
            raise SpecError(
                "the log in the database is not the one in the journal",
                field=self._field,
                remedy="start with the journal of this database; with none, the log begins anew and devices refuse it",
            )
        if known[common:]:
            self._store.recall(known[common:])

    def head(self) -> Head:
        """Return the signed head of the log as it is now."""
        with self._lock:
            self._grow()
            size = len(self._tree)
            if not self._signed.signed or self._signed.size != size:
                self._signed = Head.sign(self.origin, size, self._tree.root(size), self.identity.key)
            return self._signed

    def _grow(self) -> None:
        """Put what was published since on record, and add it."""
        size = len(self._tree)
        try:
            if new := self._store.leaves(size):
                self._journal.extend(self.origin, size, new)
        except TRANSIENT as error:
            _log.error("the log of publications cannot go on: %s", error)
            raise Unavailable("the server cannot store its log now", remedy="try again later") from None
        for leaf in new:
            self._tree.append(_entry(leaf).leaf)

    def prove(self, experiment: str, version: int, block: int | None) -> Proof:
        """Return the proof for devices that a publication is in the log."""
        head, index = self.head(), self._place(experiment, version)
        if block is not None and block * BLOCK > head.size:
            raise NotFound("the log has no such block", field="block", remedy="fetch its head")
        return prove(self._tree, head, index, block)

    def _place(self, experiment: str, version: int) -> int:
        place = self._store.place(experiment, version) if is_name(experiment) else None
        if place is None or place >= len(self._tree):
            raise NotFound("this publication is not in the log", field="version", remedy="see the history")
        return place

    def inclusion(self, experiment: str, version: int, size: int | None) -> tuple[int, int, list[bytes]]:
        """Return place, size and path of a publication in the tree of so many leaves, by default of all."""
        head, place = self.head(), self._place(experiment, version)
        size = head.size if size is None else size
        if not place < size <= head.size:
            raise NotFound("this publication is not in a log of this size", field="size", remedy="fetch its head")
        return place, size, self._tree.inclusion(place, size)

    def consistency(self, first: int, second: int) -> list[bytes]:
        """Return the proof that the log of ``second`` leaves begins with that of ``first``."""
        if not first <= second <= self.head().size:
            raise NotFound("the log does not go so far", field="second", remedy="fetch its head")
        return self._tree.consistency(first, second)

    def entries(self, start: int, end: int) -> list[Leaf]:
        """Return what a signed head has from ``start`` to ``end``, at most `ENTRIES_MAX`."""
        end = min(end, start + ENTRIES_MAX, self.head().size)
        return self._journal.leaves(start, max(0, end - start))


def _entry(leaf: Leaf) -> Entry:
    return Entry(leaf.experiment, leaf.version, leaf.digest)
