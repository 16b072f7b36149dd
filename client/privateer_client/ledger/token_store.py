"""The upload tokens in a device's ledger: drawn, then signed, then tied to a report, and deleted with it."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from privateer_client.ledger.ledger_file import LedgerFile
from privateer_client.participation import SealedReport
from privateer_core.clock import Clock

if TYPE_CHECKING:
    from privateer_core.wire.token import PendingToken

_ROW = "(person, experiment, endpoint) = (?, ?, ?)"
_REPORT = "(person, experiment, endpoint, body) = (?, ?, ?, ?)"
_CHALLENGE_DIGEST = "substr(input, 35, 32)"
"""The digest of the challenge in the input of a token."""


class TokenStore:
    """Tokens of type 0x0002, each for an endpoint of an experiment. Every method is a durable transaction.

    A drawn token is stored until the issuer has answered, so that a lost answer can be requested again: the issuer
    counts the same request once. A token that is tied to a report stays with it as long as the endpoint may accept it,
    so that the same report always has the same token.
    """

    def __init__(self, file: LedgerFile, clock: Clock, person: bytes = b"") -> None:
        self._file, self._clock, self._person = file, clock, person

    def store_pending(self, experiment: str, endpoint: str, tokens: "Sequence[PendingToken]", expires: int) -> None:
        """Store tokens before their requests, with the expiry of their key."""
        location = (experiment, endpoint)
        rows = [(*location, token.input, token.request, token.inverse, b"", expires, self._person) for token in tokens]
        with self._file.transaction() as database:
            database.executemany("INSERT INTO tokens VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def list_pending(self, experiment: str, endpoint: str) -> "list[PendingToken]":
        """Return the tokens that the issuer has not signed."""
        from privateer_core.wire.token import PendingToken

        query = f"SELECT input, request, inverse FROM tokens WHERE {_ROW} AND token = x''"
        return [PendingToken(*row) for row in self._execute(query, experiment, endpoint)]

    def store_signed(self, pending: "PendingToken", token: bytes) -> None:
        """Store the signed token, and overwrite the data that could link it to its request."""
        with self._file.transaction() as database:
            statement = "UPDATE tokens SET token = ?, request = x'', inverse = x'' WHERE input = ?"
            database.execute(statement, (token, pending.input))

    def delete(self, pending: "PendingToken") -> None:
        """Delete a token that will not be signed."""
        with self._file.transaction() as database:
            database.execute("DELETE FROM tokens WHERE input = ?", (pending.input,))

    def delete_obsolete(self, experiment: str, endpoint: str, digest: bytes) -> None:
        """Delete tokens for another challenge, and expired tokens."""
        parameters = (self._person, experiment, endpoint, digest)
        with self._file.transaction() as database:
            condition = f"{_ROW} AND {_CHALLENGE_DIGEST} <> ?"
            database.execute(f"DELETE FROM tokens WHERE {condition}", parameters)
            database.execute("DELETE FROM tokens WHERE expires <= ?", (int(self._clock.now()),))

    def count_available(self, experiment: str, endpoint: str) -> int:
        """Return the number of available signed tokens."""
        query = f"SELECT count(*) FROM tokens WHERE {_ROW} AND token <> x'' AND expires > ?"
        return int(self._execute(query, experiment, endpoint, int(self._clock.now()))[0][0])

    def count_tokenless(self, experiment: str, endpoint: str) -> int:
        """Return the number of pending reports without a token."""
        query = f"SELECT count(*) FROM outbox WHERE {_ROW} AND token = x''"
        return int(self._execute(query, experiment, endpoint)[0][0])

    def find_tied(self, report: SealedReport) -> bytes:
        """Return the token that is tied to a pending report; empty: none."""
        rows = self._execute(f"SELECT token FROM outbox WHERE {_REPORT}", *report)
        return bytes(rows[0][0]) if rows else b""

    def list_strays(self, experiment: str, endpoint: str, marks: Collection[bytes]) -> list[bytes]:
        """Return the available signed tokens with none of these marks (`token_mark`)."""
        query = f"SELECT token FROM tokens WHERE {_ROW} AND token <> x'' AND expires > ?"
        rows = self._execute(query, experiment, endpoint, int(self._clock.now()))
        return [token for (token,) in rows if token_mark(token) not in marks]

    def discard_token(self, report: SealedReport, token: bytes, strays: Sequence[bytes]) -> None:
        """Delete a report's token, unless it has changed meanwhile, and the stray tokens."""
        with self._file.transaction() as database:
            statement = f"UPDATE outbox SET token = x'' WHERE {_REPORT} AND token = ?"
            database.execute(statement, (self._person, *report, token))
            database.executemany("DELETE FROM tokens WHERE token = ?", [(stray,) for stray in strays])

    def delete_tied(self, report: SealedReport) -> None:
        """Delete the token of a report, since no endpoint accepts it any more."""
        self._execute(f"UPDATE outbox SET token = x'' WHERE {_REPORT}", *report)

    def _execute(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Run a statement, whose first parameter is the participant, and return its rows."""
        with self._file.transaction() as database:
            return database.execute(statement, (self._person, *parameters)).fetchall()


def token_mark(token: bytes) -> bytes:
    """Return the challenge digest and key id of a token, by which an endpoint accepts it."""
    from privateer_core.wire.token import DIGEST_SIZE, INPUT_SIZE

    return token[INPUT_SIZE - 2 * DIGEST_SIZE : INPUT_SIZE]
