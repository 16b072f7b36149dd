"""``answer`` and ``list``: the results of an experiment, and the experiments of a server."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer
from typer import Option

from privateer_core.answer.conclusion import PublishedAnswer
from privateer_core.answer.people import People
from privateer_core.errors import SpecError
from privateer_lab.cli.command_line import SHUFFLER_ADMIN_URL, URL, Json, Name, ShufflerAdminUrl, Url
from privateer_lab.cli.output import announce_task, print_json, print_lines, print_table, screen
from privateer_lab.render import terminal
from privateer_lab.render.documents import MAX_ROWS, format_markdown, write_conclusion, write_details
from privateer_lab.render.words import name_figures
from privateer_lab.services.rest import fetch_answer, fetch_shuffler_progress, parse_policy, request_json


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(answer)
    app.command(name="list")(list_experiments)


class View(StrEnum):
    """A view of an experiment."""

    ANSWER = "answer"
    PROGRESS = "progress"
    POLICY = "policy"
    DETAILS = "details"
    REPORT = "report"


def answer(
    name: Name,
    view: Annotated[View, Option("--as", help="What of it to show.")] = View.ANSWER,
    url: Url = URL,
    out: Annotated[
        Path | None, Option(metavar="FILE", help="Of a report: the page; of details: a picture, .png and .svg.")
    ] = None,
    version: Annotated[int | None, Option(min=1, help="Of a policy: that of this round.")] = None,
    is_all: Annotated[bool, Option("--all", help="Of a policy: every part of it.")] = False,
    shuffler_admin_url: ShufflerAdminUrl = SHUFFLER_ADMIN_URL,
    as_markdown: Annotated[bool, Option("--markdown", help="Print Markdown.")] = False,
    as_json: Json = False,
) -> None:
    """Say what an experiment found, running or finished: which option, for whom, how much better, and how sure.

    Then what it rests on, what would make it surer, and what it cost in privacy.

    --as progress: people, refused reports by reason, what waits at the shuffler, and what is promised to a person.

    --as policy: who gets which option: a map where one or two numbers decide, and the fewest rules that do nearly as
    well; with --all, or of an earlier round, every bin of people, share and coefficient.

    --as details: all that the algorithm reports behind the answer: estimates with intervals, looks, figures.

    --as report: one HTML file of what was asked and learned.
    """
    options: dict[str, Any] = {"--out": out, "--version": version, "--all": is_all, "--markdown": as_markdown}
    for option, views in _VIEWS_BY_OPTION.items():
        if options[option] and view not in views:
            remedy = f"leave it out, or write --as {' or '.join(views)}"
            raise SpecError(f"says nothing of --as {view}", field=option, remedy=remedy)
    if view is View.REPORT:
        write_report(name, url, out or Path(f"{Path(name).name}.html"))
    elif view is View.PROGRESS:
        _show_progress(name, url, shuffler_admin_url, as_json)
    elif view is View.POLICY:
        _show_policy(name, url, version, is_all, as_json)
    else:
        _show_answer(fetch_answer(url, name), view, url, out, as_markdown, as_json)


_VIEWS_BY_OPTION: Final = {
    "--out": (View.REPORT, View.DETAILS),
    "--version": (View.POLICY,),
    "--all": (View.POLICY,),
    "--markdown": (View.ANSWER, View.DETAILS),
}
"""The views to which each option applies."""


def _show_answer(
    published: PublishedAnswer, view: View, url: str, out: Path | None, as_markdown: bool, as_json: bool
) -> None:
    """Print the conclusion, or all details, in the requested format."""
    is_detailed = view is View.DETAILS
    if out:
        from privateer_lab.render.pictures import draw_answer, save_figure

        pictures = draw_answer(published.experiment, published.result)
        if not pictures:
            raise SpecError("has nothing to draw yet", field="--out", remedy="wait for more people")
        print_lines([", ".join(map(str, save_figure(pictures[0].figure, out)))])
    if as_json:
        print_json(msgspec.to_builtins((published.result or {}) if is_detailed else published))
    elif as_markdown:
        page = f"{url}/experiments/{published.experiment}/privacy"
        claims = request_json("GET", page)["certificate"]["claims"] if is_detailed else ()
        typer.echo(format_markdown(published, claims), nl=False)
    elif not out:
        details = write_details(published.conclusion, published.result)
        terminal.print_document(details if is_detailed else write_conclusion(published))


def _show_progress(name: str, url: str, shuffler_admin_url: str, as_json: bool) -> None:
    """Print participants, refused reports by reason, reports at the shuffler, and the privacy promise."""
    page = f"{url}/experiments/{name}"
    progress, published = request_json("GET", page), fetch_answer(url, name)
    progress["privacy"] = request_json("GET", f"{page}/privacy")
    progress["answer"] = msgspec.to_builtins(published.result)
    progress["conclusion"] = msgspec.to_builtins(published.conclusion)
    held_reports = fetch_shuffler_progress(progress, shuffler_admin_url)
    people = msgspec.convert(progress["people"], People)
    people = held_reports.add_to(people) if held_reports else people
    progress["people"] = msgspec.to_builtins(people)
    if held_reports:
        progress["at_shuffler"] = held_reports.document()
    if as_json:
        print_json(progress)
    else:
        _print_facts(name, progress, published, [people.sentence, *([held_reports.describe()] if held_reports else [])])


def _print_facts(name: str, progress: dict[str, Any], published: PublishedAnswer, counts: list[str]) -> None:
    """Print facts of an experiment; ``counts`` are sentences about participants and the shuffler."""
    figures = {key: value for key, value in progress.items() if not isinstance(value, dict | list | bool | None)}
    print_table(
        name, [*name_figures(figures), ("changes accepted", ", ".join(progress.get("allowed_changes", ())) or None)]
    )
    if draining_until := progress.get("draining_until"):
        screen.print(f"draining until {draining_until}: only people who have chosen already can report", soft_wrap=True)
    print_lines([*counts, published.conclusion.headline.sentence])
    terminal.print_warnings(published.result.warnings)
    if progress.get("refused"):
        print_table("refused reports", progress["refused"].items())
    else:
        screen.print("no reports refused")
    for claim in progress["privacy"]["certificate"]["claims"]:
        rows = [
            ("protects", claim["protects"]),
            *claim_rows(claim["epsilon"], claim["delta"]),
            ("proof", claim["proof"]),
        ]
        print_table(f"privacy against {claim['adversary']}", rows)


def claim_rows(epsilon: float | None, delta: float) -> list[tuple[str, Any]]:
    """Return the rows of a table that state a claim."""
    if epsilon is None:
        return [("epsilon, delta", "nothing is claimed")]
    return [("epsilon", epsilon), ("delta", delta)]


def _show_policy(name: str, url: str, version: int | None, is_all: bool, as_json: bool) -> None:
    """Print the policy: a map and the fewest rules, or all parts."""
    suffix = f"/{version}" if version else ""
    published = request_json("GET", f"{url}/experiments/{name}/policy{suffix}")
    if as_json:
        print_json(published)
        return
    facts, view = request_json("GET", f"{url}/experiments/{name}"), parse_policy(published.get("policy"))
    arms = facts["spec"].get("experiment", {}).get("arms", ())
    if is_all or version:
        terminal.print_policy(name, view, arms)
        return
    latest_answer = fetch_answer(url, name)
    is_drawn = terminal.print_map(view, arms)
    if not (terminal.print_rules(latest_answer) or is_drawn):
        terminal.print_policy(name, view, arms, MAX_ROWS)
    terminal.print_warnings(latest_answer.result.warnings)
    screen.print(f"privateer answer {name} says what it gains, and with --as policy --all every part of it")


def write_report(name: str, url: str, path: Path) -> None:
    """Write an HTML report of an experiment."""
    if path.is_dir():
        raise SpecError(f"{path} is a folder", field="--out", remedy="name a file")
    if not path.parent.is_dir():
        raise SpecError(f"there is no folder {path.parent}", field="--out", remedy="make it, or name another one")
    from privateer_lab.pages.report import read_findings, render_html

    report = read_findings(name, url)
    announce_task("drawing", "a few seconds")
    body = render_html(report, url).encode()
    path.write_bytes(body)
    print_lines([f"{path}: {len(body):,} bytes"])


def list_experiments(url: Url = URL, as_json: Json = False) -> None:
    """List the experiments of a server."""
    listed = request_json("GET", f"{url}/experiments")
    if as_json:
        print_json(listed)
        return
    for row in listed["experiments"]:
        screen.print(f"{row['name']}: {row['status']}, version {row['version']}, {row['model']}")
