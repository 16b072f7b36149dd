"""``account experiment``, ``verify``, ``ledger``: what was promised, whether it holds, what was spent."""

import math
import sqlite3
from datetime import date, timedelta
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from privateer_client.ledger.account_protocol import Payment
from privateer_client.ledger.ledger import COSTS, Ledger, default_path
from privateer_core.accounting.accountant import account
from privateer_core.accounting.events import Approximate, Parallel, Repeated, Sequential
from privateer_core.errors import SpecError
from privateer_core.privacy.certificate import Certificate, Claim, Verdict, recompute
from privateer_core.privacy.record_verification import read_certificates
from privateer_lab.cli.ask.experiment import Name, claimed
from privateer_lab.cli.documents import read_document
from privateer_lab.cli.options import URL, Json, Url
from privateer_lab.cli.output import print_json, print_rows, print_table, screen
from privateer_lab.cli.prove.account import accounts, finite, spaced
from privateer_lab.services.rest import ask

_ROUNDS_SHOWN = 20
_COLUMNS = ("version", "batch", "received", "honest", "released")


def register(_: typer.Typer) -> None:
    """Add the commands to ``account``."""
    for command in (experiment, verify, ledger):
        accounts.command()(command)


def experiment(name: Name, url: Url = URL, as_json: Json = False) -> None:
    """Show what an experiment promises to a person: against whom, round by round, and why it is true.

    The command refuses an answer whose rounds do not make its certificates.
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
            rows += [*_each(claim), ("exact", claim.exact), ("proof", claim.proof)]
            print_table(f"{name}: {whose}'s privacy against {claim.against}", rows)
        _print_assumptions(certificate)
    for promise in [*record.get("sources", []), record]:
        if promise.get("rounds"):
            print_rounds(promise["rounds"])


def _each(claim: Claim) -> list[tuple[str, Any]]:
    """Return what one of several reports costs; several messages of one report are one."""
    if not (isinstance(claim.event, Repeated) and isinstance(claim.event.of, Parallel)):
        return []
    cost = account(claim.event.of).epsilon(claim.delta)
    return [("reports", claim.event.count), ("epsilon of one report", finite(cost))]


def print_rounds(rounds: list[dict[str, Any]]) -> None:
    """Print a table of an experiment's last rounds, with those parameters of their mechanism that are numbers.

    The epsilon of a mechanism is that of one message by itself, and not the promise. We show that of the whole report.
    """
    shown = [{key: row[key] for key in _COLUMNS} | _numbers(row["mechanism"]) for row in rounds[-_ROUNDS_SHOWN:]]
    print_rows(f"the last {len(shown)} of {len(rounds)} rounds: {rounds[-1]['mechanism']['type']}", shown)


def _numbers(mechanism: dict[str, Any]) -> dict[str, int | float]:
    numbers = {key: value for key, value in mechanism.items() if isinstance(value, int | float)}
    if "epsilon" not in numbers:
        return numbers
    return {"local_epsilon": numbers.pop("epsilon") * numbers.get("repeats", 1), **numbers}


def verify(
    file: Annotated[Path, typer.Argument(help="A certificate, or a privacy record that holds one, as JSON.")],
    as_json: Json = False,
) -> None:
    """Recompute every claim of a certificate from nothing but the file; exit with 1 if one does not hold.

    The rounds of a privacy record are checked as well: they must make its certificates.
    """
    certificates = read_certificates(read_document(file))
    verdicts = {cohort: recompute(certificate) for cohort, certificate in certificates.items()}
    if as_json:
        claims = {cohort: msgspec.to_builtins(found) for cohort, found in verdicts.items()}
        sources = [{"name": name, "claims": found} for name, found in claims.items() if name]
        own = {"experiment": certificates[""].experiment, "claims": claims[""]}
        print_json(own | ({"sources": sources} if sources else {}))
    else:
        for cohort, certificate in certificates.items():
            _print_verdicts(cohort, certificate, verdicts[cohort])
    if not all(verdict.holds for found in verdicts.values() for verdict in found):
        raise typer.Exit(1)


def _print_verdicts(cohort: str, certificate: Certificate, verdicts: list[Verdict]) -> None:
    whose = f"{certificate.experiment}, source {cohort}" if cohort else certificate.experiment
    for verdict in verdicts:
        claim = [(f"claimed {key}", value) for key, value in claimed(verdict.epsilon, verdict.delta)]
        found = [] if verdict.epsilon is None else [("delta", verdict.found)]
        rows = [("about", verdict.about), *claim, *found, ("proof", verdict.proof)]
        print_table(f"{whose}: against {verdict.against}", [*rows, ("holds", "yes" if verdict.holds else "NO")])
    _print_assumptions(certificate)


def _print_assumptions(certificate: Certificate) -> None:
    screen.print("assumed: " + "; ".join(certificate.assumes), markup=False)


def ledger(
    path: Annotated[Path | None, typer.Option(help="The device's ledger; default PRIVATEER_LEDGER.")] = None,
    delta: Annotated[float, typer.Option(help="The delta at which the composed epsilon is read.")] = 1e-5,
    as_json: Json = False,
) -> None:
    """Show what this device has spent, by experiment, by server and together, and which reports still wait."""
    if not 0 <= delta < 1:
        raise SpecError("must be at least 0 and below 1", field="--delta", remedy="1e-5 is usual")
    payments, waiting = _held(path or default_path())
    rows: list[dict[str, Any]] = [
        {name: finite(value) if isinstance(value, float) else value for name, value in _shown(one).items()}
        | {"waiting": one.experiment in waiting}
        for one in payments
    ]
    by_server = {one.server: [other for other in payments if other.server == one.server] for one in payments}
    servers = {server: _sums(paid) for server, paid in by_server.items()}
    composed = {"epsilon_composed": _composed(payments, delta), "at_delta": delta}
    spent = {"experiments": len(payments), **_sums(payments), **composed, "waiting": len(waiting)}
    if as_json:
        print_json({"payments": rows, "servers": servers, "spent": spent})
        return
    for row in rows:
        print_table(str(row.pop("experiment")), spaced(row | {"day": _date(row["day"])}))
    for server, sums in servers.items():
        print_table(f"at {server}", spaced(sums))
    print_table("together", spaced(spent))


def _held(where: Path) -> tuple[list[Payment], set[str]]:
    """Return the payments of a ledger, and the experiments whose reports wait. The file may be anything."""
    if not where.is_file():
        raise SpecError(f"there is no ledger at {where}", field="--path", remedy="name the device's ledger")
    try:
        device = Ledger(where)
        payments, waiting = device.payments(), {report.experiment for report in device.waiting()}
        msgspec.convert([vars(payment) for payment in payments], list[Payment])
    except (sqlite3.Error, msgspec.ValidationError, TypeError):
        raise SpecError("not a ledger, or a damaged one", field="--path", remedy="name the device's ledger") from None
    return payments, waiting


def _shown(payment: Payment) -> dict[str, Any]:
    """Return what a payment says to a person."""
    return {name: value for name, value in vars(payment).items() if name not in ("period", "pinned")}


def _date(day: int) -> str:
    """Return the date of a day since 1970, or the number itself if somebody wrote an impossible one."""
    try:
        return str(date(1970, 1, 1) + timedelta(days=day))
    except OverflowError:
        return str(day)


def _sums(payments: list[Payment]) -> dict[str, float | None]:
    """Return the sums that the ledger's limits are compared with."""
    return {f"{cost}_in_sum": finite(sum(getattr(one, cost) for one in payments)) for cost in COSTS}


def _composed(payments: list[Payment], delta: float) -> float | None:
    """Return the epsilon of all payments together by the accountant; None if one of them had no promise."""
    if any(math.isinf(payment.epsilon) for payment in payments):
        return None
    events = tuple(Approximate(payment.epsilon, payment.delta) for payment in payments)
    return finite(account(Sequential(events)).epsilon(delta)) if events else 0.0
