"""The device's own account of what it has told: paid before it is sent, on disk, once an experiment."""

import math
import os
import secrets
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final

from privateer.clock import Clock, SystemClock
from privateer.errors import AlreadyReported, InputError, TermsRefused
from privateer_client.account import Payment, SealedReport
from privateer_client.budget import COSTS, Budget
from privateer_client.ledger_file import LedgerFile

_DAY: Final = 86_400
_PAYMENTS: Final = "SELECT experiment, version, model, epsilon, delta, local_epsilon, day FROM payments"


class Ledger:
    """Payments, and sealed reports until they are answered, in an SQLite file; safe between processes.

    Parameters
    ----------
    path
        File, made if missing. Default: ``PRIVATEER_LEDGER``, else ``privateer/ledger.db`` among the user's state.
    total_epsilon, total_delta, total_local_epsilon
        The most that all experiments together may cost (basic composition); None: no limit. A report without a bound
        on one of them, such as a record that a curator sees, overruns every limit on it.
    per_server_epsilon, per_server_delta, per_server_local_epsilon
        The most that the experiments of one server may cost; None: half of the total. A server is a scheme, a host and
        a port.
    window_days
        Days that the limits look back, today included; None: for ever.
    clock
        What tells the day.

    Raises
    ------
    InputError
        If the file cannot be used, is damaged or no ledger, or a limit is out of range.
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
    ) -> None:
        if window_days is not None and window_days < 1:
            raise InputError("must be at least 1", field="window_days", remedy="choose another window")
        self._window_days = window_days
        self._budget = Budget(
            dict(zip(COSTS, (total_epsilon, total_delta, total_local_epsilon), strict=True)),
            dict(zip(COSTS, (per_server_epsilon, per_server_delta, per_server_local_epsilon), strict=True)),
            "" if window_days is None else f" in {window_days} days",
        )
        self._clock = clock or SystemClock()
        self._file = LedgerFile(Path(path) if path else default_path(), self._today)

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self._file.path

    def pay(self, payment: Payment, endpoint: str, seal: Callable[[], bytes]) -> bytes:
        """Record a payment durably, together with the sealed report that it is for.

        Parameters
        ----------
        payment
            Its day is today, whatever it says.
        door
            URL that the report goes to.
        seal
            Makes what is sent there, once the payment is found to be within the limits.

        Returns
        -------
        What ``seal`` made. It waits in the ledger until it is discarded.

        Raises
        ------
        InputError
            If a cost is negative or no number, or the file cannot be written; nothing is paid then.
        AlreadyReported
            If the experiment is paid for.
        BudgetExceeded
            If a sum would exceed its limit; states spent, asked and limit.
        """
        for cost in COSTS:
            if not getattr(payment, cost) >= 0:
                raise InputError("must be at least 0", field=cost, remedy="do not take part")
        with self._file.transaction() as database:
            if _paid(database, payment.experiment):
                raise AlreadyReported("this device has reported to the experiment", remedy="nothing to do")
            since = -math.inf if self._window_days is None else self._today - self._window_days
            self._budget.check(payment, [one for one in _payments(database) if one.day > since])
            body = seal()
            costs = (payment.epsilon, payment.delta, payment.local_epsilon, self._today)
            values = (payment.experiment, payment.version, payment.model, *costs)
            database.execute("INSERT INTO payments VALUES (?, ?, ?, ?, ?, ?, ?)", values)
            database.execute("INSERT INTO outbox VALUES (?, ?, ?)", (payment.experiment, endpoint, body))
        return body

    @property
    def _today(self) -> int:
        return int(self._clock.now() // _DAY)

    def has_paid(self, experiment: str) -> bool:
        """Whether the device has contributed to an experiment."""
        with self._file.transaction() as database:
            return _paid(database, experiment)

    def number(self, experiment: str, seed: int, people: int) -> int:
        """The device's number among the people of an experiment: drawn when first asked for, told to nobody.

        Raises
        ------
        TermsRefused
            If the experiment had another seed or other people before: whoever knows numbers and may draw again can
            single people out.
        """
        with self._file.transaction() as database:
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
        with self._file.transaction() as database:
            return _payments(database)

    def waiting(self) -> list[SealedReport]:
        """Reports that no door has answered for good."""
        with self._file.transaction() as database:
            rows = database.execute("SELECT experiment, door, body FROM outbox ORDER BY experiment")
            return [SealedReport(*row) for row in rows]

    def discard(self, experiment: str) -> None:
        """Overwrite the sealed report of an experiment, since it was answered or is withdrawn; its payment stays."""
        with self._file.transaction() as database:
            database.execute("DELETE FROM outbox WHERE experiment = ?", (experiment,))


def _paid(database: sqlite3.Connection, experiment: str) -> bool:
    return database.execute("SELECT 1 FROM payments WHERE experiment = ?", (experiment,)).fetchone() is not None


def _payments(database: sqlite3.Connection) -> list[Payment]:
    return [Payment(*row) for row in database.execute(f"{_PAYMENTS} ORDER BY experiment")]


def default_path() -> Path:
    """Where the ledger is unless the application says so: ``PRIVATEER_LEDGER``, or among the user's state."""
    named = os.environ.get("PRIVATEER_LEDGER")
    if named:
        return Path(named)
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "privateer" / "ledger.db"
