"""The device's own account of its reports: paid before they are sent, on disk, no oftener than was promised."""

import os
import secrets
import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import astuple, replace
from pathlib import Path
from typing import Final, NamedTuple

from typing_extensions import override

from privateer_client.ledger.account_protocol import COSTS, Account, Payment, SpendingLimits
from privateer_client.ledger.choice import KeptArm, KeptChoice, decode_arm, decode_choice, encode_arm, encode_choice
from privateer_client.ledger.encryption import Encryption, unreadable
from privateer_client.ledger.known_servers import KnownServers
from privateer_client.ledger.ledger_file import LedgerFile
from privateer_client.ledger.token_store import TokenStore
from privateer_client.participation import SealedReport
from privateer_core.clock import Clock, SystemClock
from privateer_core.errors import AlreadyReported, InputError, Malformed, TermsRefused
from privateer_core.wire.publication import digest

_DAY: Final = 86_400
_PAYMENTS: Final = (
    "SELECT experiment, version, model, epsilon, delta, local_epsilon, day, reports, made, period, pinned"
)
_PAY: Final = "INSERT OR REPLACE INTO payments VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


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
        self._file = LedgerFile(where, self._today)
        self._servers = KnownServers(self._file)
        self._tokens = TokenStore(self._file, self._clock)

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
            before = _payment(database, payment.experiment)
            paid = replace(payment if before is None else _next(before, payment), day=self._today)
            self._limits.check(paid, [one for one in _payments(database) if one.experiment != paid.experiment])
            body = seal()
            database.execute(_PAY, astuple(paid))
            database.execute("INSERT INTO outbox VALUES (?, ?, ?, x'')", (payment.experiment, endpoint, body))
            _erase(database, payment.experiment)
        return body

    @property
    def _today(self) -> int:
        return int(self._clock.now() // _DAY)

    @override
    def payment(self, experiment: str) -> Payment | None:
        with self._file.transaction() as database:
            return _payment(database, experiment)

    @override
    def draw(self, experiment: str, times: int, seconds: float, period: int) -> bool:
        """Tell whether this time, of so many that the person comes, is the one that was drawn for the report.

        It is drawn when they first come, and sent to nobody. They come once a period at most.

        Raises
        ------
        TermsRefused
            If the experiment had another number of times or another period before.
        """
        with self._file.transaction() as database:
            row = "SELECT times, seconds, drawn, come, period FROM draws WHERE experiment = ?"
            known = database.execute(row, (experiment,)).fetchone()
            before = _Draw(*known) if known else _Draw(times, seconds, secrets.randbelow(times))
            same = (before.times, before.seconds) == (times, seconds)
            drawn = before.at(period)
            if same and drawn != before:
                database.execute("INSERT OR REPLACE INTO draws VALUES (?, ?, ?, ?, ?, ?)", (experiment, *drawn))
        if not same:
            raise _changed()
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
            row = "SELECT seed, people, number FROM numbers WHERE experiment = ?"
            known = database.execute(row, (experiment,)).fetchone()
            if known is None:
                known = (seed, people, secrets.randbelow(people))
                database.execute("INSERT INTO numbers VALUES (?, ?, ?, ?)", (experiment, *known))
        if known[:2] != (seed, people):
            raise TermsRefused(
                "the experiment's draw of people is not the one of before", field="seed", remedy="do not take part"
            )
        return int(known[2])

    def payments(self) -> list[Payment]:
        """Return everything that was paid for."""
        with self._file.transaction() as database:
            return _payments(database)

    @override
    def waiting(self) -> list[SealedReport]:
        with self._file.transaction() as database:
            rows = database.execute("SELECT experiment, endpoint, body FROM outbox ORDER BY experiment")
            return [SealedReport(*row) for row in rows]

    @override
    def answered(self, report: SealedReport) -> None:
        with self._file.transaction() as database:
            database.execute("DELETE FROM outbox WHERE (experiment, endpoint, body) = (?, ?, ?)", report)

    def discard(self, experiment: str) -> None:
        """Overwrite the sealed reports of an experiment, since they are withdrawn; their payment stays."""
        with self._file.transaction() as database:
            database.execute("DELETE FROM outbox WHERE experiment = ?", (experiment,))

    @override
    def choice(self, experiment: str) -> KeptChoice | None:
        """Return the choice that is kept for an experiment.

        Raises
        ------
        InputError
            If it is damaged, or was encrypted with another key.
        """
        with self._file.transaction() as database:
            return self._choice(database, experiment)

    @override
    def choices(self) -> list[str]:
        with self._file.transaction() as database:
            return [name for (name,) in database.execute("SELECT experiment FROM choices ORDER BY experiment")]

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
            after, paid = change(before), _payment(database, experiment)
            if after is not None and paid is not None and not paid.allows(after.period):
                after = None
            if after is None:
                _erase(database, experiment)
            elif after is not before:
                body = self._encryption.lock(encode_choice(after), experiment)
                database.execute("INSERT OR REPLACE INTO choices VALUES (?, ?)", (experiment, body))
        return after

    @override
    def change_arm(self, experiment: str, change: Callable[[KeptArm | None], KeptArm | None]) -> KeptArm | None:
        with self._file.transaction() as database:
            before = self._arm(database, experiment)
            after = change(before)
            if after is not None and after is not before:
                body = self._encryption.lock(encode_arm(after), f"{experiment}#arm")
                database.execute("INSERT OR REPLACE INTO arms VALUES (?, ?)", (experiment, body))
        return after

    @override
    def forget(self, experiment: str) -> None:
        with self._file.transaction() as database:
            _erase(database, experiment)
            database.execute("DELETE FROM arms WHERE experiment = ?", (experiment,))

    def _arm(self, database: sqlite3.Connection, experiment: str) -> KeptArm | None:
        row = database.execute("SELECT body FROM arms WHERE experiment = ?", (experiment,)).fetchone()
        with suppress(InputError, Malformed):  # without it a person gets an arm anew, and no report depends on it
            return None if row is None else decode_arm(self._encryption.unlock(row[0], f"{experiment}#arm"))
        return None

    def _choice(self, database: sqlite3.Connection, experiment: str) -> KeptChoice | None:
        row = database.execute("SELECT body FROM choices WHERE experiment = ?", (experiment,)).fetchone()
        if row is None:
            return None
        try:
            return decode_choice(self._encryption.unlock(row[0], experiment))
        except Malformed:
            raise unreadable(experiment) from None

    @override
    def publication(self, experiment: str) -> bytes | None:
        with self._file.transaction() as database:
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
        with self._file.transaction() as database:
            known = "SELECT 1 FROM publications WHERE (experiment, digest, witnessed) = (?, ?, 1)"
            return database.execute(known, (experiment, name)).fetchone() is not None


def _erase(database: sqlite3.Connection, experiment: str) -> None:
    database.execute("DELETE FROM choices WHERE experiment = ?", (experiment,))


def _payment(database: sqlite3.Connection, experiment: str) -> Payment | None:
    row = database.execute(f"{_PAYMENTS} FROM payments WHERE experiment = ?", (experiment,)).fetchone()
    return None if row is None else Payment(*row)


def _next(before: Payment, asked: Payment) -> Payment:
    """Return the payment that another report makes of the one before: the promise is paid for as a whole."""
    if before.made >= before.reports:
        raise AlreadyReported("this device has reported to the experiment", remedy="nothing to do")
    if asked.pinned != before.pinned:
        raise _changed()
    if not before.allows(asked.period):
        raise AlreadyReported("this device has reported in this period", remedy="come back in the next one")
    if asked.version <= before.version:
        raise AlreadyReported("this device has reported to this round", remedy="report to the next one")
    local_epsilon = max(before.local_epsilon, asked.local_epsilon)
    return replace(asked, made=before.made + 1, local_epsilon=local_epsilon)


def _changed() -> TermsRefused:
    return TermsRefused(
        "reports a person, their period or their promise are not those of before",
        field="experiment.reports_per_person",
        remedy="do not take part",
    )


def _payments(database: sqlite3.Connection) -> list[Payment]:
    return [Payment(*row) for row in database.execute(f"{_PAYMENTS} FROM payments ORDER BY experiment")]


def default_path() -> Path:
    """Return where the ledger is if the application does not say: ``PRIVATEER_LEDGER``, or in the user's state."""
    named = os.environ.get("PRIVATEER_LEDGER")
    if named:
        return Path(named)
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "privateer" / "ledger.db"
