"""The upload tokens in a device's ledger: drawn, then signed, then tied to one report, and gone with it."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from privateer_client.ledger.ledger_file import LedgerFile
from privateer_client.participation import SealedReport
from privateer_core.clock import Clock

if TYPE_CHECKING:
    from privateer_core.wire.token import PendingToken

_ROW = "(person, experiment, endpoint) = (?, ?, ?)"
_REPORT = "(person, experiment, endpoint, body) = (?, ?, ?, ?)"
_DIGEST = "substr(input, 35, 32)"
"""Where the input of a token has the digest of its challenge."""


class TokenStore:
    """Tokens of type 0x0002, each for one endpoint of one experiment. Every method is one durable transaction.

    A token that is drawn stays until the issuer has answered, so that a lost answer can be asked for again: the issuer
    counts the same request once. A token that was tied to a report stays with it as long as the endpoint may take it,
    so that the same report comes with the same token.
    """

    def __init__(self, file: LedgerFile, clock: Clock, person: bytes = b"") -> None:
        self._file, self._clock, self._person = file, clock, person

    def begin(self, experiment: str, endpoint: str, drawn: "Sequence[PendingToken]", expires: int) -> None:
        """Keep tokens that are about to be asked for, and when their key expires."""
        where = (experiment, endpoint)
        rows = [(*where, one.input, one.request, one.inverse, b"", expires, self._person) for one in drawn]
        with self._file.transaction() as database:
            database.executemany("INSERT INTO tokens VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def pending(self, experiment: str, endpoint: str) -> "list[PendingToken]":
        """Return the tokens that the issuer has not signed."""
        from privateer_core.wire.token import PendingToken

        with self._file.transaction() as database:
            drawn = f"SELECT input, request, inverse FROM tokens WHERE {_ROW} AND token = x''"
            return [PendingToken(*row) for row in database.execute(drawn, (self._person, experiment, endpoint))]

    def finish(self, pending: "PendingToken", token: bytes) -> None:
        """Keep the signed token, and overwrite what could tie it to the request for it."""
        with self._file.transaction() as database:
            signed = "UPDATE tokens SET token = ?, request = x'', inverse = x'' WHERE input = ?"
            database.execute(signed, (token, pending.input))

    def drop(self, pending: "PendingToken") -> None:
        """Overwrite a token that nobody will sign."""
        with self._file.transaction() as database:
            database.execute("DELETE FROM tokens WHERE input = ?", (pending.input,))

    def keep_only(self, experiment: str, endpoint: str, digest: bytes) -> None:
        """Overwrite tokens left that are for another challenge, and those that have expired."""
        where = (self._person, experiment, endpoint, digest)
        with self._file.transaction() as database:
            others = f"{_ROW} AND {_DIGEST} <> ?"
            database.execute(f"DELETE FROM tokens WHERE {others}", where)
            database.execute("DELETE FROM tokens WHERE expires <= ?", (int(self._clock.now()),))

    def count(self, experiment: str, endpoint: str) -> int:
        """Return how many signed tokens are left."""
        with self._file.transaction() as database:
            signed = f"SELECT count(*) FROM tokens WHERE {_ROW} AND token <> x'' AND expires > ?"
            return int(
                database.execute(signed, (self._person, experiment, endpoint, int(self._clock.now()))).fetchone()[0]
            )

    def bare(self, experiment: str, endpoint: str) -> int:
        """Return how many reports wait without a token."""
        with self._file.transaction() as database:
            waiting = f"SELECT count(*) FROM outbox WHERE {_ROW} AND token = x''"
            return int(database.execute(waiting, (self._person, experiment, endpoint)).fetchone()[0])

    def tie(self, report: SealedReport) -> bytes | None:
        """Return the token that a waiting report comes with: the one of before, or one of those left; None: none is.

        Which one that is tells nothing, since all are alike.
        """
        where = (self._person, report.experiment, report.endpoint)
        with self._file.transaction() as database:
            tied = database.execute(f"SELECT token FROM outbox WHERE {_REPORT}", (self._person, *report)).fetchone()
            if tied is None or tied[0]:
                return tied[0] if tied else None
            left = f"SELECT input, token FROM tokens WHERE {_ROW} AND token <> x'' AND expires > ? LIMIT 1"
            row = database.execute(left, (*where, int(self._clock.now()))).fetchone()
            if row is None:
                return None
            database.execute("DELETE FROM tokens WHERE input = ?", (row[0],))
            database.execute(f"UPDATE outbox SET token = ? WHERE {_REPORT}", (row[1], self._person, *report))
            return bytes(row[1])

    def tied(self, report: SealedReport) -> bytes:
        """Return the token that a waiting report comes with; empty: none."""
        with self._file.transaction() as database:
            row = database.execute(f"SELECT token FROM outbox WHERE {_REPORT}", (self._person, *report)).fetchone()
        return bytes(row[0]) if row else b""

    def strays(self, experiment: str, endpoint: str, marks: Collection[bytes]) -> list[bytes]:
        """Return those of the signed tokens left that have none of these marks (`mark_of`)."""
        with self._file.transaction() as database:
            left = f"SELECT token FROM tokens WHERE {_ROW} AND token <> x'' AND expires > ?"
            found = database.execute(left, (self._person, experiment, endpoint, int(self._clock.now()))).fetchall()
        return [token for (token,) in found if mark_of(token) not in marks]

    def part(self, report: SealedReport, token: bytes, strays: Sequence[bytes]) -> None:
        """Overwrite the token of a report, unless it has another one by now, and tokens left that are no better."""
        with self._file.transaction() as database:
            parted = f"UPDATE outbox SET token = x'' WHERE {_REPORT} AND token = ?"
            database.execute(parted, (self._person, *report, token))
            database.executemany("DELETE FROM tokens WHERE token = ?", [(stray,) for stray in strays])

    def untie(self, report: SealedReport) -> None:
        """Overwrite the token of a report, since no endpoint takes it any more."""
        with self._file.transaction() as database:
            database.execute(f"UPDATE outbox SET token = x'' WHERE {_REPORT}", (self._person, *report))


def mark_of(token: bytes) -> bytes:
    """Return what an endpoint knows a token by: the digest of its challenge, and the id of its key."""
    from privateer_core.wire.token import DIGEST_SIZE, INPUT_SIZE

    return token[INPUT_SIZE - 2 * DIGEST_SIZE : INPUT_SIZE]
