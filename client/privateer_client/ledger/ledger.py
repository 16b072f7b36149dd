"""The device's own account of its reports: paid before they are sent, on disk, no oftener than was promised."""

import os
import secrets
import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from typing_extensions import override

from privateer_client.ledger.account_protocol import COSTS, Account, Payment, SpendingLimits, changed_terms
from privateer_client.ledger.choice import KeptArm, KeptChoice, decode_arm, decode_choice, encode_arm, encode_choice
from privateer_client.ledger.encryption import Encryption, unreadable
from privateer_client.ledger.known_servers import KnownServers
from privateer_client.ledger.ledger_file import LedgerFile
from privateer_client.ledger.people import KeyedPeople
from privateer_client.ledger.token_store import TokenStore
from privateer_client.participation import SealedReport
from privateer_core.clock import Clock, SystemClock
from privateer_core.errors import InputError, Malformed, TermsRefused
from privateer_core.wire.publication import digest

_DAY: Final = 86_400
_PAYMENTS: Final = (
    "SELECT experiment, version, model, epsilon, delta, local_epsilon, day, reports, made, period, pinned FROM payments"
)
_PAY: Final = "INSERT OR REPLACE INTO payments VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_ROW: Final = "(person, experiment) = (?, ?)"


class _Draw(NamedTuple):
    """Which time, of so many that a person comes, was drawn; how often they came before, and in which period last."""

    times: int
    seconds: float
    drawn: int
    come: int = -1
    period: int = -1

    def at(self, period: int) -> "_Draw":
        """Return what is known when they come in a period."""
        return self._replace(come=self.come + 1, period=period) if period > self.period else self


class Ledger(Account):
    """Payments, choices until they are reported, and sealed reports until they are answered, in an SQLite file.

    It is safe between processes.

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
        What the device knows of servers: their keys, and the heads of their logs.

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
        where = Path(path) if path else default_path()
        self._encryption = Encryption(key, where.with_name(f"{where.name}.key"))
        self._file = LedgerFile(where, int(self._clock.now() // _DAY))
        self._servers = KnownServers(self._file)
        self._tokens = TokenStore(self._file, self._clock)
        self._people, self._person = KeyedPeople(self._file, self._encryption), b""
        self._read: tuple[str, bytes, KeptChoice] | None = None  # the choice that was read last, and where

    def person(self, key: str) -> "Ledger":
        """Return the ledger of one person of many, of whom the file has a keyed hash.

        Limits are each person's; what is known of servers, and publications, are everybody's. Raises `InputError` if
        the people in the file are known by another key.
        """
        return self._of(self._people.pseudonym(key))

    def people_due(self) -> list["Ledger"]:
        """Return the ledgers of those whose reports wait, or may be made by now; in random order."""
        return [self._of(person) for person in self._people.due(self._clock.now())]

    def _of(self, person: bytes) -> "Ledger":
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        other._person, other._tokens, other._read = person, TokenStore(self._file, self._clock, person), None
        return other

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
        """Where the file is."""
        return self._file.path

    @override
    def transaction(self) -> AbstractContextManager[object]:
        return self._file.transaction()

    @override
    def pay(self, payment: Payment, endpoint: str, seal: Callable[[], bytes]) -> bytes:
        """Record a payment durably, together with the sealed report that it is for, and erase the choice behind it.

        The arm alone stays.

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
        costs = tuple(getattr(payment, cost) for cost in COSTS)
        for cost, value in zip(COSTS, costs, strict=True):
            if not value >= 0:
                raise InputError("must be at least 0", field=cost, remedy="do not take part")
        with self._file.transaction() as database:
            before = _payment(database, self._person, payment.experiment)
            paid = replace(
                payment if before is None else before.followed_by(payment), day=int(self._clock.now() // _DAY)
            )
            others = [one for one in _payments(database, self._person) if one.experiment != paid.experiment]
            self._limits.check(paid, others)
            body = seal()
            database.execute(_PAY, (self._person, *vars(paid).values()))
            waits = "INSERT INTO outbox (person, experiment, endpoint, body) VALUES (?, ?, ?, ?)"
            database.execute(waits, (self._person, payment.experiment, endpoint, body))
            _erase(database, self._person, payment.experiment)
        return body

    @override
    def payment(self, experiment: str) -> Payment | None:
        with self._file.reading() as database:
            return _payment(database, self._person, experiment)

    @override
    def draw(self, experiment: str, times: int, seconds: float, period: int) -> bool:
        """Tell whether this time is the one that was drawn when the person first came; it is sent to nobody.

        Raises
        ------
        TermsRefused
            If the experiment had another number of times or another period before.
        """
        with self._file.transaction() as database:
            row = f"SELECT times, seconds, drawn, come, period FROM draws WHERE {_ROW}"
            known = database.execute(row, (self._person, experiment)).fetchone()
            before = _Draw(*known) if known else _Draw(times, seconds, secrets.randbelow(times))
            same = (before.times, before.seconds) == (times, seconds)
            drawn = before.at(period)
            if same and drawn != before:
                values = (self._person, experiment, *drawn)
                database.execute("INSERT OR REPLACE INTO draws VALUES (?, ?, ?, ?, ?, ?, ?)", values)
        if not same:
            raise changed_terms()
        return drawn.come == drawn.drawn

    @override
    def number(self, experiment: str, seed: int, people: int) -> int:
        """Return the device's number among the people of an experiment; drawn once, and sent to nobody.

        Raises
        ------
        TermsRefused
            If the experiment had another seed or number of people before.
        """
        # Whoever knows numbers and may draw again can single people out.
        with self._file.transaction() as database:
            row = f"SELECT seed, people, number FROM numbers WHERE {_ROW}"
            known = database.execute(row, (self._person, experiment)).fetchone()
            if known is None:
                known = (seed, people, secrets.randbelow(people))
                database.execute("INSERT INTO numbers VALUES (?, ?, ?, ?, ?)", (self._person, experiment, *known))
        if known[:2] != (seed, people):
            raise TermsRefused(
                "the experiment's draw of people is not the one of before", field="seed", remedy="do not take part"
            )
        return int(known[2])

    def payments(self) -> list[Payment]:
        """Return everything that was paid for."""
        with self._file.reading() as database:
            return _payments(database, self._person)

    @override
    def waiting(self) -> list[SealedReport]:
        with self._file.reading() as database:
            waits = "SELECT experiment, endpoint, body FROM outbox WHERE person = ? ORDER BY experiment"
            rows = database.execute(waits, (self._person,))
            return [SealedReport(*row) for row in rows]

    @override
    def answered(self, report: SealedReport) -> None:
        with self._file.transaction("NORMAL") as database:  # what comes back is sent again, and is known
            this = "(person, experiment, endpoint, body) = (?, ?, ?, ?)"
            database.execute(f"DELETE FROM outbox WHERE {this}", (self._person, *report))

    def discard(self, experiment: str) -> None:
        """Overwrite the sealed reports of an experiment, since they are withdrawn; their payment stays."""
        with self._file.transaction() as database:
            database.execute(f"DELETE FROM outbox WHERE {_ROW}", (self._person, experiment))

    @override
    def choice(self, experiment: str) -> KeptChoice | None:
        """Return the choice that is kept for an experiment.

        Raises
        ------
        InputError
            If it is damaged, or was encrypted with another key.
        """
        with self._file.reading() as database:
            return self._choice(database, experiment)

    @override
    def choices(self) -> list[str]:
        with self._file.reading() as database:
            names = "SELECT experiment FROM choices WHERE person = ? ORDER BY experiment"
            return [name for (name,) in database.execute(names, (self._person,))]

    @override
    def change(self, experiment: str, change: Callable[[KeptChoice | None], KeptChoice | None]) -> KeptChoice | None:
        """Replace the choice that is kept for an experiment by what ``change`` makes of it, and return that.

        Once no report can be made of it none is kept, and this returns None.

        Raises
        ------
        InputError
            If the one that is kept cannot be read, or the new one cannot be kept; nothing changes then.
        """
        with self._file.transaction() as database:
            before = self._choice(database, experiment)
            after, paid = change(before), _payment(database, self._person, experiment)
            if after is not None and paid is not None and not paid.allows(after.period):
                after = None
            if after is None:
                _erase(database, self._person, experiment)
            elif after is not before:
                body = self._encryption.lock(encode_choice(after), self._label(experiment))
                values = (self._person, experiment, after.due, body)
                database.execute("INSERT OR REPLACE INTO choices VALUES (?, ?, ?, ?)", values)
        return after

    @override
    def change_arm(self, experiment: str, change: Callable[[KeptArm | None], KeptArm | None]) -> KeptArm | None:
        with self._file.transaction() as database:
            before = self._arm(database, experiment)
            after = change(before)
            if after is not None and after is not before:
                body = self._encryption.lock(encode_arm(after), f"{self._label(experiment)}#arm")
                database.execute("INSERT OR REPLACE INTO arms VALUES (?, ?, ?)", (self._person, experiment, body))
        return after

    @override
    def forget(self, experiment: str) -> None:
        with self._file.transaction() as database:
            _erase(database, self._person, experiment)
            database.execute(f"DELETE FROM arms WHERE {_ROW}", (self._person, experiment))

    def forget_person(self) -> None:
        """Overwrite everything that tells of the person: choices, arms, tokens and reports that wait.

        What was paid for, and what was drawn, stay: without them the person could be asked for another report.
        """
        self._people.erase(self._person)

    def _label(self, experiment: str) -> str:
        """Return what binds something encrypted to its place."""
        return f"{self._person.hex()}@{experiment}" if self._person else experiment

    def _arm(self, database: sqlite3.Connection, experiment: str) -> KeptArm | None:
        row = database.execute(f"SELECT body FROM arms WHERE {_ROW}", (self._person, experiment)).fetchone()
        with suppress(InputError, Malformed):  # without it a person gets an arm anew, and no report depends on it
            return (
                None if row is None else decode_arm(self._encryption.unlock(row[0], f"{self._label(experiment)}#arm"))
            )
        return None

    def _choice(self, database: sqlite3.Connection, experiment: str) -> KeptChoice | None:
        row = database.execute(f"SELECT body FROM choices WHERE {_ROW}", (self._person, experiment)).fetchone()
        if row is None:
            self._read = None
            return None
        label = self._label(experiment)
        if self._read is None or self._read[:2] != (label, row[0]):
            try:
                self._read = label, row[0], decode_choice(self._encryption.unlock(row[0], label))
            except Malformed:
                raise unreadable(experiment) from None
        return self._read[2]

    @override
    def publication(self, experiment: str) -> bytes | None:
        with self._file.reading() as database:
            row = "SELECT digest, body FROM publications WHERE experiment = ?"
            known = database.execute(row, (experiment,)).fetchone()
        return known[1] if known is not None and digest(known[1]) == known[0] else None

    @override
    def remember(self, experiment: str, publication: bytes) -> None:
        name = digest(publication)
        with self._file.transaction() as database:
            same = "SELECT 1 FROM publications WHERE (experiment, digest, body, witnessed) = (?, ?, ?, 1)"
            if database.execute(same, (experiment, name, publication)).fetchone() is None:
                database.execute(
                    "INSERT OR REPLACE INTO publications VALUES (?, ?, ?, 1)", (experiment, name, publication)
                )

    @override
    def has_witnessed(self, experiment: str, name: bytes) -> bool:
        with self._file.reading() as database:
            known = "SELECT 1 FROM publications WHERE (experiment, digest, witnessed) = (?, ?, 1)"
            return database.execute(known, (experiment, name)).fetchone() is not None


def _erase(database: sqlite3.Connection, person: bytes, experiment: str) -> None:
    database.execute(f"DELETE FROM choices WHERE {_ROW}", (person, experiment))


def _payment(database: sqlite3.Connection, person: bytes, experiment: str) -> Payment | None:
    row = database.execute(f"{_PAYMENTS} WHERE (person, experiment) = (?, ?)", (person, experiment)).fetchone()
    return None if row is None else Payment(*row)


def _payments(database: sqlite3.Connection, person: bytes) -> list[Payment]:
    rows = database.execute(f"{_PAYMENTS} WHERE person = ? ORDER BY experiment", (person,))
    return [Payment(*row) for row in rows]


def default_path() -> Path:
    """Return where the ledger is if the application does not say: ``PRIVATEER_LEDGER``, or in the user's state."""
    named = os.environ.get("PRIVATEER_LEDGER")
    if named:
        return Path(named)
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "privateer" / "ledger.db"
