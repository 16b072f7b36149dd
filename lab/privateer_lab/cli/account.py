"""``account``: privacy calculators, verification of certificates, and the device's ledger."""

import math
import sqlite3
from datetime import date, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from typer import Argument, Option

from privateer_client.ledger.account_protocol import COSTS, Payment
from privateer_client.ledger.ledger import Ledger, default_path
from privateer_client.ledger.spending_limits import server_origin
from privateer_core.accounting.accountant import account
from privateer_core.accounting.amplification import amplified_local_epsilon, clones_local_epsilon
from privateer_core.accounting.binomial import shuffled_bits_probability, shuffled_bits_trials
from privateer_core.accounting.events import (
    Approximate,
    Event,
    Gaussian,
    Parallel,
    Repeated,
    Sequential,
    ShuffledMessage,
    ShuffledResponse,
    ShuffledSubset,
    read_event,
)
from privateer_core.accounting.gaussian import gaussian_standard_deviation
from privateer_core.accounting.numerics import check
from privateer_core.errors import SpecError
from privateer_core.privacy.certificate import Certificate, Claim, Verdict, recompute
from privateer_core.privacy.record_verification import read_certificates
from privateer_lab.audit.farthest_people import iterate_distances
from privateer_lab.audit.tightness import CASE, GAPS, compare_local_epsilons
from privateer_lab.cli.ask import claim_rows
from privateer_lab.cli.command_line import URL, Json, Name, Url
from privateer_lab.cli.input_files import read_document
from privateer_lab.cli.output import print_json, print_rows, print_table, screen
from privateer_lab.render.words import figure_name, name_figures
from privateer_lab.services.rest import request_json

Epsilon = Annotated[float, Option(help="Epsilon of the promise.")]
Delta = Annotated[float, Option(help="Delta of the promise.")]
Sensitivity = Annotated[float, Option(help="L2 distance between neighbours.")]
Batch = Annotated[int, Option(help="Number of reports that are shuffled together.")]

accounts = typer.Typer(help="Calculate privacy, and check records and certificates.", no_args_is_help=True)
_MAX_ROUNDS = 20
_BATCHES = [90, 300, 900, 9000]
_ALPHABETS = [2, 3, 5, 17, 65]
_COLUMNS = ("version", "batch_size", "received", "honest", "released")


class Bound(StrEnum):
    """Bounds for the privacy of a shuffled message."""

    CLONES = "clones"
    BINARY = "binary"
    K_ARY = "k-ary"
    SUBSET = "subset"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (experiment, verify, ledger):
        accounts.command()(command)
    app.add_typer(accounts, name="account")


def _show_figures(title: str, result: dict[str, Any], as_json: bool) -> None:
    print_json(result) if as_json else print_table(title, name_figures(result))


@accounts.command()
def gaussian(epsilon: Epsilon, delta: Delta, sensitivity: Sensitivity = 1.0, as_json: Json = False) -> None:
    """Compute the smallest normal noise that keeps a promise."""
    standard_deviation = gaussian_standard_deviation(epsilon, delta, sensitivity)
    curve = account(Gaussian(standard_deviation, sensitivity))
    result = {
        "epsilon": epsilon,
        "delta": delta,
        "sensitivity": sensitivity,
        "standard_deviation": standard_deviation,
        "exact": curve.exact,
        "proof": curve.proof,
    }
    _show_figures("analytic Gaussian", result, as_json)


@accounts.command()
def amplification(
    epsilon: Epsilon,
    delta: Delta,
    batch: Batch,
    bound: Annotated[
        Bound, Option(help="clones: any pure message; subset: subset selection; others: randomized response.")
    ] = Bound.CLONES,
    symbols: Annotated[int, Option(help="Size of the alphabet, for k-ary and subset.")] = 2,
    own_symbols: Annotated[int, Option(help="How many symbols are a person's own, for subset.")] = 1,
    limit: Annotated[float, Option(help="Largest local epsilon to consider.")] = 16.0,
    as_json: Json = False,
) -> None:
    """Compute the largest local epsilon of a message whose shuffled batch keeps a promise."""
    if bound is Bound.BINARY:
        symbols = 2
    at_most_limit = 0 < epsilon < math.inf and epsilon <= limit <= 16
    check("--epsilon", epsilon, at_most_limit, "above 0 and at most --limit, which is at most 16")
    check("--delta", delta, 0 < delta < 1, "above 0 and below 1")
    if bound is Bound.CLONES:
        local_epsilon = clones_local_epsilon(epsilon, delta, batch, limit)
        event: Event = ShuffledMessage(local_epsilon, batch)
    else:
        own_symbols = own_symbols if bound is Bound.SUBSET else 1
        # values out of range are refused
        account(ShuffledSubset(min(limit, epsilon), symbols, own_symbols, batch)).delta(epsilon)
        local_epsilon = amplified_local_epsilon(epsilon, delta, symbols / own_symbols, batch, limit)
        response = ShuffledResponse(local_epsilon, symbols, batch)
        event = ShuffledSubset(local_epsilon, symbols, own_symbols, batch) if bound is Bound.SUBSET else response
    curve = account(event)
    result = {
        "epsilon": epsilon,
        "delta": delta,
        "batch_size": batch,
        "bound": bound.value,
        "local_epsilon": local_epsilon,
        "delta_reached": curve.delta(epsilon),
        "exact": curve.exact,
        "proof": curve.proof,
    }
    _show_figures("amplification by shuffling", result, as_json)


@accounts.command("tightness")
def show_tightness(
    epsilon: Epsilon = 1.0,
    delta: Delta = 1e-6,
    batch: Annotated[list[int], Option(min=1, help="Reports shuffled together. Repeat it for more.")] = _BATCHES,
    symbols: Annotated[list[int], Option(min=2, help="Size of the alphabet. Repeat it for more.")] = _ALPHABETS,
    reports: Annotated[list[int], Option(min=1, help="Reports of a person. Repeat it for more.")] = [1],  # noqa: B006 - typer copies it
    share: Annotated[list[float], Option(help="Share of an arm group of bits. Repeat it for more.")] = [],  # noqa: B006
    limit: Annotated[float, Option(help="Largest local epsilon to consider.")] = 16.0,
    before: Annotated[Path | None, Option(help="Rows of an earlier run, as JSON, to compare with.")] = None,
    as_json: Json = False,
) -> None:
    """Compare the local epsilon that a shuffled batch allows with one that a known crowd shows to be too much.

    Between both no proof is known. The column variance says how much noise a perfect proof could save at most. Then
    come distances of two people for which curators' noise is, beside those of the farthest people of a search. Bounds
    that are not within a hundredth of epsilon follow, with the reason and what would close the gap.
    """
    check("--epsilon", epsilon, 0 < epsilon <= limit <= 16, "above 0 and at most --limit, which is at most 16")
    check("--delta", delta, 0 < delta < 1, "above 0 and below 1")
    for size in share:
        check("--share", size, 0 < size <= 1, "above 0 and at most 1")
    promise = (epsilon, delta)
    rows: list[dict[str, Any]] = [
        compare_local_epsilons(promise, n, size, limit, m) for m in reports for n in batch for size in symbols
    ]
    rows += [compare_local_epsilons(promise, n, 2, limit, share=size) for size in share for n in batch]
    if before:
        rows = [row | {"before": _find_row(read_document(before), row)} for row in rows]
    people = [distance.row for distance in iterate_distances()]
    if as_json:
        print_json({"rows": rows, "distances": people})
        return
    print_rows(f"local epsilon at epsilon {epsilon:g}, delta {delta:g}", [dict(name_figures(row)) for row in rows])
    print_rows("how far apart two people are", [dict(name_figures(row)) for row in people])
    gaps = [
        {"what": gap.name, "at_most": gap.max_ratio, "reason": gap.reason, "to_close_it": gap.remedy} for gap in GAPS
    ]
    print_rows("not within a hundredth of epsilon", [dict(name_figures(gap)) for gap in gaps])


def _find_row(document: Any, sought: dict[str, Any]) -> float | None:
    """Return the local epsilon that an earlier run allowed for a row; None if it had none. Refuse other documents."""
    rows = document.get("rows") if isinstance(document, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) and "allowed" in row for row in rows):
        raise SpecError("has no rows of an earlier run", field="--before", remedy="write one with --json")
    return next((r["allowed"] for r in rows if all(r.get(key) == sought.get(key) for key in CASE)), None)


@accounts.command()
def shuffled_bits(
    epsilon: Epsilon,
    delta: Delta,
    coordinates: Annotated[int, Option(min=1, help="Number of coordinates of the vector.")],
    batch: Batch,
    levels: Annotated[int, Option(min=1, help="Number of steps of one coordinate.")] = 10,
    honest_fraction: Annotated[float, Option(help="Share of the batch whose noise counts.")] = 1.0,
    as_json: Json = False,
) -> None:
    """Compute the bits that hide a shuffled sum of vectors, for each person and in all."""
    check("--honest-fraction", honest_fraction, 0 < honest_fraction <= 1, "above 0 and at most 1")
    honest = math.floor(honest_fraction * batch)
    check("--batch", batch, honest >= 1, "so large that at least one report is honest")
    total = shuffled_bits_trials(epsilon, delta, levels, coordinates)
    bits = math.ceil(total / honest)
    probability = 0.5 if bits > 1 else shuffled_bits_probability(epsilon, delta, levels, coordinates, honest)
    standard_deviation = math.sqrt(bits * honest * probability * (1 - probability))
    exact = gaussian_standard_deviation(epsilon, delta, levels * math.sqrt(coordinates))
    result = {
        "noise_bits_total": total,
        "bits_per_person": bits,
        "probability": probability,
        "noise_standard_deviation": standard_deviation,
        "against_analytic_gaussian": standard_deviation / exact,
        "bits_sent_per_person": coordinates * (levels + bits),
    }
    _show_figures("shuffled bits", result, as_json)


@accounts.command()
def compose(
    file: Annotated[
        Path, Argument(metavar="FILE", help="JSON or TOML file with an event, or a list (TOML: key events).")
    ],
    delta: Annotated[list[float], Option(help="Delta at which to report epsilon. Repeat it for more.")] = [1e-6],  # noqa: B006 - typer copies it
    as_json: Json = False,
) -> None:
    """Compute the privacy of events on the same record, in sequence. docs/accounting.md names the events."""
    value = read_document(file)
    events = value.get("events") if isinstance(value, dict) and set(value) == {"events"} else value
    event = read_event({"event": "sequential", "events": events} if isinstance(events, list) else value)
    curve = account(event)
    result: dict[str, Any] = {"exact": curve.exact, "proof": curve.proof}
    result["curve"] = [{"delta": d, "epsilon": finite_or_none(curve.epsilon(d))} for d in delta]
    if as_json:
        print_json(result)
        return
    rows = [(f"epsilon at delta {row['delta']:g}", row["epsilon"]) for row in result["curve"]]
    print_table("composition", [*rows, (figure_name("exact"), curve.exact), ("proof", curve.proof)])


def finite_or_none(value: float) -> float | None:
    """Return a finite number, or None, since JSON has no infinity."""
    return value if math.isfinite(value) else None


def experiment(name: Name, url: Url = URL, as_json: Json = False) -> None:
    """Show what an experiment promises to a person: against whom, round by round, and why it is true.

    The command refuses an answer whose rounds do not make its certificates.
    """
    record = request_json("GET", f"{url}/experiments/{name}/privacy")
    certificates = read_certificates(record)
    if as_json:
        print_json(record)
        return
    for cohort, certificate in certificates.items():
        subject = f"a person of {cohort}" if cohort else "one person"
        for claim in certificate.claims:
            rows = [("protects", claim.protects), *claim_rows(claim.epsilon, claim.delta)]
            rows += [*_report_cost_rows(claim), (figure_name("exact"), claim.exact), ("proof", claim.proof)]
            print_table(f"{name}: {subject}'s privacy against {claim.adversary}", rows)
        _print_assumptions(certificate)
    for promise in [*record.get("sources", []), *record.get("tiers", []), record]:
        if promise.get("rounds"):
            print_rounds(promise["rounds"])


def _report_cost_rows(claim: Claim) -> list[tuple[str, Any]]:
    """Return table rows with the cost of one report, if a claim is of several reports."""
    if not (isinstance(claim.event, Repeated) and isinstance(claim.event.of, Parallel)):
        return []
    cost = account(claim.event.of).epsilon(claim.delta)
    return [("reports", claim.event.count), ("epsilon of one report", finite_or_none(cost))]


def print_rounds(rounds: list[dict[str, Any]]) -> None:
    """Print a table of an experiment's last rounds, with the numeric parameters of their mechanism.

    The epsilon of a mechanism is that of one message, and not the promise; the table has that of the whole report.
    """
    rows = [{key: row[key] for key in _COLUMNS} | _select_numbers(row["mechanism"]) for row in rounds[-_MAX_ROUNDS:]]
    shown_rows = [dict(name_figures(row)) for row in rows]
    print_rows(f"the last {len(shown_rows)} of {len(rounds)} rounds: {rounds[-1]['mechanism']['type']}", shown_rows)


def _select_numbers(mechanism: dict[str, Any]) -> dict[str, int | float]:
    """Select a mechanism's numbers; its epsilon becomes the local epsilon of all its repeats."""
    numbers = {key: value for key, value in mechanism.items() if isinstance(value, int | float)}
    if "epsilon" not in numbers:
        return numbers
    return {"local_epsilon": numbers.pop("epsilon") * numbers.get("repeats", 1), **numbers}


def verify(
    file: Annotated[Path, Argument(metavar="FILE", help="A certificate, or a privacy record that holds one, as JSON.")],
    as_json: Json = False,
) -> None:
    """Recompute every claim of a certificate from nothing but the file; exit with 1 if one does not hold.

    The rounds of a privacy record are checked as well: they must make its certificates.
    """
    certificates = read_certificates(read_document(file))
    verdicts = {cohort: recompute(certificate) for cohort, certificate in certificates.items()}
    if as_json:
        claims = {cohort: msgspec.to_builtins(cohort_verdicts) for cohort, cohort_verdicts in verdicts.items()}
        sources = [{"name": name, "claims": cohort_verdicts} for name, cohort_verdicts in claims.items() if name]
        document = {"experiment": certificates[""].experiment, "claims": claims[""]}
        print_json(document | ({"sources": sources} if sources else {}))
    else:
        for cohort, certificate in certificates.items():
            _print_verdicts(cohort, certificate, verdicts[cohort])
    if not all(verdict.holds for cohort_verdicts in verdicts.values() for verdict in cohort_verdicts):
        raise typer.Exit(1)


def _print_verdicts(cohort: str, certificate: Certificate, verdicts: list[Verdict]) -> None:
    """Print a table for each verdict on a certificate, then what the certificate assumes."""
    subject = f"{certificate.experiment}, people of {cohort}" if cohort else certificate.experiment
    for verdict in verdicts:
        claim = [(f"claimed {key}", value) for key, value in claim_rows(verdict.epsilon, verdict.delta)]
        delta_rows = [] if verdict.epsilon is None else [("delta", verdict.recomputed_delta)]
        rows = [("protects", verdict.protects), *claim, *delta_rows, ("proof", verdict.proof)]
        print_table(f"{subject}: against {verdict.adversary}", [*rows, ("holds", "yes" if verdict.holds else "NO")])
    _print_assumptions(certificate)


def _print_assumptions(certificate: Certificate) -> None:
    screen.print("assumed: " + "; ".join(certificate.assumes), markup=False)


def ledger(
    path: Annotated[Path | None, Option(help="The device's ledger; default PRIVATEER_LEDGER.")] = None,
    delta: Annotated[float, Option(help="The delta at which the composed epsilon is read.")] = 1e-5,
    as_json: Json = False,
) -> None:
    """Show what this device has spent, by experiment, by server and together, and which reports still wait."""
    if not 0 <= delta < 1:
        raise SpecError("must be at least 0 and below 1", field="--delta", remedy="1e-5 is usual")
    payments, waiting = _read_ledger(path or default_path())
    rows: list[dict[str, Any]] = [
        {
            name: finite_or_none(value) if isinstance(value, float) else value
            for name, value in vars(payment).items()
            if name not in ("period", "pinned")
        }
        | {"waiting": payment.experiment in waiting}
        for payment in payments
    ]
    groups = dict[str, list[Payment]]()
    for payment in payments:
        groups.setdefault(server_origin(payment.experiment), []).append(payment)
    servers = {server: _sum_costs(server_payments) for server, server_payments in groups.items()}
    composed = {"epsilon_composed": _composed_epsilon(payments, delta), "at_delta": delta}
    totals = {"experiments": len(payments), **_sum_costs(payments), **composed, "waiting": len(waiting)}
    if as_json:
        print_json({"payments": rows, "servers": servers, "spent": totals})
        return
    for row in rows:
        print_table(str(row.pop("experiment")), name_figures(row | {"day": _format_day(row["day"])}))
    for server, sums in servers.items():
        print_table(f"at {server}", name_figures(sums))
    print_table("together", name_figures(totals))


def _read_ledger(path: Path) -> tuple[list[Payment], set[str]]:
    """Read the payments of a ledger, and the experiments with pending reports; refuse other files."""
    if not path.is_file():
        raise SpecError(f"there is no ledger at {path}", field="--path", remedy="name the device's ledger")
    try:
        device = Ledger(path)
        payments, waiting = device.payments(), {report.experiment for report in device.pending_reports()}
        msgspec.convert([vars(payment) for payment in payments], list[Payment])
    except (sqlite3.Error, msgspec.ValidationError, TypeError):
        raise SpecError("not a ledger, or a damaged one", field="--path", remedy="name the device's ledger") from None
    return payments, waiting


def _format_day(day: int) -> str:
    """Return the date of a day since 1970, or the number itself if it is out of range."""
    try:
        return str(date(1970, 1, 1) + timedelta(days=day))
    except OverflowError:
        return str(day)


def _sum_costs(payments: list[Payment]) -> dict[str, float | None]:
    """Return the sums of costs, which the ledger's limits bound."""
    return {f"{cost}_in_sum": finite_or_none(sum(getattr(payment, cost) for payment in payments)) for cost in COSTS}


def _composed_epsilon(payments: list[Payment], delta: float) -> float | None:
    """Return the composed epsilon of all payments; None if any payment has no promise."""
    if any(math.isinf(payment.epsilon) for payment in payments):
        return None
    events = tuple(Approximate(payment.epsilon, payment.delta) for payment in payments)
    return finite_or_none(account(Sequential(events)).epsilon(delta)) if events else 0.0
