"""``spec-from``, ``simulate``, ``load``, ``peers``: an experiment with simulated people."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final, cast

import msgspec
import typer

from privateer_core.answer.people import People
from privateer_core.errors import SpecError, printable
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.spec import Spec
from privateer_lab.baselines.base import chosen
from privateer_lab.baselines.run import play, summaries
from privateer_lab.cli.command_line import (
    Cluster,
    Jobs,
    Json,
    LowerIsBetter,
    Missing,
    On,
    PeopleSpec,
    Person,
    Population,
    Seeds,
    Set,
    Users,
)
from privateer_lab.cli.input_files import load_spec
from privateer_lab.cli.output import begin, print_json, print_rows, print_table, progress, screen
from privateer_lab.drafting.spec_draft import draft
from privateer_lab.drafting.written_draft import Draft, people_file
from privateer_lab.environments import with_people
from privateer_lab.figures import margin, named
from privateer_lab.planning.sweep import SweepJournal, cells, combinations, parse_axes, write_parquet
from privateer_lab.planning.sweep import sweep as rows_of
from privateer_lab.simulation.parallel import SEEDS_MAX, Backend
from privateer_lab.simulation.simulate import figures_of
from privateer_lab.simulation.simulate import simulate as runs_of
from privateer_lab.simulation.summary import summary
from privateer_lab.tables.rewards import parse_bounds

_LARGE: Final = 8 << 20
"""Bytes of a file that takes more than a second to read."""
_OF_BATCHES: Final = ("min_batch", "honest_fraction", "local_epsilon_max")
"""Keys of a promise that say nothing where reports are not shuffled in batches."""

_A_RUN: Final = "a run takes a second to a minute"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("spec-from")(spec_from)
    app.command()(simulate)
    app.command(
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
        help="Have simulated people take part over HTTP, with the real client: privateer load NAME --users N.",
    )(load)
    app.command()(peers)


def spec_from(
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="A CSV file with a header, plain or gzipped, or a Parquet file.")
    ],
    name: Annotated[str | None, typer.Option(help="The experiment's name; the file's by default.")] = None,
    arms: Annotated[str, typer.Option(help="Names of the options, separated by commas.")] = "",
    label: Annotated[str | None, typer.Option(help="Column of the class that decides which option is right.")] = None,
    reward: Annotated[str | None, typer.Option(help="Column of a log: what came of a choice.")] = None,
    arm: Annotated[str | None, typer.Option(help="Column of a log: what was chosen.")] = None,
    bounds: Annotated[
        list[str],
        typer.Option(help="Public bounds of a numeric column, or of the reward: hours=0:80, 0:500. May be repeated."),
    ] = [],  # noqa: B006 - typer's way to say none
    control: Annotated[
        str | None, typer.Option(help="Option with which the others are compared; the first by name by default.")
    ] = None,
    person: Person = None,
    cluster: Cluster = None,
    lower_is_better: LowerIsBetter = False,
    missing: Missing = [],  # noqa: B006
    ignore: Annotated[list[str], typer.Option(help="A column that is no feature. May be repeated.")] = [],  # noqa: B006
    segments: Annotated[
        str, typer.Option(help="Columns by which effects are wanted, separated by commas: makes the spec of a test.")
    ] = "",
    model: Annotated[
        str | None, typer.Option(help="The promise's trust model; by default one for so many rows.")
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="The promise's epsilon; 1 by default.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="File to write the spec to; simulated people made from a log go beside it.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Draft a spec from the columns of a CSV or Parquet file; say what comes from the data and would become public.

    With --arm and --reward the file is a log of what people got and what came of it: a model is fitted to it, and
    plan and simulate are then about these people.
    """
    given = dict(_bounds(one, reward) for one in bounds)
    if out:
        _check_writable(out, data)
    size = data.stat().st_size if data.is_file() else 0
    if size >= _LARGE and not as_json:
        begin(f"reading {data}, {size >> 20:,} MiB", "a few seconds")
    made = draft(
        data,
        name=name or _name(data),
        arms=_listed(arms),
        label=label,
        reward=reward,
        arm=arm,
        ignore=ignore,
        segments=_listed(segments),
        bounds=given,
        control=control,
        person=person,
        cluster=cluster,
        lower_is_better=lower_is_better,
        missing=missing,
        model=model,
        epsilon=epsilon,
        seen_from=out.parent if out else None,
    )
    if out:
        if made.log and not as_json:
            begin(f"fitting what comes of each option for whom to {made.log.rows.kept:,} rows", "some seconds")
        if (made.log or made.labelled) and not as_json:
            begin("trying features and algorithms on these people", "up to a minute")
        made.write(out)
    if as_json:
        fit = list(made.people.notes) if out and made.people else []
        text, said = (made.fitted, made.chosen) if out else (made.text, [])
        confirm = made.confirmed if out else made.confirm
        print_json({"spec": text, "confirm": list(confirm), "notes": [*made.notes, *said], "people": fit})
        return
    if not out:
        typer.echo(made.text, nl=False)
    _explain(made, data, out)


def _check_writable(out: Path, data: Path) -> None:
    """Refuse a file before the minutes that making it may take, above all the data themselves."""
    if data.resolve() in (out.resolve(), people_file(out).resolve()):
        raise SpecError("would replace the data", field="--out", remedy="name another file, such as spec.toml")
    if not out.parent.is_dir():
        raise SpecError(f"there is no folder {out.parent}", field="--out", remedy="make it, or name another file")


def _listed(text: str) -> list[str]:
    return [one.strip() for one in text.split(",") if one.strip()]


def _name(data: Path) -> str:
    """Make a name that a spec may have of a file's."""
    letters = "".join(one if one.isascii() and one.isalnum() else "-" for one in data.name.split(".")[0].lower())
    return letters.strip("-")[:63] or "my-experiment"


def _bounds(text: str, reward: str | None) -> tuple[str, tuple[float, float]]:
    name, bounds = parse_bounds(text)
    if name is None and reward is None:
        raise SpecError("names no column", field="--bounds", remedy="write column=low:high, as in hours=0:80")
    return name or str(reward), bounds


def _explain(made: Draft, data: Path, out: Path | None) -> None:
    """Say on standard error what somebody has to confirm, so that standard output is the spec alone."""
    lines = []
    if out:
        lines = [f"Wrote {out} and {people_file(out)}." if made.people else f"Wrote {out}."]
    confirm = made.confirmed if out else made.confirm
    if confirm:
        lines += ["Everybody may read a spec. These come from the data: change or confirm them before you create it."]
        lines += [f"  {one}" for one in confirm]
    lines += made.notes
    if out and made.people:
        kept = f"{people_file(out).name} has the features and rewards of these people: keep it as you keep {data.name}."
        lines += [*made.people.notes, *made.chosen, kept, "", f"Next: privateer plan {out}"]
    elif out:
        lines += made.chosen
    elif made.log:
        lines.append("With --out FILE simulated people are made of the rows, too.")
    for line in lines:
        typer.echo(printable(line), err=True)


def simulate(
    spec: PeopleSpec,
    population: Population = None,
    users: Users = None,
    seeds: Seeds = 1,
    jobs: Jobs = None,
    backend: On = "processes",
    settings: Set = [],  # noqa: B006 - typer's way to say none
    baseline: Annotated[
        list[str], typer.Option(help="Another policy to compare with, or 'all'; see docs/baselines.md.")
    ] = [],  # noqa: B006
    vary: Annotated[
        list[str], typer.Option(help="Run all values of a key, into --out: section.key=value,value. May be repeated.")
    ] = [],  # noqa: B006
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A table of runs, .csv or .parquet, that grows.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run an experiment with simulated people in this process.

    With --out every run is a row of a table: of all combinations of what you --vary. After Ctrl-C the same command goes
    on where it stopped.
    """

    def variant(changes: list[str]) -> Spec:
        parsed = load_spec(spec, settings + changes, users)
        return parsed if population is None else with_people(parsed, population)

    if vary or out:
        if baseline or as_json or out is None:
            option = "--baseline" if baseline else "--json" if as_json else "--out"
            remedy = "name a file with --out, and give neither --baseline nor --json with it"
            raise SpecError("does not fit a table of runs", field=option, remedy=remedy)
        _fill_table(variant, parse_axes(vary), out, seeds, jobs, backend)
        return
    parsed = variant([])
    names = chosen(baseline, parsed)
    started = time.perf_counter()
    coming = runs_of(parsed, seeds, jobs, backend)
    if not as_json:
        people = getattr(parsed.experiment, parsed.people_key)
        begin(f"simulating {people:,} {_counted(parsed)}, {seeds} run{'s' * (seeds > 1)}", _A_RUN)
    runs = progress(coming, seeds, "runs")
    promise = parsed.privacy.model_dump() | {"local_epsilon_max": parsed.privacy.alone_most}
    result = {"experiment": parsed.name, **promise, **summary(parsed, runs, started)}
    if names and len(runs) == seeds:
        others = progress(play(parsed, names, seeds, jobs, backend), seeds, "baselines")
        result["baselines"] = summaries(others)
    if as_json:
        print_json(result)
    else:
        idle = () if parsed.privacy.trust.batched else _OF_BATCHES
        rows = [(key, value) for key, value in result.items() if key not in idle]
        shown = [(key, value) for key, value in rows if not isinstance(value, list | dict | None)]
        print_table(parsed.name, named(dict(shown)))
        together = f"In all {len(runs)} runs together: " if len(runs) > 1 else ""
        screen.print(together + msgspec.convert(result["people"], People).sentence, soft_wrap=True)
        for line in result["assumed"]:
            screen.print(line, soft_wrap=True)
        for warning in result["warnings"]:
            screen.print(f"warning: {warning}")
        print_baselines(result)
    if len(runs) < seeds:
        raise typer.Exit(130)


def _fill_table(
    variant: Callable[[list[str]], Spec],
    axes: dict[str, list[str]],
    out: Path,
    seeds: int,
    jobs: int | None,
    backend: Backend,
) -> None:
    """Run all variants that a table has not yet."""
    if out.suffix not in (".csv", ".parquet"):
        raise SpecError("must end in .csv or .parquet", field="--out", remedy="name such a file")
    wanted = cells(((values, variant(changes)) for values, changes in combinations(axes)), seeds)
    path = out if out.suffix == ".csv" else out.with_name(out.name + ".csv")
    with SweepJournal(path, axes, figures_of(wanted[0].spec)) as journal:
        missing = len(journal.missing(wanted))
        begin(f"{missing} of {len(wanted)} runs into {path}", f"{_A_RUN}; Ctrl-C keeps what came")
        done = progress(rows_of(wanted, journal, jobs, backend), missing, "runs")
    if len(done) < missing:
        raise typer.Exit(130)
    if path != out:
        write_parquet(path, out)
    screen.print(f"{out}: {len(wanted)} runs, {missing} of them new")


def _counted(spec: Spec) -> str:
    return "people" if spec.people_key == "horizon" else "choices"


def load(context: typer.Context) -> None:
    """Hand the arguments to the load driver, which an image may hold without the rest of the lab."""
    from privateer_lab.load.command import main

    main(context.args)


def peers(
    spec: PeopleSpec,
    beside: Annotated[
        list[str],
        typer.Option("--with", help="Another algorithm for the same experiment, with its defaults. May be repeated."),
    ] = [],  # noqa: B006
    peer: Annotated[
        list[str],
        typer.Option(help="Part of the names of the peers that you want; all by default. May be repeated."),
    ] = [],  # noqa: B006
    users: Users = None,
    seeds: Seeds = 2,
    first_seed: Annotated[int, typer.Option(min=0, max=SEEDS_MAX, help="The first run's seed.")] = 0,
    settings: Set = [],  # noqa: B006 - typer's way to say none
    as_json: Json = False,
) -> None:
    """Compare an experiment, and other algorithms for it, with libraries that others wrote, with the same people.

    Of the libraries DP-EBM alone has privacy; it plays where the spec's privacy is central.
    """
    from privateer_lab.baselines.peers import compare, contestants, side_by_side

    parsed = load_spec(spec, settings, users)
    others = [load_spec(spec, settings, users, algorithm_name=name) for name in beside]
    entered = contestants(parsed, others, peer)
    if not as_json:
        begin(f"{seeds} run{'s' * (seeds > 1)} of each of {', '.join(entered)}", "minutes for 100,000 people")
    coming = compare(entered, cast(ArmsSpec, parsed), range(first_seed, first_seed + seeds))
    rows = progress(coming, seeds * len(entered), "runs")
    found = side_by_side(rows, parsed.experiment.horizon)
    if as_json:
        promise = parsed.privacy.model_dump(include={"model", "epsilon", "delta"})
        people = {"people": parsed.experiment.horizon, "seeds": seeds, "first_seed": first_seed}
        print_json({"experiment": parsed.name, **promise, **people, "policies": found})
    else:
        title = "the same people; speed is by a second of processor time"
        print_rows(title, [_peer_row(*one) for one in found.items()])
    if len(rows) < seeds * len(entered):
        raise typer.Exit(130)


def _peer_row(name: str, figures: dict[str, float | None]) -> dict[str, object]:
    error = figures["reward_error"]
    return {
        "policy": name,
        "mean reward": figures["reward_mean"],
        "standard error": "" if error is None else error,
        "regret": figures["regret_mean"],
        "95 % interval": margin(figures["regret_ci95"]),
        "decisions a second": figures["decisions_per_second"],
        "people a second, learning included": figures["people_per_second"],
    }


def print_baselines(result: dict[str, Any]) -> None:
    """Print a row for each of a simulation's ``baselines``, under one for the policy itself; nothing without them."""
    if baselines := result.get("baselines"):
        policies = {result["experiment"]: {**result, "leaks": False}, **baselines}
        print_rows("baselines", [_baseline_row(name, figures) for name, figures in policies.items()])


def _baseline_row(name: str, figures: dict[str, Any]) -> dict[str, Any]:
    return {
        "policy": f"{name} (leaks: not private)" if figures["leaks"] else name,
        "regret": figures["regret_mean"],
        "95 % interval": margin(figures["regret_ci95"]),
        "worst seed": figures["regret_worst"],
        "reward": figures["reward_mean"],
    }
