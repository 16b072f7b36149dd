"""What a device knows of servers: the key of each, the last head of its log, and evidence against it."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from privateer_client.ledger_file import LedgerFile


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
        """Keep evidence against a server, in the place of any before."""
        ...

    def evidence(self, server: str) -> str | None:
        """Return the evidence against a server."""
        ...


class KnownServers:
    """Servers in the ledger's file."""

    def __init__(self, file: LedgerFile) -> None:
        self._file = file

    def get(self, server: str) -> KnownServer | None:
        """Return what is known of a server, by its address."""
        with self._file.transaction() as database:
            row = database.execute("SELECT key, head FROM servers WHERE server = ?", (server,)).fetchone()
        return None if row is None else KnownServer(*row)

    def change(self, server: str, change: Callable[[KnownServer | None], KnownServer]) -> None:
        """Replace what is known of a server by what ``change`` makes of it; nothing changes if that raises.

        Raises
        ------
        InputError
            If the ledger cannot be used.
        """
        with self._file.transaction() as database:
            row = database.execute("SELECT key, head FROM servers WHERE server = ?", (server,)).fetchone()
            after = change(None if row is None else KnownServer(*row))
            database.execute("INSERT OR REPLACE INTO servers VALUES (?, ?, ?)", (server, *after))

    def forget(self, server: str) -> None:
        """Trust whatever key and log a server has the next time, as at the first time; evidence stays."""
        with self._file.transaction() as database:
            database.execute("DELETE FROM servers WHERE server = ?", (server,))

    def accuse(self, server: str, evidence: str) -> None:
        """Keep evidence against a server, in the place of any before."""
        with self._file.transaction() as database:
            database.execute("INSERT OR REPLACE INTO evidence VALUES (?, ?)", (server, evidence))

    def evidence(self, server: str) -> str | None:
        """Return the evidence against a server; None if there is none."""
        with self._file.transaction() as database:
            row = database.execute("SELECT body FROM evidence WHERE server = ?", (server,)).fetchone()
        return None if row is None else str(row[0])
