"""``create``, ``list``, ``show``, ``policy``: experiments over REST."""

import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from privateer_core.errors import Unavailable
from privateer_core.export import read_export
from privateer_core.result import Contradiction, Result, completed
from privateer_core.spec import Spec
from privateer_lab.bin_map import chosen_by, draw, people_in
from privateer_lab.commands.options import (
    ADMIN_URL,
    SHUFFLER_ADMIN_URL,
    URL,
    AdminUrl,
    Json,
    Set,
    ShufflerAdminUrl,
    SpecFile,
    Token,
    Url,
)
from privateer_lab.documents import read_document
from privateer_lab.load.people import keep_people
from privateer_lab.output import print_json, print_rows, print_table, print_tables, screen
from privateer_lab.rest import NotThere, ask
from privateer_lab.rest import create as post
from privateer_lab.result_tables import have_estimates, is_over_time, rows_of
from privateer_lab.result_words import sentences
from privateer_lab.shuffler_holdings import held_for
from privateer_lab.specs import load_spec

Name = Annotated[str, typer.Argument(help="Name of the experiment.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(create)
    app.command(name="list")(list_experiments)
    app.command()(show)
    app.command()(policy)


def create(
    spec: SpecFile,
    token: Token = None,
    admin_url: AdminUrl = ADMIN_URL,
    settings: Set = [],  # noqa: B006 - typer's way to say none
    warm_start: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Begin with what an exported experiment has learned.")
    ] = None,
    is_check: Annotated[
        bool, typer.Option("--check", help="Check the spec here, and create nothing: asks no server, needs no token.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Create an experiment from a spec; with ``--check`` find out whether a server would take it, and what is unwise.

    The same spec again changes nothing. A server does not get the spec's population: it is kept here, and
    ``privateer load`` plays it.
    """
    parsed = load_spec(spec, settings)
    start = None if warm_start is None else read_document(warm_start)
    if start is not None:
        read_export(start, "--warm-start")
    if is_check:
        _tell_checked(parsed.without_people(), start, as_json)
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


def _tell_checked(spec: Spec, start: Any, as_json: bool) -> None:
    """Open the first round as a server does, and say what the spec's own concerns are."""
    from privateer_server.experiments.exports import start_with
    from privateer_server.rounds.loop import Schedule

    schedule, begun = Schedule(spec), None if start is None else start_with(start).begun
    asked, concerns = schedule.open(0, 1, begun(schedule) if begun else None).batch, spec.concerns()
    if as_json:
        print_json({"experiment": spec.name, "first_round": asked, "warnings": concerns})
        return
    screen.print(f"{spec.name}: a server takes this spec; its first round asks {asked:,} people. Nothing was created")
    for concern in concerns:
        screen.print(f"warning: {concern}", soft_wrap=True, markup=False)


def list_experiments(url: Url = URL, as_json: Json = False) -> None:
    """List the experiments of a server."""
    answer = ask("GET", f"{url}/experiments")
    if as_json:
        print_json(answer)
        return
    for row in answer["experiments"]:
        screen.print(f"{row['name']}: {row['status']}, version {row['version']}, {row['model']}")


def show(
    name: Name, url: Url = URL, shuffler_admin_url: ShufflerAdminUrl = SHUFFLER_ADMIN_URL, as_json: Json = False
) -> None:
    """Show an experiment: its progress and result, refused reports by reason, and what it promises to a person.

    It also says what waits at the shuffler, whether recent rounds contradict earlier ones, and which features matter,
    where the algorithm tells.
    """
    page = f"{url}/experiments/{name}"
    answer = ask("GET", page)
    answer["privacy"], answer["result"] = ask("GET", f"{page}/privacy"), _result(page)
    waits = held_for(answer, shuffler_admin_url)
    if waits:
        answer["at_shuffler"] = waits.document()
    state = ask("GET", f"{page}/state").get("state", {})
    answer |= {key: state[key] for key in ("contradiction", "screening") if state.get(key)}
    if as_json:
        print_json(answer)
    else:
        _print_facts(name, answer, waits.words() if waits else None)


def _print_facts(name: str, answer: dict[str, Any], waits: str | None) -> None:
    """Print what `show` found; ``waits`` is a sentence about the shuffler."""
    figures = [(key, value) for key, value in answer.items() if not isinstance(value, dict | list | bool | None)]
    print_table(name, [*figures, ("changes accepted", ", ".join(answer.get("accepts", ())) or None)])
    if until := answer.get("draining_until"):
        screen.print(f"draining until {until}: only those who chose before report", soft_wrap=True)
    if waits:
        screen.print(waits, soft_wrap=True, markup=False)
    if answer["result"]:
        print_result(read_result(answer["result"]), str(answer.get("status", "")))
    else:
        screen.print(_without_result(answer), soft_wrap=True)
    if "contradiction" in answer:
        screen.print(contradicted(msgspec.convert(answer["contradiction"], Contradiction)))
    if "screening" in answer:
        screen.print(answer["screening"]["words"])
    if answer.get("refused"):
        print_table("refused reports", answer["refused"].items())
    else:
        screen.print("no reports refused")
    for claim in answer["privacy"]["certificate"]["claims"]:
        rows = [("about", claim["about"]), *claimed(claim["epsilon"], claim["delta"]), ("proof", claim["proof"])]
        print_table(f"privacy against {claim['against']}", rows)


def _result(page: str) -> dict[str, Any] | None:
    """Fetch the experiment's result; None if it has none."""
    try:
        return dict(ask("GET", f"{page}/result")["result"])
    except NotThere:
        return None


def read_result(answer: Any) -> Result:
    """Return the result that a server sent.

    Raises
    ------
    Unavailable
        If it is none: names that control a terminal, or figures that are none.
    """
    try:
        return completed(msgspec.convert(answer, Result))
    except msgspec.ValidationError:
        raise Unavailable("the answer is not a result", field="--url", remedy="correct the address") from None


def print_result(result: Result, status: str = "") -> None:
    """Print what a result says, estimates with their intervals, and whatever else is reported.

    Estimates that a table has are not printed twice, nor are those of every look: a picture shows them.
    """
    for sentence in sentences(result, status):
        screen.print(sentence, soft_wrap=True, markup=False)
    tables = [table for table in msgspec.to_builtins(result.tables) if not is_over_time(table)]
    confidence = f"intervals of {_percent(result.confidence)} confidence"
    if have_estimates(tables):
        screen.print(f"What follows has {confidence}.")
    else:
        print_rows(f"estimates, with {confidence}", msgspec.to_builtins(result.estimates))
    for table in tables:
        print_rows(table["title"], rows_of(table))


def _without_result(answer: dict[str, Any]) -> str:
    """Say why there is no result."""
    if answer.get("publishes_result") is False:
        return "its algorithm publishes no result: privateer policy shows all that it finds"
    return "no result so far: wait for the end of the round" if answer.get("batch") else "it ended without a result"


def contradicted(found: Contradiction) -> str:
    """Say whether recent rounds contradict earlier ones."""
    if not found.found:
        return "recent rounds do not contradict earlier ones"
    return (
        f"warning: rounds after the first {found.since:,} people contradict those before, so rewards move. What was "
        f"released is 10 ** {found.evidence:.1f} times as probable if they do. An experiment in which nothing moves "
        f"warns with probability {found.false_alarm_rate:g} at most. See docs/learning.md, Rewards that move"
    )


def _percent(share: float) -> str:
    """Write a share in percent without rounding it up to 100."""
    return f"{share:.10%}".rstrip("%").rstrip("0").rstrip(".") + "%"


def claimed(epsilon: float | None, delta: float) -> list[tuple[str, Any]]:
    """Return the rows of a table that state a claim."""
    if epsilon is None:
        return [("epsilon, delta", "nothing is claimed")]
    return [("epsilon", epsilon), ("delta", delta)]


def policy(
    name: Name,
    url: Url = URL,
    version: Annotated[int | None, typer.Option(min=1, help="Show the policy of this round, not the newest.")] = None,
    as_json: Json = False,
) -> None:
    """Show a policy: as a map where it divides one or two numbers into bins, as tables otherwise."""
    facts = ask("GET", f"{url}/experiments/{name}")
    suffix = f"/{version}" if version else ""
    answer = ask("GET", f"{url}/experiments/{name}/policy{suffix}")
    described = answer["policy"]
    if as_json:
        print_json(answer)
    elif "bins" in described and _has_a_map(facts["spec"]["context"]["features"]):
        screen.print(draw(described["bins"], facts["spec"]["experiment"]["arms"]))
    elif "bins" in described:
        print_rows(f"policy of {name}: the arms of each bin of people, and how often", _in_words(described["bins"]))
    else:
        print_tables(f"policy of {name}", described)


def _has_a_map(features: dict[str, Any]) -> bool:
    """Whether bins are of one or two numbers."""
    numbers = all(("low" in one or "quantiles" in one) and "missing" not in one for one in features.values())
    return numbers and len(features) <= 2


def _in_words(bins: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each bin: the values of its features, and its arms."""
    return [
        {
            "people": people_in(row["where"]),
            "arms": chosen_by(row["arms"]),
        }
        for row in bins
    ]
