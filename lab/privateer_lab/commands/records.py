"""``account experiment``, ``verify``, ``ledger``: what was promised, whether it holds, what was spent."""

import math
import sqlite3
from datetime import date, timedelta
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.table import Table

from privateer.accounting.accountant import account
from privateer.accounting.events import Approximate, Sequential
from privateer.certificate import Certificate, Verdict, recompute
from privateer.errors import SpecError
from privateer.record_verification import read_certificates
from privateer_client.account import Payment
from privateer_client.budget import COSTS
from privateer_client.ledger import Ledger, default_path
from privateer_lab.commands.account import accounts, finite
from privateer_lab.commands.experiments import URL, Json, Url, claimed
from privateer_lab.documents import read_document
from privateer_lab.output import print_json, print_table, print_titled, readable, screen
from privateer_lab.rest import ask

_ROUNDS_SHOWN = 20
_COLUMNS = ("version", "batch", "received", "honest", "released", "local_epsilon", "standard_deviation")
"""The table of rounds has these columns; rounds of vectors have no local epsilon."""
_NORMAL = {"gaussian", "normal", "curated"}
"""Mechanisms whose noise is normal, so that it has a deviation."""


def register(_: typer.Typer) -> None:
    """Add the commands to ``account``."""
    accounts.command()(experiment)
    accounts.command()(verify)
    accounts.command()(ledger)


def experiment(name: str, url: Url = URL, as_json: Json = False) -> None:
    """What an experiment promises to a person: against whom, round by round, and why it is true.

    An answer whose rounds are not what its certificates claim is refused.
    """
    record = ask("GET", f"{url}/experiments/{name}/privacy")
    certificates = read_certificates(record)
    if as_json:
        print_json(record)
        return
    for cohort, certificate in certificates.items():
        whose = f"a person of {cohort}" if cohort else "one person"
        for claim in certificate.claims:
            rows = [("about", claim.about), *claimed(claim.epsilon, claim.delta)]
            rows += [("exact", claim.exact), ("proof", claim.proof)]
            print_table(f"{name}: {whose}'s privacy against {claim.against}", rows)
        screen.print("assumed: " + "; ".join(certificate.assumes), markup=False)
    for told in [*record.get("sources", []), record]:
        if told["rounds"]:
            print_rounds(told["rounds"])


def print_rounds(rounds: list[dict[str, Any]]) -> None:
    """A table of an experiment's last rounds."""
    shown, mechanism = rounds[-_ROUNDS_SHOWN:], rounds[-1]["mechanism"]
    keys = [key for key in _COLUMNS if key in rounds[0] and (key != "standard_deviation" or mechanism in _NORMAL)]
    title = f"the last {len(shown)} of {len(rounds)} rounds: {mechanism}"
    table = Table()
    for key in keys:
        table.add_column(key.replace("_", " "), justify="right")
    for row in shown:
        table.add_row(*(readable(row[key]) for key in keys))
    print_titled(title, table)


def verify(
    file: Annotated[Path, typer.Argument(help="A certificate, or a privacy record that holds one, as JSON.")],
    as_json: Json = False,
) -> None:
    """Recompute every claim of a certificate from nothing but the file; exit code 1 if one does not hold.

    Of a privacy record the rounds are checked as well: its certificates must be those that they make.
    """
    certificates = read_certificates(read_document(file))
    verdicts = {cohort: recompute(certificate) for cohort, certificate in certificates.items()}
    if as_json:
        print_json(_recomputed(certificates, verdicts))
    else:
        for cohort, certificate in certificates.items():
            _print_verdicts(cohort, certificate, verdicts[cohort])
    if not all(verdict.holds for found in verdicts.values() for verdict in found):
        raise typer.Exit(1)


def _recomputed(certificates: dict[str, Certificate], verdicts: dict[str, list[Verdict]]) -> dict[str, Any]:
    told: dict[str, Any] = {"experiment": certificates[""].experiment, "claims": msgspec.to_builtins(verdicts[""])}
    sources = [{"name": name, "claims": msgspec.to_builtins(found)} for name, found in verdicts.items() if name]
    return told | ({"sources": sources} if sources else {})


def _print_verdicts(cohort: str, certificate: Certificate, verdicts: list[Verdict]) -> None:
    whose = f"{certificate.experiment}, source {cohort}" if cohort else certificate.experiment
    for verdict in verdicts:
        claim = [(f"claimed {key}", value) for key, value in claimed(verdict.epsilon, verdict.delta)]
        rows = [("about", verdict.about), *claim, *_found(verdict), ("proof", verdict.proof)]
        print_table(f"{whose}: against {verdict.against}", [*rows, ("holds", "yes" if verdict.holds else "NO")])
    screen.print("assumed: " + "; ".join(certificate.assumes), markup=False)


def _date(day: int) -> str:
    """A day since 1970; of a file that somebody changed as it is."""
    try:
        return str(date(1970, 1, 1) + timedelta(days=day))
    except OverflowError:
        return str(day)


def _found(verdict: Verdict) -> list[tuple[str, float]]:
    return [] if verdict.epsilon is None else [("delta", verdict.found)]


def ledger(
    path: Annotated[Path | None, typer.Option(help="The device's ledger; default PRIVATEER_LEDGER.")] = None,
    delta: Annotated[float, typer.Option(help="Where to read the composed epsilon.")] = 1e-5,
    as_json: Json = False,
) -> None:
    """What this device has spent, by experiment, by server and together, and which reports still wait."""
    if not 0 <= delta < 1:
        raise SpecError("must be at least 0 and below 1", field="--delta", remedy="1e-5 is usual")
    where = path or default_path()
    if not where.is_file():
        raise SpecError(f"there is no ledger at {where}", field="--path", remedy="name the device's ledger")
    payments, waiting = _held(where)
    rows = [
        {name: _finite(value) for name, value in vars(one).items()} | {"waiting": one.experiment in waiting}
        for one in payments
    ]
    servers = {server: _sums(paid) for server, paid in _by_server(payments).items()}
    composed = {"epsilon_composed": _composed(payments, delta), "at_delta": delta}
    spent = {"experiments": len(payments), **_sums(payments), **composed, "waiting": len(waiting)}
    if as_json:
        print_json({"payments": rows, "servers": servers, "spent": spent})
        return
    for row in rows:
        print_table(str(row.pop("experiment")), (row | {"day": _date(row["day"])}).items())
    for server, sums in servers.items():
        print_table(f"at {server}", sums.items())
    print_table("together", spent.items())


def _held(where: Path) -> tuple[list[Payment], set[str]]:
    """What a ledger holds, if that is payments and reports that wait: the file may be anything."""
    try:
        device = Ledger(where)
        payments, waiting = device.payments(), {report.experiment for report in device.waiting()}
        msgspec.convert([vars(payment) for payment in payments], list[Payment])
    except (sqlite3.Error, msgspec.ValidationError, TypeError):
        raise SpecError("not a ledger, or a damaged one", field="--path", remedy="name the device's ledger") from None
    return payments, waiting


def _by_server(payments: list[Payment]) -> dict[str, list[Payment]]:
    return {one.server: [other for other in payments if other.server == one.server] for one in payments}


def _sums(payments: list[Payment]) -> dict[str, float | None]:
    """What the ledger's limits are compared with."""
    return {f"{cost}_in_sum": finite(sum(getattr(one, cost) for one in payments)) for cost in COSTS}


def _finite(value: Any) -> Any:
    return finite(value) if isinstance(value, float) else value


def _composed(payments: list[Payment], delta: float) -> float | None:
    """Epsilon of all payments together by the accountant; None if something was given without a promise."""
    if not payments:
        return 0.0
    if any(math.isinf(payment.epsilon) for payment in payments):
        return None
    events = tuple(Approximate(payment.epsilon, payment.delta) for payment in payments)
    return finite(account(Sequential(events)).epsilon(delta))
