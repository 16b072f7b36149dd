"""``account``: calculators of privacy."""

import math
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from privateer_core.accounting.accountant import account
from privateer_core.accounting.amplification import amplified_local_epsilon
from privateer_core.accounting.binomial import shuffled_bits_probability, shuffled_bits_trials
from privateer_core.accounting.clones import clones_local_epsilon
from privateer_core.accounting.events import (
    Event,
    Gaussian,
    ShuffledMessage,
    ShuffledResponse,
    ShuffledSubset,
    read_event,
)
from privateer_core.accounting.gaussian import (
    classic_gaussian_standard_deviation,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_standard_deviation,
)
from privateer_core.accounting.numerics import check
from privateer_lab.cli.documents import read_document
from privateer_lab.cli.options import Json
from privateer_lab.cli.output import print_json, print_table

Epsilon = Annotated[float, typer.Option(help="Epsilon of the promise.")]
Delta = Annotated[float, typer.Option(help="Delta of the promise.")]
Sensitivity = Annotated[float, typer.Option(help="L2 distance between neighbours.")]
Batch = Annotated[int, typer.Option(help="Number of reports that are shuffled together.")]

accounts = typer.Typer(help="Calculate privacy, and check records and certificates.", no_args_is_help=True)


class Bound(StrEnum):
    """Bounds for the privacy of a shuffled message."""

    CLONES = "clones"
    BINARY = "binary"
    K_ARY = "k-ary"
    SUBSET = "subset"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(accounts, name="account")


def spaced(figures: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the rows of a table: the keys of a document as words."""
    return [(key.replace("_", " "), value) for key, value in figures.items()]


def _show(title: str, result: dict[str, Any], as_json: bool) -> None:
    print_json(result) if as_json else print_table(title, spaced(result))


@accounts.command()
def classic_gaussian(epsilon: Epsilon, delta: Delta, sensitivity: Sensitivity = 1.0, as_json: Json = False) -> None:
    """Show the true privacy of the textbook's normal noise, which is proved only for epsilon below 1."""
    standard_deviation = classic_gaussian_standard_deviation(epsilon, delta, sensitivity)
    result = {
        "claimed_epsilon": epsilon,
        "claimed_delta": delta,
        "standard_deviation": standard_deviation,
        "true_delta": gaussian_delta(epsilon, standard_deviation, sensitivity),
        "true_epsilon_at_delta": gaussian_epsilon(delta, standard_deviation, sensitivity),
        "exact_standard_deviation": gaussian_standard_deviation(epsilon, delta, sensitivity),
    }
    _show("classic Gaussian", result, as_json)


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
    _show("analytic Gaussian", result, as_json)


@accounts.command()
def amplification(
    epsilon: Epsilon,
    delta: Delta,
    batch: Batch,
    bound: Annotated[
        Bound, typer.Option(help="clones: any pure message; subset: subset selection; others: randomized response.")
    ] = Bound.CLONES,
    symbols: Annotated[int, typer.Option(help="Size of the alphabet, for k-ary and subset.")] = 2,
    own: Annotated[int, typer.Option(help="How many symbols are a person's own, for subset.")] = 1,
    limit: Annotated[float, typer.Option(help="Largest local epsilon to consider.")] = 16.0,
    as_json: Json = False,
) -> None:
    """Compute the largest local epsilon of one message whose shuffled batch keeps a promise."""
    if bound is Bound.BINARY:
        symbols = 2
    at_most_limit = 0 < epsilon < math.inf and epsilon <= limit <= 16
    check("--epsilon", epsilon, at_most_limit, "above 0 and at most --limit, which is at most 16")
    check("--delta", delta, 0 < delta < 1, "above 0 and below 1")
    if bound is Bound.CLONES:
        local_epsilon = clones_local_epsilon(epsilon, delta, batch, limit)
        event: Event = ShuffledMessage(local_epsilon, batch)
    else:
        own = own if bound is Bound.SUBSET else 1
        account(ShuffledSubset(min(limit, epsilon), symbols, own, batch)).delta(epsilon)  # refuses what is out of range
        local_epsilon = amplified_local_epsilon(epsilon, delta, symbols / own, batch, limit)
        response = ShuffledResponse(local_epsilon, symbols, batch)
        event = ShuffledSubset(local_epsilon, symbols, own, batch) if bound is Bound.SUBSET else response
    curve = account(event)
    result = {
        "epsilon": epsilon,
        "delta": delta,
        "batch": batch,
        "bound": bound.value,
        "local_epsilon": local_epsilon,
        "delta_reached": curve.delta(epsilon),
        "exact": curve.exact,
        "proof": curve.proof,
    }
    _show("amplification by shuffling", result, as_json)


@accounts.command()
def shuffled_bits(
    epsilon: Epsilon,
    delta: Delta,
    coordinates: Annotated[int, typer.Option(min=1, help="Number of coordinates of the vector.")],
    batch: Batch,
    levels: Annotated[int, typer.Option(min=1, help="Number of steps of one coordinate.")] = 10,
    honest_fraction: Annotated[float, typer.Option(help="Share of the batch whose noise counts.")] = 1.0,
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
    _show("shuffled bits", result, as_json)


@accounts.command()
def compose(
    file: Annotated[Path, typer.Argument(help="JSON or TOML file with an event, or a list (TOML: key events).")],
    delta: Annotated[list[float], typer.Option(help="Delta at which to report epsilon. Repeat it for more.")] = [1e-6],  # noqa: B006 - typer copies it
    as_json: Json = False,
) -> None:
    """Compute the privacy of events on the same record, in sequence. docs/accounting.md names the events."""
    value = read_document(file)
    events = value.get("events") if isinstance(value, dict) and set(value) == {"events"} else value
    event = read_event({"event": "sequential", "events": events} if isinstance(events, list) else value)
    curve = account(event)
    result: dict[str, Any] = {"exact": curve.exact, "proof": curve.proof}
    result["curve"] = [{"delta": d, "epsilon": finite(curve.epsilon(d))} for d in delta]
    if as_json:
        print_json(result)
        return
    rows = [(f"epsilon at delta {row['delta']:g}", row["epsilon"]) for row in result["curve"]]
    print_table("composition", [*rows, ("exact", curve.exact), ("proof", curve.proof)])


def finite(value: float) -> float | None:
    """Return a number for JSON, which has no infinity: None stands for it."""
    return value if math.isfinite(value) else None
