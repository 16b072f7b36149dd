"""Make figures and tables of the papers again: the command ``privateer reproduce``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from privateer_core.errors import SpecError
from privateer_lab.cli.command_line import Jobs, Json, On
from privateer_lab.cli.output import begin, open_folder, print_json, screen
from privateer_lab.simulation.parallel import SEEDS_MAX

if TYPE_CHECKING:  # it brings matplotlib, which takes a second
    from privateer_papers.reproduction import Effort, Reproduction


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(reproduce)


def reproduce(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A figure or table, or 'list' to see them all.")] = "",
    every: Annotated[bool, typer.Option("--all", help="All of them, and one page, index.html; it resumes.")] = False,
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
    if every == bool(name):
        detail = "beside --all" if name else "missing"
        raise SpecError(detail, field="NAME", remedy="give either a name, or --all; 'list' shows all names")
    if name == "list":
        known = [{"name": one.name, "title": one.title} for one in reproductions.values()]
        print_json(known) if as_json else screen.print("\n".join(f"{one['name']:24} {one['title']}" for one in known))
        return
    if name and name not in reproductions:
        raise SpecError(f"no reproduction {name!r}", field="NAME", remedy=f"choose from {', '.join(reproductions)}")
    open_folder(out, "--out")
    if every:
        _make_all(reproductions, effort, out, as_json=as_json)
    else:
        _make_one(reproductions[name], effort, out, as_json=as_json)


def _make_one(one: "Reproduction", effort: "Effort", out: Path, *, as_json: bool) -> None:
    from privateer_papers.album import takes
    from privateer_papers.data_files import DATA
    from privateer_papers.made import pictures, run

    if one.needs and one.needs not in effort.given(one):
        raise SpecError("missing", field=f"--{one.needs}", remedy=f"give the path of {DATA[one.needs].wanted}")
    for option, path in effort.given(one).items():
        DATA[option].check(path)
    if not as_json:
        begin(one.title, takes(one, effort))
    made = run(one, effort, out)
    files = [str(path) for path in pictures(out, one.name) or [out / f"{one.name}.json"]]
    if as_json:
        print_json({**made.document, "files": files})
    else:
        screen.print(f"{one.title}\n\n{made.verdict}\n\n{', '.join(files)}", soft_wrap=True)
    if not made.whole:
        raise typer.Exit(130)


def _make_all(reproductions: "dict[str, Reproduction]", effort: "Effort", out: Path, *, as_json: bool) -> None:
    from privateer_papers.album import PAGE, Album, take

    if not as_json:
        begin(f"all {len(reproductions)} figures and tables", take(reproductions, effort))
    album = Album(reproductions, effort, out)
    whole = album.run(quiet=as_json)
    rows: list[dict[str, Any]] = [
        {"name": name, "verdict": one.sentence or one.verdict, "seconds": one.seconds}
        for name, one in album.made.items()
    ]
    rows += [{"name": name, "verdict": why, "seconds": None} for name, why in album.why.items()]
    if as_json:
        print_json({"page": str(out / PAGE), "made": rows, "problems": list(album.problems.values())})
    else:
        lines = [f"{row['name']}: {row['verdict']}" for row in rows]
        screen.print("\n".join([*lines, "", str(out / PAGE)]), soft_wrap=True)
    if not whole:
        raise typer.Exit(130)
    if album.problems:
        raise typer.Exit(2)
