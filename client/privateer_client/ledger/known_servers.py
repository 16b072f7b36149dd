"""The known servers of a device: the key of each server, the last head of its log, and evidence against it."""

import json
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from typing_extensions import override

from privateer_client.ledger.ledger_file import LedgerFile
from privateer_core.errors import LogForked, LogRollback

CONTRADICTIONS: Final = {error.slug: error for error in (LogForked, LogRollback)}
"""Contradictions that stop a device. A fork is proved by the server's own signatures; an old head may also be replayed
by a third party, and stops the device, too. Other evidence is unsigned."""


class KnownServer(NamedTuple):
    """A server's public key (Ed25519, 32 bytes), and the last signed head of its log that the device has checked."""

    key: bytes
    head: str


class Servers(Protocol):
    """The interface of a device's known servers; see `KnownServers`."""

    def get(self, server: str) -> KnownServer | None:
        """Return the known server at an address, or None."""

    def change(self, server: str, change: Callable[[KnownServer | None], KnownServer]) -> None:
        """Replace a known server by the result of ``change`` atomically."""

    def store_evidence(self, server: str, evidence: str) -> None:
        """Store evidence against a server, unless equally strong evidence is stored: a fork is the strongest."""

    def mark_rollback_answered(self, server: str) -> None:
        """Mark the evidence of a rollback as answered, if there is no stronger evidence."""

    def evidence(self, server: str) -> str | None:
        """Return the evidence against a server; None if there is none."""


class KnownServers(Servers):
    """Servers in the ledger's file."""

    def __init__(self, file: LedgerFile) -> None:
        self._file = file

    @override
    def get(self, server: str) -> KnownServer | None:
        row = self._file.fetch_row("SELECT key, head FROM servers WHERE server = ?", (server,))
        return None if row is None else KnownServer(*row)

    @override
    def change(self, server: str, change: Callable[[KnownServer | None], KnownServer]) -> None:
        """Replace a known server by the result of ``change``; nothing changes if that raises."""
        with self._file.transaction() as database:
            new_server = change(self.get(server))
            database.execute("INSERT OR REPLACE INTO servers VALUES (?, ?, ?)", (server, *new_server))

    def forget(self, server: str) -> str | None:
        """Forget a server; return the evidence against it, which is deleted too, or None.

        Its key and log are trusted at the next contact, as at the first contact.
        """
        with self._file.transaction() as database:
            evidence = self.evidence(server)
            database.execute("DELETE FROM servers WHERE server = ?", (server,))
            database.execute("DELETE FROM evidence WHERE server = ?", (server,))
        return evidence

    @override
    def store_evidence(self, server: str, evidence: str) -> None:
        with self._file.transaction() as database:
            stored = self.evidence(server)
            if stored is None or _outweighs(evidence, stored):
                database.execute("INSERT OR REPLACE INTO evidence VALUES (?, ?)", (server, evidence))

    @override
    def mark_rollback_answered(self, server: str) -> None:
        # It stays to be published: an old head of another log than the one that went on shows that there are two.
        with self._file.transaction() as database:
            stored = self.evidence(server)
            if stored is not None and find_contradiction(stored) is LogRollback:
                marked = json.dumps(json.loads(stored) | {"answered": True}, indent=1)
                database.execute("UPDATE evidence SET body = ? WHERE server = ?", (marked, server))

    @override
    def evidence(self, server: str) -> str | None:
        row = self._file.fetch_row("SELECT body FROM evidence WHERE server = ?", (server,))
        return None if row is None else str(row[0])


def find_contradiction(evidence: str) -> type[LogForked] | type[LogRollback] | None:
    """Return the type of contradiction that evidence shows; None if it shows none or is answered."""
    document = json.loads(evidence)
    return None if document.get("answered") else CONTRADICTIONS.get(document["problem"])


def refuse_contradictory_server(servers: Servers, server: str) -> None:
    """Refuse a server if the device has evidence that it contradicted itself."""
    evidence = servers.evidence(server)
    error = None if evidence is None else find_contradiction(evidence)
    if error is not None:
        detail = "the device holds evidence that the server contradicted itself"
        remedy = f"publish client.evidence; ledger.servers.forget({server!r}) trusts the server anew"
        raise error(detail, field="evidence", remedy=remedy)


def _outweighs(evidence: str, old_evidence: str) -> bool:
    """Whether evidence replaces the stored evidence, because it is stronger or the stored evidence is answered."""
    new, old = _strength(evidence), _strength(old_evidence)
    return new > old or (new == old and find_contradiction(old_evidence) is None)


def _strength(evidence: str) -> int:
    """Rank evidence: a fork is signed, a rollback may be replayed by a third party, and other evidence is unsigned."""
    return (None, LogRollback, LogForked).index(CONTRADICTIONS.get(json.loads(evidence)["problem"]))
