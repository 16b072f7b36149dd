"""``spec-from``, ``simulate``, ``load``, ``peers``: experiments with simulated participants."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final, cast

import msgspec
import typer
from typer import Argument, Option

from privateer_core.answer.people import People
from privateer_core.errors import SpecError, printable
from privateer_core.privacy.trust import Crowd
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.spec import Spec
from privateer_lab.baselines.run import run_baselines, select_baselines, summarize_runs
from privateer_lab.cli import command_line as options
from privateer_lab.cli.input_files import load_spec
from privateer_lab.cli.output import announce_task, print_json, print_lines, print_rows, print_table, progress, screen
from privateer_lab.drafting.feature_drafts import fold_notes
from privateer_lab.drafting.spec_draft import draft
from privateer_lab.drafting.written_draft import Draft, population_path
from privateer_lab.environments import with_population
from privateer_lab.planning.sweep import SweepJournal, iterate_combinations, make_cells, parse_axes, write_parquet
from privateer_lab.planning.sweep import run_sweep as sweep_rows
from privateer_lab.render.words import format_margin, name_figures
from privateer_lab.simulation.parallel import SEEDS_MAX, Backend
from privateer_lab.simulation.simulate import list_figures, summarize
from privateer_lab.simulation.simulate import simulate as simulate_runs
from privateer_lab.tables.rewards import parse_bounds

_LARGE_FILE_BYTES: Final = 8 << 20
"""Size of a file that takes more than a second to read."""
_BATCH_KEYS: Final = ("min_batch", "honest_fraction", "local_epsilon_max")
"""Keys of a promise without meaning if reports are not shuffled in batches."""
_RUN_DURATION: Final = "a run takes a second to a minute"


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
        Path, Argument(metavar="DATA", help="A CSV file with a header, plain or gzipped, or a Parquet file.")
    ],
    name: Annotated[str | None, Option(help="The experiment's name; the file's by default.")] = None,
    arms: Annotated[str, Option(help="Names of the options, separated by commas.")] = "",
    label: Annotated[str | None, Option(help="Column of the class that decides which option is right.")] = None,
    reward: Annotated[str | None, Option(help="Column of a log: what came of a choice.")] = None,
    arm: Annotated[str | None, Option(help="Column of a log: what was chosen.")] = None,
    bounds: Annotated[
        list[str],
        Option(help="Public bounds of a numeric column, or of the reward: hours=0:80, 0:500. May be repeated."),
    ] = [],  # noqa: B006 - typer's way to say none
    control: options.Control = None,
    person: options.Person = None,
    cluster: options.Cluster = None,
    lower_is_better: options.LowerIsBetter = False,
    missing: options.Missing = [],  # noqa: B006
    ignore: Annotated[list[str], Option(help="A column that is no feature. May be repeated.")] = [],  # noqa: B006
    known: Annotated[
        list[str], Option(help="A feature known before the choice, though a log lets doubt it. May be repeated.")
    ] = [],  # noqa: B006
    segments: Annotated[
        str, Option(help="Columns by which effects are wanted, separated by commas: makes the spec of a test.")
    ] = "",
    model: Annotated[str | None, Option(help="The promise's trust model; by default one for so many rows.")] = None,
    epsilon: Annotated[float | None, Option(help="The promise's epsilon; 1 by default.")] = None,
    out: Annotated[
        Path | None, Option(help="File to write the spec to; simulated people made from a log go beside it.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Draft a spec from the columns of a CSV or Parquet file; say what comes from the data and would become public.

    With --arm and --reward the file is a log of what people got and what came of it: a model is fitted to it, and
    plan and simulate are then about these people.
    """
    bounds_by_column = dict(_parse_column_bounds(bounds_text, reward) for bounds_text in bounds)
    if out:
        _check_writable(out, data)
    size = data.stat().st_size if data.is_file() else 0
    if size >= _LARGE_FILE_BYTES and not as_json:
        announce_task(f"reading {data}, {size >> 20:,} MiB", "a few seconds")
    drafted = draft(
        data,
        name=name or _derive_name(data),
        arms=_split_names(arms),
        label=label,
        reward=reward,
        arm=arm,
        ignore=ignore,
        known=known,
        segments=_split_names(segments),
        bounds=bounds_by_column,
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
        if drafted.log and not as_json:
            announce_task(
                f"fitting what comes of each option for whom to {drafted.log.rows.n_rows:,} rows", "some seconds"
            )
        if (drafted.log or drafted.labelled) and not as_json:
            announce_task("trying features and algorithms on these people", "up to a minute")
        drafted.write(out)
    if as_json:
        fit = list(drafted.people.notes) if out and drafted.people else []
        text, choice_notes = (drafted.text_with_choice, drafted.choice_notes) if out else (drafted.text, [])
        confirm = drafted.confirm_with_choice if out else drafted.confirm
        notes, option = [*drafted.notes, *choice_notes], drafted.single_option if out else None
        print_json({"spec": text, "confirm": list(confirm), "notes": notes, "people": fit, "single_option": option})
        return
    if not out:
        typer.echo(drafted.text, nl=False)
    _print_explanation(drafted, data, out)


def _check_writable(out: Path, data: Path) -> None:
    """Refuse an output file that cannot be written, or that would replace the data."""
    if data.resolve() in (out.resolve(), population_path(out).resolve()):
        raise SpecError("would replace the data", field="--out", remedy="name another file, such as spec.toml")
    if not out.parent.is_dir():
        raise SpecError(f"there is no folder {out.parent}", field="--out", remedy="make it, or name another file")


def _split_names(text: str) -> list[str]:
    return [entry.strip() for entry in text.split(",") if entry.strip()]


def _derive_name(data: Path) -> str:
    """Derive a valid name of an experiment from a file's name."""
    letters = "".join(c if c.isascii() and c.isalnum() else "-" for c in data.name.split(".")[0].lower())
    return letters.strip("-")[:63] or "my-experiment"


def _parse_column_bounds(text: str, reward: str | None) -> tuple[str, tuple[float, float]]:
    """Parse column=low:high, or low:high of the reward; refuse bounds without any column."""
    name, bounds = parse_bounds(text)
    if name is None and reward is None:
        raise SpecError("names no column", field="--bounds", remedy="write column=low:high, as in hours=0:80")
    return name or str(reward), bounds


def _print_explanation(drafted: Draft, data: Path, out: Path | None) -> None:
    """Print values to confirm, and notes, on standard error: standard output has the spec alone."""
    notes = fold_notes(drafted.notes)
    warnings = [note for note in notes if note.startswith("Warning:")]
    if out and drafted.people:
        file_name = population_path(out).name
        keep = f"{file_name} has the features and rewards of these people: keep it as you keep {data.name}."
        lines = [f"Wrote {out} and {population_path(out)}.", *drafted.people.warnings, *warnings]
        lines += [*drafted.choice_notes, "", *drafted.people.fit_notes, keep]
    else:
        lines = [*([f"Wrote {out}."] if out else []), *warnings, *(drafted.choice_notes if out else [])]
    lines += [*drafted.summarize_public(is_written=out is not None), *(note for note in notes if note not in warnings)]
    if drafted.log:
        hint = "With --out FILE simulated people are made of the rows, too."
        lines += ["", drafted.next_step(out)] if out else [hint]
    for line in lines:
        typer.echo(printable(line), err=True)


def simulate(
    spec: options.PeopleSpec,
    population: options.Population = None,
    users: options.Users = None,
    seeds: options.Seeds = 1,
    jobs: options.Jobs = None,
    backend: options.On = "processes",
    settings: options.Set = [],  # noqa: B006 - typer's way to say none
    baseline: Annotated[
        list[str], Option(help="Another policy to compare with, or 'all'; see docs/baselines.md.")
    ] = [],  # noqa: B006
    vary: Annotated[
        list[str], Option(help="Run all values of a key, into --out: section.key=value,value. May be repeated.")
    ] = [],  # noqa: B006
    out: Annotated[Path | None, Option(metavar="FILE", help="A table of runs, .csv or .parquet, that grows.")] = None,
    as_json: options.Json = False,
) -> None:
    """Run an experiment with simulated people in this process.

    With --out every run is a row of a table: of all combinations of what you --vary. After Ctrl-C the same command goes
    on where it stopped.
    """

    def variant(changes: list[str]) -> Spec:
        parsed = load_spec(spec, settings + changes, users)
        return parsed if population is None else with_population(parsed, population)

    if vary or out:
        if baseline or as_json or out is None:
            option = "--baseline" if baseline else "--json" if as_json else "--out"
            remedy = "name a file with --out, and give neither --baseline nor --json with it"
            raise SpecError("does not fit a table of runs", field=option, remedy=remedy)
        _fill_table(variant, parse_axes(vary), out, seeds, jobs, backend)
        return
    parsed = variant([])
    names = select_baselines(baseline, parsed)
    started = time.perf_counter()
    pending_runs = simulate_runs(parsed, seeds, jobs, backend)
    if not as_json:
        n_participants = getattr(parsed.experiment, parsed.people_key)
        unit = "people" if parsed.people_key == "horizon" else "choices"
        announce_task(f"simulating {n_participants:,} {unit}, {seeds} run{'s' * (seeds > 1)}", _RUN_DURATION)
    runs = progress(pending_runs, seeds, "runs")
    promise = parsed.privacy.model_dump(mode="json") | {"local_epsilon_max": parsed.privacy.local_epsilon_bound}
    result = {"experiment": parsed.name, **promise, **summarize(parsed, runs, started)}
    if names and len(runs) == seeds:
        baseline_runs = progress(run_baselines(parsed, names, seeds, jobs, backend), seeds, "baselines")
        result["baselines"] = summarize_runs(baseline_runs)
    if as_json:
        print_json(result)
    else:
        # Bytes say most about messages, and the account below says how many people took part.
        unused_keys = {"users", "bits_mean", *(() if parsed.privacy.trust.crowd is Crowd.BATCH else _BATCH_KEYS)}
        unused_keys |= {"messages_mean"} if result["messages_mean"] == result["clients_mean"] else set()
        figures = {key: value for key, value in result.items() if not isinstance(value, list | dict | None)}
        print_table(parsed.name, name_figures({key: figures[key] for key in figures if key not in unused_keys}))
        prefix = f"In all {len(runs)} runs together: " if len(runs) > 1 else ""
        screen.print(prefix + msgspec.convert(result["people"], People).sentence, soft_wrap=True)
        screen.print(describe_unit(parsed), soft_wrap=True)
        print_lines(result["assumed"])
        for warning in result["warnings"]:
            screen.print(f"warning: {warning}")
        print_baselines(result)
    if len(runs) < seeds:
        raise typer.Exit(130)


def describe_unit(spec: Spec) -> str:
    """Describe the units of rewards and regret."""
    if spec.reward.is_rate:
        return "Rewards are no or yes: the mean reward is a success rate, and regret is successes missed in a run."
    bounds = f"from {spec.reward.low:,g} to {spec.reward.high:,g}"
    return f"Rewards are numbers {bounds}: the mean is of a choice, and regret is what a run missed in all."


def _fill_table(
    variant: Callable[[list[str]], Spec],
    axes: dict[str, list[str]],
    out: Path,
    seeds: int,
    jobs: int | None,
    backend: Backend,
) -> None:
    """Run all variants that are missing in a table."""
    if out.suffix not in (".csv", ".parquet"):
        raise SpecError("must end in .csv or .parquet", field="--out", remedy="name such a file")
    requested = make_cells(((values, variant(changes)) for values, changes in iterate_combinations(axes)), seeds)
    path = out if out.suffix == ".csv" else out.with_name(out.name + ".csv")
    with SweepJournal(path, axes, list_figures(requested[0].spec)) as journal:
        missing = len(journal.select_missing(requested))
        announce_task(f"{missing} of {len(requested)} runs into {path}", f"{_RUN_DURATION}; Ctrl-C keeps what came")
        finished = progress(sweep_rows(requested, journal, jobs, backend), missing, "runs")
    if len(finished) < missing:
        raise typer.Exit(130)
    if path != out:
        write_parquet(path, out)
    screen.print(f"{out}: {len(requested)} runs, {missing} of them new")


def load(context: typer.Context) -> None:
    """Pass the arguments to the load driver, which an image may have without the rest of the lab."""
    from privateer_lab.load.command import main

    main(context.args)


def peers(
    spec: options.PeopleSpec,
    algorithms: Annotated[
        list[str],
        Option("--with", help="Another algorithm for the same experiment, with its defaults. May be repeated."),
    ] = [],  # noqa: B006
    peer: Annotated[
        list[str], Option(help="Part of the names of the peers that you want; all by default. May be repeated.")
    ] = [],  # noqa: B006
    users: options.Users = None,
    seeds: options.Seeds = 2,
    first_seed: Annotated[int, Option(min=0, max=SEEDS_MAX, help="The first run's seed.")] = 0,
    settings: options.Set = [],  # noqa: B006 - typer's way to say none
    as_json: options.Json = False,
) -> None:
    """Compare an experiment, and other algorithms for it, with libraries that others wrote, with the same people.

    Of the libraries DP-EBM alone has privacy; it plays where the spec's privacy is central.
    """
    from privateer_lab.baselines.peers import compare_policies, select_policies, summarize_by_policy

    parsed = load_spec(spec, settings, users)
    others = [load_spec(spec, settings, users, algorithm_name=name) for name in algorithms]
    entrants = select_policies(parsed, others, peer)
    if not as_json:
        announce_task(f"{seeds} run{'s' * (seeds > 1)} of each of {', '.join(entrants)}", "minutes for 100,000 people")
    pending_runs = compare_policies(entrants, cast(ArmsSpec, parsed), range(first_seed, first_seed + seeds))
    rows = progress(pending_runs, seeds * len(entrants), "runs")
    figures = summarize_by_policy(rows, parsed.experiment.horizon)
    if as_json:
        promise = parsed.privacy.model_dump(include={"model", "epsilon", "delta"})
        run_facts = {"people": parsed.experiment.horizon, "seeds": seeds, "first_seed": first_seed}
        print_json({"experiment": parsed.name, **promise, **run_facts, "policies": figures})
    else:
        title = "the same people; speed is by a second of processor time"
        print_rows(title, [_peer_row(*entry) for entry in figures.items()])
    if len(rows) < seeds * len(entrants):
        raise typer.Exit(130)


def _peer_row(name: str, figures: dict[str, float | None]) -> dict[str, object]:
    """Build a row of the comparison with peers."""
    error = figures["reward_error"]
    return {
        "policy": name,
        "mean reward": figures["reward_mean"],
        "standard error": "" if error is None else error,
        "regret": figures["regret_mean"],
        "95 % interval": format_margin(figures["regret_ci95"]),
        "decisions a second": figures["decisions_per_second"],
        "people a second, learning included": figures["people_per_second"],
    }


def print_baselines(result: dict[str, Any]) -> None:
    """Print a table of the policy and its ``baselines``, if a simulation has any."""
    if baselines := result.get("baselines"):
        policies = {result["experiment"]: {**result, "leaks": False}, **baselines}
        rows = [
            {
                "policy": f"{name} (leaks: not private)" if figures["leaks"] else name,
                "regret": figures["regret_mean"],
                "95 % interval": format_margin(figures["regret_ci95"]),
                "worst seed": figures["regret_worst"],
                "reward": figures["reward_mean"],
            }
            for name, figures in policies.items()
        ]
        print_rows("baselines", rows)
