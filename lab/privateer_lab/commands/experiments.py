"""``create``, ``list``, ``show``, ``policy``: experiments over REST."""

from pathlib import Path
from typing import Annotated, Any

import typer

from privateer_lab.output import print_json, print_table, screen
from privateer_lab.parallel import JOBS_MAX, Backend
from privateer_lab.partition_map import draw
from privateer_lab.rest import ask, bearer
from privateer_lab.specs import load_any_spec

Url = Annotated[str, typer.Option(envvar="PRIVATEER_URL", help="The server.")]
AdminUrl = Annotated[str, typer.Option(envvar="PRIVATEER_ADMIN_URL", help="The server's private listener.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Set = Annotated[list[str], typer.Option("--set", help="Override a key of the spec: section.key=value.")]
Jobs = Annotated[int | None, typer.Option(min=1, max=JOBS_MAX, help="Processes; default: one a core.")]
On = Annotated[Backend, typer.Option(help="Processes here, or a Ray cluster.")]
Token = Annotated[str | None, typer.Option(envvar="PRIVATEER_ADMIN_TOKEN", help="The server's admin token.")]
URL = "http://127.0.0.1:8000"
ADMIN_URL = "http://127.0.0.1:8002"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(create)
    app.command(name="list")(list_experiments)
    app.command()(show)
    app.command()(policy)


def create(
    spec: Annotated[Path, typer.Argument(help="TOML file.")],
    token: Token = None,
    admin_url: AdminUrl = ADMIN_URL,
    settings: Set = [],  # noqa: B006 - typer's way to say none
    as_json: Json = False,
) -> None:
    """Create an experiment from a spec."""
    parsed = load_any_spec(spec, settings).without_people()
    body = parsed.model_dump(mode="json", exclude_none=True)
    answer = ask("POST", f"{admin_url}/experiments", field="--admin-url", json=body, headers=bearer(token))
    print_json(answer) if as_json else screen.print(f"created {parsed.experiment.name}")


def list_experiments(url: Url = URL, as_json: Json = False) -> None:
    """List the experiments of a server."""
    answer = ask("GET", f"{url}/experiments")
    if as_json:
        print_json(answer)
        return
    for row in answer["experiments"]:
        screen.print(f"{row['name']}: {row['status']}, version {row['version']}, {row['model']}")


def show(name: str, url: Url = URL, as_json: Json = False) -> None:
    """Show an experiment: its progress, its reports by reason, and what it promises to a person."""
    answer = ask("GET", f"{url}/experiments/{name}")
    answer["privacy"] = ask("GET", f"{url}/experiments/{name}/privacy")
    if as_json:
        print_json(answer)
        return
    print_table(name, [(key, value) for key, value in answer.items() if not isinstance(value, dict | list)])
    if answer.get("refused"):
        print_table("refused reports", answer["refused"].items())
    else:
        screen.print("no reports refused")
    for claim in answer["privacy"]["certificate"]["claims"]:
        rows = [("about", claim["about"]), *claimed(claim["epsilon"], claim["delta"]), ("proof", claim["proof"])]
        print_table(f"privacy against {claim['against']}", rows)


def claimed(epsilon: float | None, delta: float) -> list[tuple[str, Any]]:
    """Rows of a table that tell a claim."""
    if epsilon is None:
        return [("epsilon, delta", "nothing is claimed")]
    return [("epsilon", epsilon), ("delta", delta)]


def policy(
    name: str,
    url: Url = URL,
    version: Annotated[int | None, typer.Option(min=1, help="Of an earlier round.")] = None,
    as_json: Json = False,
) -> None:
    """Show the policy: a map of the bins with their arms, or the actions that a phase plays."""
    facts = ask("GET", f"{url}/experiments/{name}")
    suffix = f"/{version}" if version else ""
    answer = ask("GET", f"{url}/experiments/{name}/policy{suffix}")
    if as_json:
        print_json(answer)
    elif answer["policy"]["algorithm"] == "phased":
        _print_phase(answer["policy"])
    else:
        screen.print(draw(answer["policy"], facts["spec"]["experiment"]["arms"]))


def _print_phase(told: dict[str, Any]) -> None:
    sizes = [("actions left", len(told["active"])), ("people wanted", told["clients"])]
    print_table(f"phase {told['version']}", [*sizes, ("people asked", told["draw"]["places"])])
    print_table("plays", told["plays"].items())
