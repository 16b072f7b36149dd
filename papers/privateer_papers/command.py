"""Make figures and tables of the papers again: the command ``privateer reproduce``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from privateer_core.errors import SpecError
from privateer_lab.cli.command_line import Jobs, Json, On
from privateer_lab.cli.output import announce_task, open_folder, print_json, screen
from privateer_lab.simulation.parallel import SEEDS_MAX

if TYPE_CHECKING:  # it brings matplotlib, which takes a second
    from privateer_papers.reproduction import Effort, Reproduction


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(reproduce)


def reproduce(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A figure or table, or 'list' to see them all.")] = "",
    should_make_all: Annotated[
        bool, typer.Option("--all", help="All of them, and one page, index.html; it resumes.")
    ] = False,
    out: Annotated[Path, typer.Option(help="The folder for NAME.png, .svg, .json and .txt.")] = Path("reproductions"),
    quick: Annotated[bool, typer.Option("--quick", help="Run a small version, as a check.")] = False,
    seeds: Annotated[
        int | None, typer.Option(min=1, max=SEEDS_MAX, help="Runs of each setting; default 10, quick 2.")
    ] = None,
    published: Annotated[str, typer.Option(help="CSV of paper 1's published regret; it is drawn beside ours.")] = "",
    adult: Annotated[str, typer.Option(help="UCI Adult data for paper-1-table-2; separate files by commas.")] = "",
    applicants: Annotated[str, typer.Option(help="Job applicants' data for paper-1-table-2-jobs.")] = "",
    taxi: Annotated[str, typer.Option(help="Trips of taxis for paper-1-table-2-taxi.")] = "",
    jobs: Jobs = None,
    backend: On = "processes",
    as_json: Json = False,
) -> None:
    """Make a figure or table of a paper again, or all, and say what its numbers show."""
    from privateer_papers.catalogue import all_reproductions
    from privateer_papers.reproduction import Effort

    reproductions = all_reproductions()
    paths = {"published": published, "adult": adult, "applicants": applicants, "taxi": taxi}
    data = {option: path for option, path in paths.items() if path}
    effort = Effort(quick, seeds or (2 if quick else 10), jobs, backend, data)
    if should_make_all == bool(name):
        detail = "beside --all" if name else "missing"
        raise SpecError(detail, field="NAME", remedy="give either a name, or --all; 'list' shows all names")
    if name == "list":
        listing = [{"name": each.name, "title": each.title} for each in reproductions.values()]
        print_json({"reproductions": listing}) if as_json else screen.print(
            "\n".join(f"{row['name']:24} {row['title']}" for row in listing)
        )
        return
    if name and name not in reproductions:
        raise SpecError(f"no reproduction {name!r}", field="NAME", remedy=f"choose from {', '.join(reproductions)}")
    open_folder(out, "--out")
    if should_make_all:
        _reproduce_all(reproductions, effort, out, as_json=as_json)
    else:
        _reproduce_one(reproductions[name], effort, out, as_json=as_json)


def _reproduce_one(entry: "Reproduction", effort: "Effort", out: Path, *, as_json: bool) -> None:
    """Make a figure or table, and print its verdict; refuse missing or damaged data first."""
    from privateer_papers.album import describe_duration
    from privateer_papers.data_files import DATA
    from privateer_papers.finished_runs import list_pictures, run_reproduction

    if entry.needs and entry.needs not in effort.select_data(entry):
        raise SpecError("missing", field=f"--{entry.needs}", remedy=f"give the path of {DATA[entry.needs].description}")
    for option, path in effort.select_data(entry).items():
        DATA[option].check(path)
    if not as_json:
        announce_task(entry.title, describe_duration(entry, effort))
    finished = run_reproduction(entry, effort, out)
    files = [str(path) for path in list_pictures(out, entry.name) or [out / f"{entry.name}.json"]]
    if as_json:
        print_json({**finished.document, "files": files})
    else:
        screen.print(f"{entry.title}\n\n{finished.verdict}\n\n{', '.join(files)}", soft_wrap=True)
    if not finished.whole:
        raise typer.Exit(130)


def _reproduce_all(reproductions: "dict[str, Reproduction]", effort: "Effort", out: Path, *, as_json: bool) -> None:
    """Make all figures and tables, and a page of them, and print each verdict."""
    from privateer_papers.album import PAGE, Album, describe_total_duration

    if not as_json:
        announce_task(f"all {len(reproductions)} figures and tables", describe_total_duration(reproductions, effort))
    album = Album(reproductions, effort, out)
    is_done = album.run(quiet=as_json)
    rows: list[dict[str, Any]] = [
        {"name": name, "verdict": finished.sentence or finished.verdict, "seconds": finished.seconds}
        for name, finished in album.finished.items()
    ]
    rows += [{"name": name, "verdict": reason, "seconds": None} for name, reason in album.reasons.items()]
    if as_json:
        print_json({"page": str(out / PAGE), "made": rows, "problems": list(album.problems.values())})
    else:
        lines = [f"{row['name']}: {row['verdict']}" for row in rows]
        screen.print("\n".join([*lines, "", str(out / PAGE)]), soft_wrap=True)
    if not is_done:
        raise typer.Exit(130)
    if album.problems:
        raise typer.Exit(2)
