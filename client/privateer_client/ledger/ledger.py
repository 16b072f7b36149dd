"""The ledger of a device, which records payments durably before reports are sent, and enforces limits."""

import os
import secrets
import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from typing_extensions import override

from privateer_client.ledger.account_protocol import COSTS, Account, Payment, changed_terms
from privateer_client.ledger.choice import StoredArm, encode_choice
from privateer_client.ledger.encryption import Encryption, unreadable_error
from privateer_client.ledger.known_servers import KnownServers
from privateer_client.ledger.ledger_file import LedgerFile
from privateer_client.ledger.people import KeyedPeople
from privateer_client.ledger.spending_limits import SpendingLimits
from privateer_client.ledger.token_store import TokenStore
from privateer_client.participation import SealedReport, StoredChoice
from privateer_core.clock import Clock, SystemClock
from privateer_core.codec import decode, encode
from privateer_core.errors import InputError, Malformed, TermsRefused
from privateer_core.wire.publication import digest

_DAY_SECONDS: Final = 86_400
_PAYMENT_COLUMNS: Final = ", ".join(field.name for field in fields(Payment))
_INSERT_PAYMENT: Final = "INSERT OR REPLACE INTO payments VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_ROW_CONDITION: Final = "(person, experiment) = (?, ?)"
_REPORT_CONDITION: Final = "(person, experiment, endpoint, body) = (?, ?, ?, ?)"


class _Draw(NamedTuple):
    """The draw of the visit that is reported, and the number and period of the visits so far."""

    times: int
    seconds: float
    drawn_time: int
    n_earlier: int = -1
    period: int = -1

    def at_period(self, period: int) -> "_Draw":
        """Return the draw with a visit in a period counted."""
        return self._replace(n_earlier=self.n_earlier + 1, period=period) if period > self.period else self


class Ledger(Account):
    """Payments, unreported choices and pending reports in an SQLite file, which processes can share safely.

    Parameters
    ----------
    path
        The file, made if missing. Default: ``PRIVATEER_LEDGER``, else ``privateer/ledger.db`` in the user's state.
    total_epsilon, total_delta, total_local_epsilon
        The most that all experiments together may cost (basic composition); None: no limit. A report without a bound
        on one of them, such as a record that a curator sees, exceeds every limit on it.
    per_server_epsilon, per_server_delta, per_server_local_epsilon
        The most that the experiments of one server may cost; None: half of the total. A server is a scheme, a host and
        a port.
    window_days
        Days that the limits look back, today included; None: for ever.
    clock
        Where the day comes from.
    key
        32 bytes that encrypt the choices. Default: those in a file beside the ledger, made when it is first needed.

    Attributes
    ----------
    servers
        The known servers: their keys, and the heads of their logs.

    Raises
    ------
    InputError
        If the file cannot be used, is damaged or not a ledger, a limit is out of range, or the key has another length.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        total_epsilon: float | None = None,
        window_days: int | None = None,
        clock: Clock | None = None,
        *,
        total_delta: float | None = None,
        total_local_epsilon: float | None = None,
        per_server_epsilon: float | None = None,
        per_server_delta: float | None = None,
        per_server_local_epsilon: float | None = None,
        key: bytes | None = None,
    ) -> None:
        totals = (total_epsilon, total_delta, total_local_epsilon)
        shares = (per_server_epsilon, per_server_delta, per_server_local_epsilon)
        self._limits = SpendingLimits(totals, shares, window_days)
        self._clock = clock or SystemClock()
        file_path = Path(path) if path else default_path()
        self._encryption = Encryption(key, file_path.with_name(f"{file_path.name}.key"))
        self._file = LedgerFile(file_path)
        self._servers = KnownServers(self._file)
        self._tokens = TokenStore(self._file, self._clock)
        self._people, self._person = KeyedPeople(self._file, self._encryption), b""
        self._last_read: tuple[str, bytes, StoredChoice] | None = None  # the choice that was read last, and its row

    def person(self, key: str) -> "Ledger":
        """Return the ledger of a participant, of whom the file has a keyed hash.

        Each participant has their own limits; known servers and publications are shared. Raises `InputError` if the
        participants in the file are known by another key.
        """
        return self._for_person(self._people.pseudonym(key))

    def ledgers_due(self) -> list["Ledger"]:
        """Return the ledgers of the participants with pending or due reports, in random order."""
        return [self._for_person(person) for person in self._people.list_due(self._clock.now())]

    @property
    def has_due(self) -> bool:
        """Whether a report of the participant is pending or due."""
        return self._people.is_due(self._person, self._clock.now())

    def _for_person(self, person: bytes) -> "Ledger":
        """Return a ledger of another participant in the same file."""
        ledger = object.__new__(type(self))
        vars(ledger).update(vars(self))
        ledger._person, ledger._tokens, ledger._last_read = person, TokenStore(self._file, self._clock, person), None
        return ledger

    @property
    @override
    def servers(self) -> KnownServers:
        return self._servers

    @property
    @override
    def tokens(self) -> TokenStore:
        return self._tokens

    @property
    def path(self) -> Path:
        """The path of the file."""
        return self._file.path

    @override
    def transaction(self) -> AbstractContextManager[object]:
        return self._file.transaction()

    @override
    def pay(self, payment: Payment, endpoint: str, seal: Callable[[], bytes]) -> bytes:
        """Record a payment durably, together with its sealed report, and erase the choice. The arm stays.

        Parameters
        ----------
        payment
            What the experiment's reports cost; the ledger writes down today's day, and counts them.
        endpoint
            URL that the report is made for.
        seal
            Makes the bytes to send; called once, and only if the report may be paid for.

        Returns
        -------
        The bytes that ``seal`` made. They wait in the ledger until they are discarded.

        Raises
        ------
        InputError
            If a cost is negative or NaN, or the file cannot be written; nothing is paid then.
        AlreadyReported
            If no report is left, or there is one of this period or a later one, or to this round or a later one.
        TermsRefused
            If the server has changed what all reports share.
        BudgetExceeded
            If a sum would exceed its limit; states spent, asked and limit.
        """
        for cost in COSTS:
            if not getattr(payment, cost) >= 0:
                raise InputError("must be at least 0", field=cost, remedy="do not take part")
        with self._file.transaction() as database:
            payments = {old_payment.experiment: old_payment for old_payment in self._read_payments(database)}
            old_payment = payments.pop(payment.experiment, None)
            new_payment = payment if old_payment is None else old_payment.followed_by(payment)
            new_payment = replace(new_payment, day=int(self._clock.now() // _DAY_SECONDS))
            self._limits.check(new_payment, list(payments.values()))
            body = seal()
            database.execute(_INSERT_PAYMENT, (self._person, *vars(new_payment).values()))
            statement = "INSERT INTO outbox (person, experiment, endpoint, body) VALUES (?, ?, ?, ?)"
            database.execute(statement, (self._person, payment.experiment, endpoint, body))
            _erase_choice(database, self._person, payment.experiment)
        return body

    @override
    def payment(self, experiment: str) -> Payment | None:
        row = self._fetch_row(_PAYMENT_COLUMNS, "payments", experiment)
        return None if row is None else Payment(*row)

    @override
    def count_visit(self, experiment: str, times: int, seconds: float, period: int) -> bool:
        """Count a visit; return whether it is the one drawn at the first visit; `TermsRefused` if the terms changed.

        Times and period must be those of the first visit. The drawn one is never sent.
        """
        with self._file.transaction() as database:
            row = self._fetch_row("times, seconds, drawn, come, period", "draws", experiment)
            old_draw = _Draw(*row) if row else _Draw(times, seconds, secrets.randbelow(times))
            is_unchanged = (old_draw.times, old_draw.seconds) == (times, seconds)
            new_draw = old_draw.at_period(period)
            if is_unchanged and new_draw != old_draw:
                values = (self._person, experiment, *new_draw)
                database.execute("INSERT OR REPLACE INTO draws VALUES (?, ?, ?, ?, ?, ?, ?)", values)
        if not is_unchanged:
            raise changed_terms()
        return new_draw.n_earlier == new_draw.drawn_time

    @override
    def draw_number(self, experiment: str, seed: int, n_participants: int) -> int:
        """Return the device's number among the participants; `TermsRefused` if their seed or number changed.

        It is drawn at the first call, stored and never sent.
        """
        # A server that knows numbers and may draw again can single participants out.
        with self._file.transaction() as database:
            row = self._fetch_row("seed, people, number", "numbers", experiment)
            if row is None:
                row = (seed, n_participants, secrets.randbelow(n_participants))
                database.execute("INSERT INTO numbers VALUES (?, ?, ?, ?, ?)", (self._person, experiment, *row))
        if row[:2] != (seed, n_participants):
            detail = "the experiment's draw of people is not the one of before"
            raise TermsRefused(detail, field="seed", remedy="do not take part")
        return int(row[2])

    def payments(self) -> list[Payment]:
        """Return all payments."""
        with self._file.reading() as database:
            return self._read_payments(database)

    def _read_payments(self, database: sqlite3.Connection) -> list[Payment]:
        query = f"SELECT {_PAYMENT_COLUMNS} FROM payments WHERE person = ? ORDER BY experiment"
        return [Payment(*row) for row in database.execute(query, (self._person,))]

    @override
    def pending_reports(self) -> list[SealedReport]:
        with self._file.reading() as database:
            query = "SELECT experiment, endpoint, body FROM outbox WHERE person = ? ORDER BY experiment"
            return [SealedReport(*row) for row in database.execute(query, (self._person,))]

    @override
    def tie_token(self, report: SealedReport) -> bytes | None:
        """Return the token of a pending report, and tie an available token to it if it has none; None: none is left.

        The choice of the token reveals nothing, since all tokens are alike.
        """
        with self._file.transaction() as database:
            query = f"SELECT token FROM outbox WHERE {_REPORT_CONDITION}"
            tied = database.execute(query, (self._person, *report)).fetchone()
            if tied is None or tied[0]:
                return tied and bytes(tied[0])
            condition = "(person, experiment, endpoint) = (?, ?, ?) AND token <> x'' AND expires > ?"
            location = (self._person, report.experiment, report.endpoint, int(self._clock.now()))
            row = database.execute(f"SELECT input, token FROM tokens WHERE {condition} LIMIT 1", location).fetchone()
            if row is None:
                return None
            database.execute("DELETE FROM tokens WHERE input = ?", (row[0],))
            statement = f"UPDATE outbox SET token = ? WHERE {_REPORT_CONDITION}"
            database.execute(statement, (row[1], self._person, *report))
            return bytes(row[1])

    @override
    def erase_report(self, report: SealedReport) -> None:
        with self._file.transaction("NORMAL") as database:  # after a power failure it is sent again, as a duplicate
            database.execute(f"DELETE FROM outbox WHERE {_REPORT_CONDITION}", (self._person, *report))

    def discard(self, experiment: str) -> None:
        """Overwrite the pending sealed reports of an experiment, so that they are not sent; their payment stays."""
        with self._file.transaction() as database:
            database.execute(f"DELETE FROM outbox WHERE {_ROW_CONDITION}", (self._person, experiment))

    @override
    def choice(self, experiment: str) -> StoredChoice | None:
        """Return the stored choice, or None; `InputError` if it is damaged, or was encrypted with another key."""
        row, label = self._fetch_row("body", "choices", experiment), self._label(experiment)
        if row is None:
            self._last_read = None
            return None
        last_read = self._last_read  # other threads replace it
        if last_read is None or last_read[:2] != (label, row[0]):
            try:
                last_read = label, row[0], decode(self._encryption.decrypt(row[0], label), StoredChoice)
            except Malformed:
                raise unreadable_error(experiment) from None
            self._last_read = last_read
        return last_read[2]

    @override
    def experiments_with_choice(self) -> list[str]:
        with self._file.reading() as database:
            query = "SELECT experiment FROM choices WHERE person = ? ORDER BY experiment"
            return [name for (name,) in database.execute(query, (self._person,))]

    @override
    def change_choice(
        self, experiment: str, change: Callable[[StoredChoice | None], StoredChoice | None]
    ) -> StoredChoice | None:
        """Replace the stored choice by the result of ``change``; erase it and return None if it is unreportable.

        Raises
        ------
        InputError
            If the stored choice cannot be read, or the new choice cannot be stored; nothing changes then.
        """
        with self._file.transaction() as database:
            old_choice = self.choice(experiment)
            new_choice = change(old_choice)
            paid = self._fetch_row(_PAYMENT_COLUMNS, "payments", experiment) if new_choice else None
            if new_choice is None or (paid is not None and not Payment(*paid).allows(new_choice.period)):
                new_choice = None
                _erase_choice(database, self._person, experiment)
            elif new_choice is not old_choice:
                label = self._label(experiment)
                body = self._encryption.encrypt(encode_choice(new_choice), label)
                values = (self._person, experiment, new_choice.due, body)
                database.execute("INSERT OR REPLACE INTO choices VALUES (?, ?, ?, ?)", values)
                self._last_read = label, body, new_choice
        return new_choice

    @override
    def change_arm(self, experiment: str, change: Callable[[StoredArm | None], StoredArm | None]) -> StoredArm | None:
        with self._file.transaction() as database:
            old_arm = self._load_arm(experiment)
            new_arm = change(old_arm)
            if new_arm is not None and new_arm is not old_arm:
                body = self._encryption.encrypt(encode(new_arm), f"{self._label(experiment)}#arm")
                database.execute("INSERT OR REPLACE INTO arms VALUES (?, ?, ?)", (self._person, experiment, body))
        return new_arm

    @override
    def forget(self, experiment: str) -> None:
        with self._file.transaction() as database:
            _erase_choice(database, self._person, experiment)
            database.execute(f"DELETE FROM arms WHERE {_ROW_CONDITION}", (self._person, experiment))

    def forget_person(self) -> None:
        """Overwrite the participant's choices, arms, tokens and pending reports.

        Payments and draws stay, since without them the participant could be asked for another report.
        """
        self._people.erase(self._person)

    def _label(self, experiment: str) -> str:
        """Return the label that binds a ciphertext to participant and experiment."""
        return f"{self._person.hex()}@{experiment}" if self._person else experiment

    def _load_arm(self, experiment: str) -> StoredArm | None:
        """Return the stored arm of an experiment; None without one, or if it cannot be read."""
        row = self._fetch_row("body", "arms", experiment)
        with suppress(InputError, Malformed):  # without it a person gets an arm anew, and no report depends on it
            if row is not None:
                return decode(self._encryption.decrypt(row[0], f"{self._label(experiment)}#arm"), StoredArm)
        return None

    def _fetch_row(self, columns: str, table: str, experiment: str) -> Any:
        """Return the participant's row of an experiment in a table, or None."""
        query = f"SELECT {columns} FROM {table} WHERE {_ROW_CONDITION}"
        return self._file.fetch_row(query, (self._person, experiment))

    @override
    def publication(self, experiment: str) -> bytes | None:
        with self._file.reading() as database:
            query = "SELECT digest, body FROM publications WHERE experiment = ?"
            row = database.execute(query, (experiment,)).fetchone()
        return row[1] if row is not None and digest(row[1]) == row[0] else None

    @override
    def store_publication(self, experiment: str, publication: bytes) -> None:
        values = (experiment, digest(publication), publication)
        with self._file.transaction() as database:
            query = "SELECT 1 FROM publications WHERE (experiment, digest, body, witnessed) = (?, ?, ?, 1)"
            if database.execute(query, values).fetchone() is None:
                database.execute("INSERT OR REPLACE INTO publications VALUES (?, ?, ?, 1)", values)

    @override
    def has_witnessed(self, experiment: str, publication_digest: bytes) -> bool:
        with self._file.reading() as database:
            query = "SELECT 1 FROM publications WHERE (experiment, digest, witnessed) = (?, ?, 1)"
            return database.execute(query, (experiment, publication_digest)).fetchone() is not None


def _erase_choice(database: sqlite3.Connection, person: bytes, experiment: str) -> None:
    database.execute(f"DELETE FROM choices WHERE {_ROW_CONDITION}", (person, experiment))


def default_path() -> Path:
    """Return the default path of the ledger: ``PRIVATEER_LEDGER``, or a path in the user's state directory."""
    path = os.environ.get("PRIVATEER_LEDGER")
    if path:
        return Path(path)
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "privateer" / "ledger.db"
