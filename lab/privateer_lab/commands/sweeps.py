"""``sweep``: a spec over many settings, as a tidy table."""

from pathlib import Path
from typing import Annotated

import typer

from privateer.errors import SpecError
from privateer_lab.commands.experiments import Jobs, On, Set
from privateer_lab.output import progress, screen
from privateer_lab.parallel import SEEDS_MAX
from privateer_lab.specs import load_spec
from privateer_lab.sweep import Journal, cells, combinations, parse_axes, write_parquet
from privateer_lab.sweep import sweep as rows_of


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(sweep)


def sweep(
    spec: Annotated[Path, typer.Argument(help="TOML file with a population section.")],
    out: Annotated[Path, typer.Option(help="Table to write: .csv or .parquet; one that is there is gone on with.")],
    vary: Annotated[list[str], typer.Option(help="section.key=value,value; may be repeated.")] = [],  # noqa: B006
    seeds: Annotated[int, typer.Option(min=1, max=SEEDS_MAX, help="Runs of each setting.")] = 4,
    jobs: Jobs = None,
    backend: On = "processes",
    settings: Set = [],  # noqa: B006 - typer's way to say none
) -> None:
    """Run a spec over settings; Ctrl-C loses nothing, and the same command goes on."""
    if out.suffix not in (".csv", ".parquet"):
        raise SpecError("must end in .csv or .parquet", field="--out", remedy="name such a file")
    axes = parse_axes(vary)
    wanted = cells(((values, load_spec(spec, settings + changes)) for values, changes in combinations(axes)), seeds)
    if wanted[0].spec.population is None:
        raise SpecError("missing", field="population", remedy="add [population] name = 'peaks' to the spec")
    path = out if out.suffix == ".csv" else out.with_name(out.name + ".csv")
    with Journal(path, axes) as journal:
        missing = len(journal.missing(wanted))
        done = progress(rows_of(wanted, journal, jobs, backend), missing, "runs")
    if len(done) < missing:
        raise typer.Exit(130)
    if path != out:
        write_parquet(path, out)
    screen.print(f"{out}: {len(wanted)} runs, {missing} of them new")
