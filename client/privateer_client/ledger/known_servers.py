"""What a device knows of servers: the key of each, the last head of its log, and evidence against it."""

import json
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from typing_extensions import override

from privateer_client.ledger.ledger_file import LedgerFile
from privateer_core.errors import HeadWentBack, LogForked

CONTRADICTIONS: Final = {error.slug: error for error in (LogForked, HeadWentBack)}
"""What stops a device. A fork is proved by the server's own signatures; an old head may also be one that somebody in
between repeats, and stops it all the same. Anything else is unsigned."""


class KnownServer(NamedTuple):
    """A server's public key (Ed25519, 32 bytes), and the last signed head of its log that the device has checked."""

    key: bytes
    head: str


class Servers(Protocol):
    """Where a device keeps what it knows of servers; see `KnownServers`."""

    def get(self, server: str) -> KnownServer | None:
        """Return what is known of a server, by its address."""
        ...

    def change(self, server: str, change: Callable[[KnownServer | None], KnownServer]) -> None:
        """Replace what is known of a server by what ``change`` makes of it, at once."""
        ...

    def accuse(self, server: str, evidence: str) -> None:
        """Keep evidence against a server, unless there is as strong evidence already: a fork is the strongest."""
        ...

    def acquit(self, server: str) -> None:
        """Mark the evidence that a server's log went back as answered, if that is all there is."""
        ...

    def evidence(self, server: str) -> str | None:
        """Return the evidence against a server; None if there is none."""
        ...


class KnownServers(Servers):
    """Servers in the ledger's file."""

    def __init__(self, file: LedgerFile) -> None:
        self._file = file

    @override
    def get(self, server: str) -> KnownServer | None:
        with self._file.reading() as database:
            row = database.execute("SELECT key, head FROM servers WHERE server = ?", (server,)).fetchone()
        return None if row is None else KnownServer(*row)

    @override
    def change(self, server: str, change: Callable[[KnownServer | None], KnownServer]) -> None:
        """Replace what is known of a server by what ``change`` makes of it; nothing changes if that raises."""
        with self._file.transaction() as database:
            row = database.execute("SELECT key, head FROM servers WHERE server = ?", (server,)).fetchone()
            after = change(None if row is None else KnownServer(*row))
            database.execute("INSERT OR REPLACE INTO servers VALUES (?, ?, ?)", (server, *after))

    def forget(self, server: str) -> str | None:
        """Trust whatever key and log a server has the next time, as at the first time.

        Returns
        -------
        The evidence against it, which the ledger then has no more; None if there was none.
        """
        with self._file.transaction() as database:
            row = database.execute("SELECT body FROM evidence WHERE server = ?", (server,)).fetchone()
            database.execute("DELETE FROM servers WHERE server = ?", (server,))
            database.execute("DELETE FROM evidence WHERE server = ?", (server,))
        return None if row is None else str(row[0])

    @override
    def accuse(self, server: str, evidence: str) -> None:
        with self._file.transaction() as database:
            row = database.execute("SELECT body FROM evidence WHERE server = ?", (server,)).fetchone()
            if row is None or _outweighs(evidence, row[0]):
                database.execute("INSERT OR REPLACE INTO evidence VALUES (?, ?)", (server, evidence))

    @override
    def acquit(self, server: str) -> None:
        """Mark the evidence that a server's log went back as answered, if that is all there is.

        It stays to be published: an old head of another log than the one that went on shows that there are two.
        """
        with self._file.transaction() as database:
            row = database.execute("SELECT body FROM evidence WHERE server = ?", (server,)).fetchone()
            if row is not None and contradiction(row[0]) is HeadWentBack:
                answered = json.dumps(json.loads(row[0]) | {"answered": True}, indent=1)
                database.execute("UPDATE evidence SET body = ? WHERE server = ?", (answered, server))

    @override
    def evidence(self, server: str) -> str | None:
        with self._file.reading() as database:
            row = database.execute("SELECT body FROM evidence WHERE server = ?", (server,)).fetchone()
        return None if row is None else str(row[0])


def contradiction(evidence: str) -> type[LogForked] | type[HeadWentBack] | None:
    """Return the error that evidence is of, if it shows that the server contradicted itself and has not answered it."""
    found = json.loads(evidence)
    return None if found.get("answered") else CONTRADICTIONS.get(found["problem"])


def _outweighs(evidence: str, before: str) -> bool:
    """Whether evidence is kept instead of what there is: the stronger one, and of like ones the first to stand."""
    new, old = _strength(evidence), _strength(before)
    return new > old or (new == old and contradiction(before) is None)


def _strength(evidence: str) -> int:
    """Rank evidence: a fork is signed, a rollback may be repeated by somebody in between, anything else is unsigned."""
    return (None, HeadWentBack, LogForked).index(CONTRADICTIONS.get(json.loads(evidence)["problem"]))
