"""The device's own account of what it has told: paid before it is sent, on disk, once an experiment."""

import math
import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from privateer.clock import Clock, SystemClock
from privateer.errors import AlreadyReported, BudgetExceeded, InputError, TermsRefused


@dataclass(frozen=True)
class Payment:
    """What one report costs.

    Attributes
    ----------
    experiment
        Identity of the experiment: server and name. A new spec under an old name does not buy a second report.
    version, model
        Round and trust model.
    epsilon, delta, local_epsilon
        The promise under the trust model, and if everybody else colludes; infinite where nothing is promised.
    day
        When it was paid, in days since 1970: no finer, since the device may be looked at.
    """

    experiment: str
    version: int
    model: str
    epsilon: float
    delta: float
    local_epsilon: float
    day: int = 0


class Account(Protocol):
    """Where payments are recorded."""

    def pay(self, payment: Payment) -> None:
        """Record a payment, or refuse it; after this returns the report may be sent."""
        ...

    def has_paid(self, experiment: str) -> bool:
        """Whether the device has contributed to an experiment."""
        ...

    def number(self, experiment: str, seed: int, people: int) -> int:
        """The device's number among an experiment's people, for the draw of this seed; see `Ledger.number`."""
        ...


_SCHEMA = """
CREATE TABLE IF NOT EXISTS payments (
    experiment TEXT PRIMARY KEY, version INTEGER NOT NULL, model TEXT NOT NULL,
    epsilon REAL NOT NULL, delta REAL NOT NULL, local_epsilon REAL NOT NULL, day INTEGER NOT NULL DEFAULT 0)
"""
_NUMBERS = """
CREATE TABLE IF NOT EXISTS numbers (
    experiment TEXT PRIMARY KEY, seed INTEGER NOT NULL, people INTEGER NOT NULL, number INTEGER NOT NULL)
"""
_DAY: Final = 86_400


class Ledger:
    """Payments in an SQLite file; survives restarts and is safe between processes.

    Parameters
    ----------
    path
        File, made if missing. Default: ``PRIVATEER_LEDGER``, else ``privateer/ledger.db`` among the user's state.
    total_epsilon
        The most that all experiments together may cost (basic composition); None: no limit.
    window_days
        Days that the limit looks back, today included; None: for ever.
    clock
        What tells the day.

    Raises
    ------
    InputError
        If the file cannot be used, or a limit is out of range.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        total_epsilon: float | None = None,
        window_days: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.path = Path(path) if path else default_path()
        if total_epsilon is not None and not total_epsilon >= 0:
            raise InputError("must be at least 0", field="total_epsilon", remedy="choose another limit")
        if window_days is not None and window_days < 1:
            raise InputError("must be at least 1", field="window_days", remedy="choose another window")
        self.total_epsilon, self.window_days = total_epsilon, window_days
        self._clock = clock or SystemClock()
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.path.touch(mode=0o600)
            with self._transaction() as database:
                database.execute(_SCHEMA)
                database.execute(_NUMBERS)
                columns = {row[1] for row in database.execute("PRAGMA table_info(payments)")}
                if "day" not in columns:  # a ledger of version 0.1: what was paid some day counts as paid today
                    database.execute(f"ALTER TABLE payments ADD COLUMN day INTEGER NOT NULL DEFAULT {self._today}")
        except (OSError, sqlite3.Error):
            raise InputError(
                "cannot open the ledger", field="ledger", remedy="name a file that can be written"
            ) from None

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        database = sqlite3.connect(self.path, isolation_level=None, timeout=10)
        try:
            database.execute("PRAGMA synchronous=FULL")
            database.execute("BEGIN IMMEDIATE")
            yield database
            database.execute("COMMIT")
        finally:
            database.close()

    def pay(self, payment: Payment) -> None:
        """Record a payment durably.

        Raises
        ------
        InputError
            If a cost is negative or no number.
        AlreadyReported
            If the experiment is paid for.
        BudgetExceeded
            If the total would exceed the limit; states spent, asked and limit.
        """
        for name in ("epsilon", "delta", "local_epsilon"):
            if not getattr(payment, name) >= 0:
                raise InputError("must be at least 0", field=name, remedy="do not take part")
        with self._transaction() as database:
            if _paid(database, payment.experiment):
                raise AlreadyReported("this device has reported to the experiment", remedy="nothing to do")
            self._check_total(database, payment)
            values = (payment.experiment, payment.version, payment.model)
            costs = (payment.epsilon, payment.delta, payment.local_epsilon, self._today)
            database.execute("INSERT INTO payments VALUES (?, ?, ?, ?, ?, ?, ?)", values + costs)

    @property
    def _today(self) -> int:
        return int(self._clock.now() // _DAY)

    def _check_total(self, database: sqlite3.Connection, payment: Payment) -> None:
        if self.total_epsilon is None:
            return
        since = -math.inf if self.window_days is None else self._today - self.window_days
        total = "SELECT COALESCE(SUM(epsilon), 0) FROM payments WHERE day > ?"
        (spent,) = database.execute(total, (since,)).fetchone()
        if spent + payment.epsilon > self.total_epsilon * (1 + 1e-9):
            window = "" if self.window_days is None else f" in {self.window_days} days"
            raise BudgetExceeded(
                f"spent {spent:g}{window}, asked {payment.epsilon:g}, limit {self.total_epsilon:g}",
                field="epsilon",
                remedy="do not take part, or raise total_epsilon",
            )

    def has_paid(self, experiment: str) -> bool:
        """Whether the device has contributed to an experiment."""
        with self._transaction() as database:
            return _paid(database, experiment)

    def number(self, experiment: str, seed: int, people: int) -> int:
        """The device's number among the people of an experiment: drawn when first asked for, told to nobody.

        Raises
        ------
        TermsRefused
            If the experiment had another seed or other people before: whoever knows numbers and may draw again can
            single people out.
        """
        with self._transaction() as database:
            row = "SELECT seed, people, number FROM numbers WHERE experiment = ?"
            known = database.execute(row, (experiment,)).fetchone()
            if known is None:
                known = (seed, people, secrets.randbelow(people))
                database.execute("INSERT INTO numbers VALUES (?, ?, ?, ?)", (experiment, *known))
        if known[:2] != (seed, people):
            raise TermsRefused(
                "the experiment's draw of people is another than before", field="seed", remedy="do not take part"
            )
        return int(known[2])

    def payments(self) -> list[Payment]:
        """Everything that was paid for."""
        with self._transaction() as database:
            return [Payment(*row) for row in database.execute("SELECT * FROM payments ORDER BY experiment")]


def _paid(database: sqlite3.Connection, experiment: str) -> bool:
    return database.execute("SELECT 1 FROM payments WHERE experiment = ?", (experiment,)).fetchone() is not None


def default_path() -> Path:
    """Where the ledger is unless the application says so: ``PRIVATEER_LEDGER``, or among the user's state."""
    named = os.environ.get("PRIVATEER_LEDGER")
    if named:
        return Path(named)
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "privateer" / "ledger.db"
