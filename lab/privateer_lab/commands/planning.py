"""``plan``: what an experiment would cost and earn under other promises."""

import math
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from privateer.errors import SpecError
from privateer.experiment import BATCH_MAX, Model
from privateer_lab.commands.experiments import Jobs, Json, On, Set
from privateer_lab.output import open_folder, print_json, progress, readable, screen
from privateer_lab.parallel import SEEDS_MAX
from privateer_lab.plan import EPSILON_MAX, EPSILONS, MODELS, SHARES, batches, outcome, runs_of, variants
from privateer_lab.specs import load_spec


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(plan)


def plan(
    spec: Annotated[Path, typer.Argument(help="TOML file with a population section: people as you expect them.")],
    models: Annotated[str, typer.Option(help="Trust models, with commas.")] = ",".join(MODELS),
    epsilons: Annotated[str, typer.Option(help="Promises, with commas.")] = ",".join(map(str, EPSILONS)),
    users: Annotated[int | None, typer.Option(min=1, help="People; default: the spec's horizon.")] = None,
    seeds: Annotated[int, typer.Option(min=1, max=SEEDS_MAX, help="Runs of each promise.")] = 4,
    plot: Annotated[Path | None, typer.Option(help="Draw regret against people: PNG and SVG of this name.")] = None,
    jobs: Jobs = None,
    backend: On = "processes",
    settings: Set = [],  # noqa: B006 - typer's way to say none
    as_json: Json = False,
) -> None:
    """Regret, people needed and batches needed, for trust models and epsilons, before anybody is asked."""
    parsed = load_spec(spec, settings, users)
    if parsed.population is None:
        raise SpecError("missing", field="population", remedy="add [population] name = 'peaks' to the spec")
    promises = _epsilons(epsilons)
    wanted = variants(parsed, _models(models), promises)
    if plot is not None:
        open_folder(plot.parent)
    total = len(wanted) * seeds
    done = progress(runs_of(wanted, seeds, jobs, backend), total, "runs")
    outcomes = [
        outcome(variant, found)
        for place, variant in enumerate(wanted)
        if (found := [run for at, run in done if at == place])
    ]
    result = {"experiment": parsed.experiment.name, "outcomes": outcomes, "batches": batches(parsed, promises)}
    if plot is not None:
        _draw(outcomes, parsed.experiment.name, plot)
    print_json(result) if as_json else _print(result)
    if len(done) < total:
        raise typer.Exit(130)


def _models(text: str) -> list[Model]:
    found = [model for model in MODELS if model in text.split(",")]
    if len(found) < len(set(text.split(","))):
        raise SpecError("not a trust model", field="--models", remedy=f"choose from {','.join(MODELS)}")
    return found


def _epsilons(text: str) -> list[float]:
    try:
        found = [float(one) for one in text.split(",")]
    except ValueError:
        found = [math.nan]
    if not all(0 < one <= EPSILON_MAX for one in found):
        raise SpecError(f"numbers above 0, at most {EPSILON_MAX}", field="--epsilons", remedy="write .5,1,2")
    return found


def _print(result: dict[str, Any]) -> None:
    table = Table(title=result["experiment"], title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("model")
    needed = [f"people to {share:.0%}" for share in SHARES]
    for heading in ("epsilon", "regret", "95 %", "worst", "gain", *needed):
        table.add_column(heading, justify="right")
    for row in result["outcomes"]:
        interval = "" if row["regret_ci95"] is None else f"± {readable(row['regret_ci95'])}"
        gain = "" if row["gain"] is None else f"{row['gain']:.0%}"
        figures = (f"{row['epsilon']:g}", readable(row["regret_mean"]), interval, readable(row["regret_worst"]), gain)
        people = ("more" if value is None else f"{value:,}" for value in row["people_needed"].values())
        table.add_row(row["model"], *figures, *people)
    screen.print(table)
    people = result["outcomes"][0]["people"]
    screen.print(f"{people:,} people; gain: of what the best policy earns above the best constant arm, on the average")
    screen.print("people to 50 %: after how many the policy earns half of that; more: not within this horizon\n")
    for row in result["batches"]:
        limit = row["local_epsilon_max"]
        told = [
            f"{cost} takes a min_batch of {row[name]:,}" if row[name] is not None else f"{cost} is out of reach"
            for cost, name in (("twice that", "min_batch_to_double"), (f"{limit:g}", "min_batch_at_max"))
        ]
        screen.print(f"shuffle, epsilon {row['epsilon']:g}: that a report alone may cost {', '.join(told)}")
    screen.print(f"out of reach: above local_epsilon_max, or beyond the largest min_batch, {BATCH_MAX:,}")


def _draw(outcomes: list[dict[str, Any]], name: str, path: Path) -> None:
    from privateer_lab.plots import COLOURS, panels, save

    models = list(dict.fromkeys(row["model"] for row in outcomes))
    epsilons = list(dict.fromkeys(row["epsilon"] for row in outcomes))
    figure, axes = panels(len(models), f"{name}: regret a person")
    top = max(point["regret_worst"] for row in outcomes for point in row["path"])
    for axis, model in zip(axes, models, strict=True):
        for row in (row for row in outcomes if row["model"] == model):
            people = [point["people"] for point in row["path"]]
            colour = COLOURS[epsilons.index(row["epsilon"]) % len(COLOURS)]
            mean = [point["regret_mean"] for point in row["path"]]
            worst = [point["regret_worst"] for point in row["path"]]
            axis.plot(people, mean, color=colour, label=f"epsilon {row['epsilon']:g}")
            axis.plot(people, worst, color=colour, linewidth=0.7, linestyle=":")
        axis.axhline(
            outcomes[0]["best_constant_regret"] / outcomes[0]["people"], color="#555555", linestyle="--", linewidth=0.8
        )
        axis.set_xscale("log")
        axis.set_ylim(0, top * 1.05)
        axis.set_title(model, fontsize=9)
        axis.set_xlabel("people")
    axes[0].set_ylabel("mean regret of all people so far")
    axes[0].legend(title="dotted: worst seed; dashed: best constant arm", title_fontsize=7, fontsize=7)
    save(figure, path)
