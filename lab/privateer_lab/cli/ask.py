"""``create``, ``list``, ``answer``: experiments, and what they found."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from privateer_core.answer.conclusion import PublishedAnswer
from privateer_core.answer.export import read_export
from privateer_core.answer.people import People
from privateer_core.errors import SpecError
from privateer_core.privacy.order import concerns_of
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.spec import Spec
from privateer_lab.cli.command_line import (
    ADMIN_URL,
    SHUFFLER_ADMIN_URL,
    SHUFFLER_URL,
    URL,
    AdminUrl,
    Json,
    Set,
    ShufflerAdminUrl,
    ShufflerUrl,
    SpecFile,
    Token,
    Url,
)
from privateer_lab.cli.input_files import load_spec, read_document
from privateer_lab.cli.output import begin, print_json, print_table, screen
from privateer_lab.conclusion_tables import ROWS_MAX
from privateer_lab.figures import named
from privateer_lab.load.populations import keep_people
from privateer_lab.planning.admission import KnownLimits, check_admission
from privateer_lab.services.published_limits import ask_limits
from privateer_lab.services.rest import ask, policy_in, published_answer
from privateer_lab.services.rest import create as post
from privateer_lab.services.shuffler_status import held_for
from privateer_lab.terminal import (
    print_answer,
    print_conclusion,
    print_map,
    print_policy,
    print_rules,
    print_warnings,
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the experiment.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(create)
    app.command(name="list")(list_experiments)
    app.command()(answer)


def create(
    spec: SpecFile,
    token: Token = None,
    admin_url: AdminUrl = ADMIN_URL,
    shuffler: ShufflerUrl = SHUFFLER_URL,
    settings: Set = [],  # noqa: B006 - typer's way to say none
    warm_start: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Begin with what an exported experiment has learned.")
    ] = None,
    is_check: Annotated[
        bool, typer.Option("--check", help="Check the spec, and create nothing: needs no token, nor services.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Create an experiment from a spec; with --check find out whether services would take it, and what is unwise.

    Both ask server and shuffler for their limits, and compare the spec with all of them before anything is started. If
    a service does not answer, its limits are taken as shipped, and that is said.

    The same spec again changes nothing. A server does not get the spec's population: it is kept here, and
    privateer load plays it.
    """
    parsed = load_spec(spec, settings)
    start = None if warm_start is None else read_document(warm_start)
    if start is not None:
        read_export(start, "--warm-start")
    if is_check or parsed.privacy.trust.shuffled:  # a server alone knows its own limits
        limits = ask_limits(parsed, admin_url, shuffler)
        people = _check_admission(parsed.without_people(), limits, start)
        if is_check:
            _tell_checked(parsed, people, limits, as_json)
            return
    answer, is_new = post(admin_url, parsed, token, start)
    try:
        keep_people(parsed)
    except OSError as error:
        detail = f"the spec's population is not kept ({error.strerror})"
        print(f"privateer: warning: {detail}: give privateer load --population {spec}", file=sys.stderr)
    if as_json:
        print_json(answer)
    elif is_new:
        screen.print(f"created {parsed.name}")
    else:
        screen.print(f"{parsed.name} existed already, with this very spec: nothing changed")


def _check_admission(spec: Spec, limits: KnownLimits, start: Any) -> int:
    """Return the people whom the first round asks; ``start`` is the export that it begins with."""
    from privateer_server.experiments.exports import start_with

    return check_admission(spec, limits, None if start is None else start_with(start).begun)


def _tell_checked(spec: Spec, asked: int, limits: KnownLimits, as_json: bool) -> None:
    """Say how many people the first round asks, and what the spec's own concerns are."""
    concerns = [*limits.assumed, *concerns_of(spec), *_of_window(spec)]
    if as_json:
        print_json({"experiment": spec.name, "first_round": asked, "warnings": concerns})
        return
    screen.print(f"{spec.name}: a server takes this spec; its first round asks {asked:,} people. Nothing was created")
    for concern in concerns:
        screen.print(f"warning: {concern}", soft_wrap=True, markup=False)


def _of_window(spec: Spec) -> list[str]:
    """Say that nobody can tell what a window costs, where it is not known how many people come."""
    if spec.experiment.waiting is not None or not isinstance(spec, ArmsSpec):
        return []
    return [
        "experiment.conversion_window is set and experiment.arrivals is not, so nobody can tell how many people choose "
        "before the first of them reports: plan and simulate let everybody report at once, and regret looks lower than "
        "it will be. Set experiment.arrivals to the people you expect a day"
    ]


def list_experiments(url: Url = URL, as_json: Json = False) -> None:
    """List the experiments of a server."""
    answer = ask("GET", f"{url}/experiments")
    if as_json:
        print_json(answer)
        return
    for row in answer["experiments"]:
        screen.print(f"{row['name']}: {row['status']}, version {row['version']}, {row['model']}")


class View(StrEnum):
    """What of an experiment is shown."""

    ANSWER = "answer"
    PROGRESS = "progress"
    POLICY = "policy"
    DETAILS = "details"
    REPORT = "report"


def answer(
    name: Name,
    view: Annotated[View, typer.Option("--as", help="What of it to show.")] = View.ANSWER,
    url: Url = URL,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Of a report: the page; of details: a picture, .png and .svg.")
    ] = None,
    version: Annotated[int | None, typer.Option(min=1, help="Of a policy: that of this round.")] = None,
    is_all: Annotated[bool, typer.Option("--all", help="Of a policy: every part of it.")] = False,
    shuffler_admin_url: ShufflerAdminUrl = SHUFFLER_ADMIN_URL,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
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
    _check_options(view, {"--out": out, "--version": version, "--all": is_all, "--markdown": as_markdown})
    if view is View.REPORT:
        write_report(name, url, out or Path(f"{Path(name).name}.html"))
    elif view is View.PROGRESS:
        _show_progress(name, url, shuffler_admin_url, as_json)
    elif view is View.POLICY:
        _show_policy(name, url, version, is_all, as_json)
    else:
        _show_found(published_answer(url, name), view, url, out, as_markdown, as_json)


_OPTIONS: Final = {
    "--out": (View.REPORT, View.DETAILS),
    "--version": (View.POLICY,),
    "--all": (View.POLICY,),
    "--markdown": (View.ANSWER, View.DETAILS),
}
"""The views that options say something of."""


def _check_options(view: View, given: dict[str, Any]) -> None:
    for option, views in _OPTIONS.items():
        if given[option] and view not in views:
            remedy = f"leave it out, or write --as {' or '.join(views)}"
            raise SpecError(f"says nothing of --as {view}", field=option, remedy=remedy)


def _show_found(
    published: PublishedAnswer, view: View, url: str, out: Path | None, as_markdown: bool, as_json: bool
) -> None:
    """Show the conclusion, or with all that the algorithm reports."""
    is_whole = view is View.DETAILS
    if out:
        from privateer_lab.pages.plots import save
        from privateer_lab.pages.result_pictures import draw_effects

        paths = save(draw_effects(published.experiment, published.found), out)
        screen.print(", ".join(map(str, paths)), soft_wrap=True, markup=False)
    if as_json:
        print_json(msgspec.to_builtins(published.found if is_whole else published))
    elif as_markdown:
        from privateer_lab.pages.answer_markdown import markdown

        page = f"{url}/experiments/{published.experiment}/privacy"
        claims = ask("GET", page)["certificate"]["claims"] if is_whole else ()
        typer.echo(markdown(published, claims), nl=False)
    elif is_whole and not out:
        print_answer(published.conclusion, published.found)
    elif not out:
        print_conclusion(published)


def _show_progress(name: str, url: str, shuffler_admin_url: str, as_json: bool) -> None:
    """Show people, refused reports by reason, what waits at the shuffler, and what is promised to a person."""
    page = f"{url}/experiments/{name}"
    answer, found = ask("GET", page), published_answer(url, name)
    answer["privacy"], answer["answer"] = ask("GET", f"{page}/privacy"), msgspec.to_builtins(found.found)
    answer["conclusion"] = msgspec.to_builtins(found.conclusion)
    waits = held_for(answer, shuffler_admin_url)
    people = msgspec.convert(answer["people"], People)
    people = waits.added_to(people) if waits else people
    answer["people"] = msgspec.to_builtins(people)
    if waits:
        answer["at_shuffler"] = waits.document()
    if as_json:
        print_json(answer)
    else:
        _print_facts(name, answer, found, [people.sentence, *([waits.words()] if waits else [])])


def _print_facts(name: str, answer: dict[str, Any], found: PublishedAnswer, counts: list[str]) -> None:
    """Print facts of an experiment; ``counts`` are sentences about people, and about the shuffler."""
    figures = {key: value for key, value in answer.items() if not isinstance(value, dict | list | bool | None)}
    print_table(name, [*named(figures), ("changes accepted", ", ".join(answer.get("accepts", ())) or None)])
    if until := answer.get("draining_until"):
        screen.print(f"draining until {until}: only those who chose before report", soft_wrap=True)
    for sentence in counts:
        screen.print(sentence, soft_wrap=True, markup=False)
    screen.print(found.conclusion.headline.sentence, soft_wrap=True, markup=False)
    print_warnings(found.found)
    if answer.get("refused"):
        print_table("refused reports", answer["refused"].items())
    else:
        screen.print("no reports refused")
    for claim in answer["privacy"]["certificate"]["claims"]:
        rows = [("about", claim["about"]), *claimed(claim["epsilon"], claim["delta"]), ("proof", claim["proof"])]
        print_table(f"privacy against {claim['against']}", rows)


def claimed(epsilon: float | None, delta: float) -> list[tuple[str, Any]]:
    """Return the rows of a table that state a claim."""
    if epsilon is None:
        return [("epsilon, delta", "nothing is claimed")]
    return [("epsilon", epsilon), ("delta", delta)]


def _show_policy(name: str, url: str, version: int | None, is_all: bool, as_json: bool) -> None:
    """Show who gets which option: a map and the fewest rules, or every part."""
    suffix = f"/{version}" if version else ""
    published = ask("GET", f"{url}/experiments/{name}/policy{suffix}")
    if as_json:
        print_json(published)
        return
    facts, view = ask("GET", f"{url}/experiments/{name}"), policy_in(published.get("policy"))
    arms = facts["spec"].get("experiment", {}).get("arms", ())
    if is_all or version:
        print_policy(name, view, arms)
        return
    found = published_answer(url, name)
    is_drawn = print_map(view, arms)
    if not (print_rules(found) or is_drawn):
        print_policy(name, view, arms, ROWS_MAX)
    print_warnings(found.found)
    screen.print(f"privateer answer {name} says what it gains, and with --as policy --all every part of it")


def write_report(name: str, url: str, where: Path) -> None:
    """Write what an experiment asked and learned as one HTML file."""
    if where.is_dir():
        raise SpecError(f"{where} is a folder", field="--out", remedy="name a file")
    if not where.parent.is_dir():
        raise SpecError(f"there is no folder {where.parent}", field="--out", remedy="make it, or name another one")
    from privateer_lab.pages.report_findings import findings
    from privateer_lab.pages.report_page import html

    found = findings(name, url)
    begin("drawing", "a few seconds")
    body = html(found, url).encode()
    where.write_bytes(body)
    screen.print(f"{where}: {len(body):,} bytes", soft_wrap=True, markup=False)
