"""The device's own account of its reports: paid before they are sent, on disk, once an experiment."""

import math
import os
import secrets
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from privateer.clock import Clock, SystemClock
from privateer.errors import AlreadyReported, BudgetExceeded, InputError, Malformed, TermsRefused
from privateer.wire.publication import digest
from privateer_client.account import Payment, SealedReport
from privateer_client.choice import Choice, decode_choice, encode_choice
from privateer_client.ledger_file import LedgerFile
from privateer_client.vault import Vault, unreadable

COSTS: Final = ("epsilon", "delta", "local_epsilon")
_SHARE: Final = 0.5
"""One server may spend this share of a total: whatever one takes, as much is left for another."""
_ROUNDING: Final = 1 + 1e-9
_DAY: Final = 86_400
_PAYMENTS: Final = "SELECT experiment, version, model, epsilon, delta, local_epsilon, day FROM payments"


class _Limit(NamedTuple):
    """The most that one cost may sum to, and the ledger's parameter that sets it; infinite: no limit."""

    cost: str
    parameter: str
    most: float

    def check(self, asked: Payment, before: Sequence[Payment], where: str) -> None:
        """Refuse a payment that exceeds the limit after those before it."""
        spent, wanted = sum(getattr(one, self.cost) for one in before), getattr(asked, self.cost)
        if spent + wanted > self.most * _ROUNDING:
            raise BudgetExceeded(
                f"spent {spent:g}{where}, asked {wanted:g}, limit {self.most:g}",
                field=self.cost,
                remedy=f"do not take part, or raise {self.parameter}",
            )


class Ledger:
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
        if window_days is not None and window_days < 1:
            raise InputError("must be at least 1", field="window_days", remedy="choose another window")
        self._window_days = window_days
        totals = [math.inf if most is None else most for most in (total_epsilon, total_delta, total_local_epsilon)]
        named = (per_server_epsilon, per_server_delta, per_server_local_epsilon)
        shares = [_SHARE * total if most is None else most for most, total in zip(named, totals, strict=True)]
        self._totals, self._shares = _limits("total", totals), _limits("per_server", shares)
        self._clock = clock or SystemClock()
        where = Path(path) if path else default_path()
        self._vault = Vault(key, where.with_name(f"{where.name}.key"))
        self._file = LedgerFile(where, self._today)

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self._file.path

    def pay(self, payment: Payment, endpoint: str, seal: Callable[[], bytes]) -> bytes:
        """Record a payment durably, together with the sealed report that it is for, and erase the choice behind it.

        Parameters
        ----------
        payment
            What the report costs; the ledger writes down today's day.
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
            If the experiment is paid for.
        BudgetExceeded
            If a sum would exceed its limit; states spent, asked and limit.
        """
        costs = tuple(getattr(payment, cost) for cost in COSTS)
        for cost, value in zip(COSTS, costs, strict=True):
            if not value >= 0:
                raise InputError("must be at least 0", field=cost, remedy="do not take part")
        with self._file.transaction() as database:
            if _paid(database, payment.experiment):
                raise AlreadyReported("this device has reported to the experiment", remedy="nothing to do")
            self._check(payment, _payments(database))
            body = seal()
            values = (payment.experiment, payment.version, payment.model, *costs, self._today)
            database.execute("INSERT INTO payments VALUES (?, ?, ?, ?, ?, ?, ?)", values)
            database.execute("INSERT INTO outbox VALUES (?, ?, ?)", (payment.experiment, endpoint, body))
            _erase(database, payment.experiment)
        return body

    def _check(self, asked: Payment, paid: Sequence[Payment]) -> None:
        """Refuse a payment that exceeds a limit of all experiments, or of its server's."""
        since, window = -math.inf, ""
        if self._window_days is not None:
            since, window = self._today - self._window_days, f" in {self._window_days} days"
        before = [one for one in paid if one.day > since]
        for limit in self._totals:
            limit.check(asked, before, window)
        for limit in self._shares:
            limit.check(asked, [one for one in before if one.server == asked.server], f" at {asked.server}{window}")

    @property
    def _today(self) -> int:
        return int(self._clock.now() // _DAY)

    def has_paid(self, experiment: str) -> bool:
        """Tell whether the device has contributed to an experiment."""
        with self._file.transaction() as database:
            return _paid(database, experiment)

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

    def waiting(self) -> list[SealedReport]:
        """Return the reports that no endpoint has answered for good."""
        with self._file.transaction() as database:
            rows = database.execute("SELECT experiment, endpoint, body FROM outbox ORDER BY experiment")
            return [SealedReport(*row) for row in rows]

    def discard(self, experiment: str) -> None:
        """Overwrite the sealed report of an experiment, since it was answered or is withdrawn; its payment stays."""
        with self._file.transaction() as database:
            database.execute("DELETE FROM outbox WHERE experiment = ?", (experiment,))

    def choice(self, experiment: str) -> Choice | None:
        """Return the choice that is kept for an experiment.

        Raises
        ------
        InputError
            If it is damaged, or was encrypted with another key.
        """
        with self._file.transaction() as database:
            return self._choice(database, experiment)

    def choices(self) -> list[str]:
        """Return the experiments for which a choice is kept."""
        with self._file.transaction() as database:
            return [name for (name,) in database.execute("SELECT experiment FROM choices ORDER BY experiment")]

    def change(self, experiment: str, change: Callable[[Choice | None], Choice | None]) -> Choice | None:
        """Replace the choice that is kept for an experiment by what ``change`` makes of it, and return that.

        Once the experiment is paid for none is kept, and this returns None.

        Raises
        ------
        InputError
            If the one that is kept cannot be read, or the new one cannot be kept; nothing changes then.
        """
        with self._file.transaction() as database:
            before = self._choice(database, experiment)
            after = None if _paid(database, experiment) else change(before)
            if after is None:
                _erase(database, experiment)
            elif after is not before:
                body = self._vault.lock(encode_choice(after), experiment)
                database.execute("INSERT OR REPLACE INTO choices VALUES (?, ?)", (experiment, body))
        return after

    def forget(self, experiment: str) -> None:
        """Overwrite the choice that is kept for an experiment: no report will be made of it."""
        with self._file.transaction() as database:
            _erase(database, experiment)

    def _choice(self, database: sqlite3.Connection, experiment: str) -> Choice | None:
        row = database.execute("SELECT body FROM choices WHERE experiment = ?", (experiment,)).fetchone()
        if row is None:
            return None
        try:
            return decode_choice(self._vault.unlock(row[0], experiment))
        except Malformed:
            raise unreadable(experiment) from None

    def publication(self, experiment: str) -> bytes | None:
        """Return the publication that is kept for an experiment; None if there is none, or it is damaged."""
        with self._file.transaction() as database:
            row = "SELECT digest, body FROM publications WHERE experiment = ?"
            known = database.execute(row, (experiment,)).fetchone()
        return known[1] if known is not None and digest(known[1]) == known[0] else None

    def remember(self, experiment: str, publication: bytes) -> None:
        """Keep a publication in the place of the one before."""
        name = digest(publication)
        with self._file.transaction() as database:
            same = "SELECT 1 FROM publications WHERE (experiment, digest, body) = (?, ?, ?)"
            if database.execute(same, (experiment, name, publication)).fetchone() is None:
                database.execute(
                    "INSERT OR REPLACE INTO publications VALUES (?, ?, ?)", (experiment, name, publication)
                )


def _limits(prefix: str, most: Sequence[float]) -> list[_Limit]:
    limits = [_Limit(cost, f"{prefix}_{cost}", value) for cost, value in zip(COSTS, most, strict=True)]
    for limit in limits:
        if not limit.most >= 0:
            raise InputError("must be at least 0", field=limit.parameter, remedy="choose another limit")
    return limits


def _erase(database: sqlite3.Connection, experiment: str) -> None:
    database.execute("DELETE FROM choices WHERE experiment = ?", (experiment,))


def _paid(database: sqlite3.Connection, experiment: str) -> bool:
    return database.execute("SELECT 1 FROM payments WHERE experiment = ?", (experiment,)).fetchone() is not None


def _payments(database: sqlite3.Connection) -> list[Payment]:
    return [Payment(*row) for row in database.execute(f"{_PAYMENTS} ORDER BY experiment")]


def default_path() -> Path:
    """Return where the ledger is if the application does not say: ``PRIVATEER_LEDGER``, or in the user's state."""
    named = os.environ.get("PRIVATEER_LEDGER")
    if named:
        return Path(named)
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "privateer" / "ledger.db"
