"""``sweep``: runs of a spec over many settings, as a tidy table."""

from pathlib import Path
from typing import Annotated

import typer

from privateer_core.errors import SpecError
from privateer_lab.commands.options import Jobs, On, PeopleSpec, Seeds, Set
from privateer_lab.output import progress, screen
from privateer_lab.simulation import figures_of
from privateer_lab.specs import load_spec
from privateer_lab.sweeps import Journal, cells, combinations, parse_axes, write_parquet
from privateer_lab.sweeps import sweep as rows_of


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(sweep)


def sweep(
    spec: PeopleSpec,
    out: Annotated[Path, typer.Option(help="The table, .csv or .parquet; rows are added to one that exists.")],
    vary: Annotated[list[str], typer.Option(help="Values of a key: section.key=value,value. May be repeated.")] = [],  # noqa: B006
    seeds: Seeds = 4,
    jobs: Jobs = None,
    backend: On = "processes",
    settings: Set = [],  # noqa: B006 - typer's way to say none
) -> None:
    """Run a spec over all combinations of settings. After Ctrl-C the same command goes on where it stopped."""
    if out.suffix not in (".csv", ".parquet"):
        raise SpecError("must end in .csv or .parquet", field="--out", remedy="name such a file")
    axes = parse_axes(vary)
    wanted = cells(((values, load_spec(spec, settings + changes)) for values, changes in combinations(axes)), seeds)
    figures = figures_of(wanted[0].spec)
    path = out if out.suffix == ".csv" else out.with_name(out.name + ".csv")
    with Journal(path, axes, figures) as journal:
        missing = len(journal.missing(wanted))
        done = progress(rows_of(wanted, journal, jobs, backend), missing, "runs")
    if len(done) < missing:
        raise typer.Exit(130)
    if path != out:
        write_parquet(path, out)
    screen.print(f"{out}: {len(wanted)} runs, {missing} of them new")
