"""The device's own account of what it has told: paid before it is sent, on disk, once an experiment."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from privateer.errors import AlreadyReported, BudgetExceeded, InputError


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
        The promise under the trust model, and if everybody else colludes.
    """

    experiment: str
    version: int
    model: str
    epsilon: float
    delta: float
    local_epsilon: float


class Account(Protocol):
    """Where payments are recorded."""

    def pay(self, payment: Payment) -> None:
        """Record a payment, or refuse it; after this returns the report may be sent."""
        ...

    def has_paid(self, experiment: str) -> bool:
        """Whether the device has contributed to an experiment."""
        ...


_SCHEMA = """
CREATE TABLE IF NOT EXISTS payments (
    experiment TEXT PRIMARY KEY, version INTEGER NOT NULL, model TEXT NOT NULL,
    epsilon REAL NOT NULL, delta REAL NOT NULL, local_epsilon REAL NOT NULL)
"""


class Ledger:
    """Payments in an SQLite file; survives restarts and is safe between processes.

    Parameters
    ----------
    path
        File, made if missing. Default: ``PRIVATEER_LEDGER``, else ``privateer/ledger.db`` among the user's state.
    total_epsilon
        The most that all experiments together may cost (basic composition); None: no limit.
    """

    def __init__(self, path: str | Path | None = None, total_epsilon: float | None = None) -> None:
        self.path = Path(path) if path else _default_path()
        self.total_epsilon = total_epsilon
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.path.touch(mode=0o600)
            with self._transaction() as database:
                database.execute(_SCHEMA)
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
        AlreadyReported
            If the experiment is paid for.
        BudgetExceeded
            If the total would exceed the limit; states spent, asked and limit.
        """
        with self._transaction() as database:
            if _paid(database, payment.experiment):
                raise AlreadyReported("this device has reported to the experiment", remedy="nothing to do")
            self._check_total(database, payment)
            values = (payment.experiment, payment.version, payment.model)
            costs = (payment.epsilon, payment.delta, payment.local_epsilon)
            database.execute("INSERT INTO payments VALUES (?, ?, ?, ?, ?, ?)", values + costs)

    def _check_total(self, database: sqlite3.Connection, payment: Payment) -> None:
        if self.total_epsilon is None:
            return
        (spent,) = database.execute("SELECT COALESCE(SUM(epsilon), 0) FROM payments").fetchone()
        if spent + payment.epsilon > self.total_epsilon * (1 + 1e-9):
            raise BudgetExceeded(
                f"spent {spent:g}, asked {payment.epsilon:g}, limit {self.total_epsilon:g}",
                field="epsilon",
                remedy="do not take part, or raise total_epsilon",
            )

    def has_paid(self, experiment: str) -> bool:
        """Whether the device has contributed to an experiment."""
        with self._transaction() as database:
            return _paid(database, experiment)

    def payments(self) -> list[Payment]:
        """Everything that was paid for."""
        with self._transaction() as database:
            return [Payment(*row) for row in database.execute("SELECT * FROM payments ORDER BY experiment")]


def _paid(database: sqlite3.Connection, experiment: str) -> bool:
    return database.execute("SELECT 1 FROM payments WHERE experiment = ?", (experiment,)).fetchone() is not None


def _default_path() -> Path:
    named = os.environ.get("PRIVATEER_LEDGER")
    if named:
        return Path(named)
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "privateer" / "ledger.db"
