"""``create``: start an experiment, or check its spec."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from privateer_core.answer.export import read_export
from privateer_core.privacy.order import list_concerns
from privateer_core.privacy.trust import Recipient
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.spec import Spec
from privateer_lab.cli.command_line import ADMIN_URL, SHUFFLER_URL, AdminUrl, Json, Set, ShufflerUrl, SpecFile, Token
from privateer_lab.cli.input_files import load_spec, read_document
from privateer_lab.cli.output import print_json, print_lines, screen
from privateer_lab.load.populations import store_population
from privateer_lab.planning.admission import KnownLimits, ask_limits, check_admission
from privateer_lab.services.rest import create_experiment as post
from privateer_server.experiments.executor import start_from_export


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(create)


def create(
    spec: SpecFile,
    token: Token = None,
    admin_url: AdminUrl = ADMIN_URL,
    shuffler: ShufflerUrl = SHUFFLER_URL,
    settings: Set = [],  # noqa: B006 - typer's way to say none
    warm_start: Annotated[
        Path | None, Option(metavar="FILE", help="Begin with what an exported experiment has learned.")
    ] = None,
    is_check: Annotated[
        bool, Option("--check", help="Check the spec, and create nothing: needs no token, nor services.")
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
    export = None if warm_start is None else read_document(warm_start)
    if export is not None:
        read_export(export, "--warm-start")
    if is_check or parsed.privacy.trust.endpoint is Recipient.SHUFFLER:  # a server alone knows its own limits
        limits = ask_limits(parsed, admin_url, shuffler)
        make_state = None if export is None else start_from_export(export).make_state
        n_asked = check_admission(parsed.without_people(), limits, make_state)
        if is_check:
            _print_check(parsed, n_asked, limits, as_json)
            return
    created, is_new = post(admin_url, parsed, token, export)
    try:
        store_population(parsed)
    except OSError as error:
        detail = f"the spec's population is not kept ({error.strerror})"
        print(f"privateer: warning: {detail}: give privateer load --population {spec}", file=sys.stderr)
    if as_json:
        print_json(created)
    elif is_new:
        screen.print(f"created {parsed.name}")
    else:
        screen.print(f"{parsed.name} existed already, with this very spec: nothing changed")


def _print_check(spec: Spec, n_asked: int, limits: KnownLimits, as_json: bool) -> None:
    """Print the size of the first round, and warnings about the spec."""
    concerns = [*limits.assumed, *list_concerns(spec), *_window_concerns(spec)]
    if as_json:
        print_json({"experiment": spec.name, "first_round": n_asked, "warnings": concerns})
        return
    screen.print(f"{spec.name}: a server takes this spec; its first round asks {n_asked:,} people. Nothing was created")
    print_lines(f"warning: {concern}" for concern in concerns)


def _window_concerns(spec: Spec) -> list[str]:
    """Return a warning if the cost of a conversion window is unknown, since arrivals are not set."""
    if spec.experiment.n_choices_in_window is not None or not isinstance(spec, ArmsSpec):
        return []
    return [
        "experiment.conversion_window_seconds is set and experiment.arrivals_per_day is not, so nobody can tell how "
        "many people choose before the first of them reports: plan and simulate let everybody report at once, and "
        "regret looks lower than it will be. Set experiment.arrivals_per_day to the people you expect a day"
    ]
