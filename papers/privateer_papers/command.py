"""Make figures and tables of the papers again: the command ``privateer reproduce``."""

import json
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from privateer_core.errors import SpecError
from privateer_lab.cli.command_line import Jobs, Json, On
from privateer_lab.cli.output import begin, open_folder, print_json, progress, screen
from privateer_lab.simulation.parallel import SEEDS_MAX

if TYPE_CHECKING:  # it brings matplotlib, which takes a second
    from privateer_papers.reproduction import Reproduction, Rows


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(reproduce)


@cache
def all_reproductions() -> "dict[str, Reproduction]":
    """Return every figure and table that can be made again, by its name: the paper's number and what it is there."""
    from privateer_papers.paper_1.figures import FIGURE_6, FIGURE_7, FIGURE_8, FIGURE_9
    from privateer_papers.paper_1.table_2 import TABLE_2
    from privateer_papers.paper_2.slopes import SLOPES
    from privateer_papers.paper_3.regret import LASSO
    from privateer_papers.paper_4.frontier import PARETO
    from privateer_papers.paper_4.interval_peers import PEERS
    from privateer_papers.paper_5.phased_regret import FIGURE_2, TABLE_1

    paper_1 = (FIGURE_6, FIGURE_7, FIGURE_8, FIGURE_9, TABLE_2)
    return {made.name: made for made in (*paper_1, SLOPES, LASSO, PARETO, PEERS, FIGURE_2, TABLE_1)}


def reproduce(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A figure or table, or 'list' to see them all.")],
    out: Annotated[Path, typer.Option(help="The folder for NAME.png, .svg, .json and .txt.")] = Path("reproductions"),
    quick: Annotated[bool, typer.Option("--quick", help="Run a small version, as a check.")] = False,
    seeds: Annotated[
        int | None, typer.Option(min=1, max=SEEDS_MAX, help="Runs of each setting; default 10, quick 2.")
    ] = None,
    published: Annotated[str, typer.Option(help="CSV of paper 1's published regret; it is drawn beside ours.")] = "",
    adult: Annotated[str, typer.Option(help="UCI Adult data for paper-1-table-2; separate files by commas.")] = "",
    jobs: Jobs = None,
    backend: On = "processes",
    as_json: Json = False,
) -> None:
    """Make a figure or table of a paper again, and say what its numbers show."""
    from privateer_papers.reproduction import Effort, Rows

    reproductions = all_reproductions()
    if name == "list":
        known = [{"name": one.name, "title": one.title} for one in reproductions.values()]
        print_json(known) if as_json else screen.print("\n".join(f"{one['name']:20} {one['title']}" for one in known))
        return
    if name not in reproductions:
        raise SpecError(f"no reproduction {name!r}", field="NAME", remedy=f"choose from {', '.join(reproductions)}")
    if published and not Path(published).is_file():
        raise SpecError(f"cannot read {published}", field="--published", remedy="give the path of the CSV file")
    open_folder(out, "--out")
    made, effort = reproductions[name], Effort(quick, seeds or (2 if quick else 10), jobs, backend, published, adult)
    if not as_json:
        begin(made.title, "a minute or so" if quick else "minutes to hours; --quick makes a small version")
    found = progress(chain(made.rows(effort), (None,)), 0, "rows")
    rows, whole = Rows(row for row in found if row is not None), found[-1] is None
    verdict, paths = _finished(made, rows, whole, out)
    (out / f"{name}.txt").write_text(f"{made.title}\n\n{verdict}\n")
    document = {"name": name, "quick": quick, "verdict": verdict, "rows": rows}
    (out / f"{name}.json").write_text(json.dumps(document))
    files = [str(path) for path in paths or [out / f"{name}.json"]]
    if as_json:
        print_json({**document, "files": files})
    else:
        screen.print(f"{made.title}\n\n{verdict}\n\n{', '.join(files)}", soft_wrap=True)
    if not whole:
        raise typer.Exit(130)


def _finished(made: "Reproduction", rows: "Rows", whole: bool, out: Path) -> tuple[str, list[Path]]:
    """Return the verdict and the paths of pictures; an interrupted run has them if its rows are enough."""
    from privateer_lab.pages.plots import save

    try:
        verdict, figure = made.verdict(rows), made.draw(made.title, rows)
    except (ArithmeticError, LookupError, ValueError):
        if whole:
            raise
        return f"Interrupted after {len(rows)} rows, too few for a verdict.", []
    return ("" if whole else "Interrupted; the runs until then show: ") + verdict, save(figure, out / made.name)
