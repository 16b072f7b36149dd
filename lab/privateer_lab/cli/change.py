"""``change``: changes of running experiments, and their log; ``export``: files of an experiment's results."""

import base64
import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from privateer_core.errors import SpecError
from privateer_lab.cli.command_line import ADMIN_URL, AdminUrl, Json, Name, Token
from privateer_lab.cli.output import open_folder, print_json, print_rows, screen
from privateer_lab.services.rest import admin_headers, request_json
from privateer_server.experiments.changes import CHANGES, Change, Clone, Delete, Option, find_limit

Yes = Annotated[bool, typer.Option("--yes", help="Do not ask whether you are sure.")]
_DOCUMENT = "experiment.json"
_SHARED_PARAMETERS: Final = {"token": (Token, None), "admin_url": (AdminUrl, ADMIN_URL), "as_json": (Json, False)}
"""Parameters of all change commands, with defaults."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="Change an experiment that runs, and see who changed it.", no_args_is_help=True)
    for change in CHANGES:
        group.command(name=change.verb, help=change.__doc__)(_build_command(change))
    group.command()(log)
    app.add_typer(group, name="change")
    app.command()(export)


def _build_command(change: type[Change]) -> Callable[..., None]:
    """Build the command of a change: required fields are arguments, the others are options."""

    def run(name: str, token: str | None, admin_url: str, as_json: bool, yes: bool = True, **arguments: Any) -> None:
        if not yes:
            _confirm(f"Erase {name} for good?")
        page = f"{admin_url}/experiments/{name}"
        body = {field: arguments[_option_name(change, field)] for field in change.model_fields}
        request = {"json": {key: value for key, value in body.items() if value is not None}} if body else {}
        method, target = ("DELETE", page) if change is Delete else ("POST", f"{page}/{change.verb}")
        response = request_json(method, target, field="--admin-url", headers=admin_headers(token), **request)
        print_json(response) if as_json else screen.print(_format_outcome(change, name, response), markup=False)

    hints: dict[str, tuple[Any, Any]] = {"name": (Name, ...)}
    hints |= {_option_name(change, field): _build_parameter(change, field) for field in change.model_fields}
    hints |= ({"yes": (Yes, False)} if change is Delete else {}) | _SHARED_PARAMETERS
    run.__annotations__ = {name: hint for name, (hint, _) in hints.items()} | {"return": None}
    defaults = {name: inspect.Parameter.empty if default is ... else default for name, (_, default) in hints.items()}
    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name], annotation=hint)
        for name, (hint, _) in hints.items()
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def _confirm(question: str) -> None:
    """Ask for confirmation on standard input; abort without it."""
    if sys.stdin.isatty():
        typer.echo(f"{question} [y/N]: ", nl=False, err=True)
    answer = sys.stdin.readline()
    if not answer:
        raise SpecError("it needs a confirmation", field="--yes", remedy="give --yes where nobody can be asked")
    if answer.strip().lower() not in {"y", "yes"}:
        raise typer.Abort


def _option_name(change: type[Change], field: str) -> str:
    """Return the name of a field on the command line."""
    return next((option.name for option in change.model_fields[field].metadata if isinstance(option, Option)), field)


def _build_parameter(change: type[Change], field: str) -> tuple[Any, Any]:
    """Return the type and the default of a field's argument or option."""
    field_info, name = change.model_fields[field], _option_name(change, field)
    minimum = find_limit(field_info, "ge")
    text = f"{field_info.title}. {field_info.description or ''}".strip()
    if field_info.is_required():
        return Annotated[field_info.annotation, typer.Argument(metavar=name.upper(), min=minimum, help=text)], ...
    return Annotated[field_info.annotation, typer.Option(f"--{name}", min=minimum, help=text)], field_info.default


def _format_outcome(change: type[Change], name: str, response: dict[str, Any]) -> str:
    """Say what a change did to the experiment, by the server's response."""
    if change is Delete:
        return f"{name} deleted" if response["changed"] else f"{name} was deleted before"
    if change is Clone:
        return f"created {response['name']}, which knows what {name} has learned"
    return f"{name}: {response['status']}, version {response['version']}{_format_remark(response)}"


def _format_remark(response: dict[str, Any]) -> str:
    """Format clauses: nothing changed, actions that wait for the next version, an open round given up."""
    if not response["changed"]:
        return "; nothing changed"
    pending = ", ".join(row["action"] for row in response["pending_changes"])
    remark = f"; with the next version: {pending}" if pending else ""
    return f"{remark}; the open round was given up, with what came in it" if response.get("round_given_up") else remark


def log(name: Name, token: Token = None, admin_url: AdminUrl = ADMIN_URL, as_json: Json = False) -> None:
    """Show what was changed, when and by whom; also of a deleted experiment."""
    page = f"{admin_url}/experiments/{name}/log"
    response = request_json("GET", page, field="--admin-url", headers=admin_headers(token))
    print_json(response) if as_json else print_rows(f"changes to {name}", response["changes"])


def export(
    name: Name,
    target: Annotated[Path, typer.Argument(metavar="DIR|FILE", help="A folder, or one file (.json).")],
    token: Token = None,
    admin_url: AdminUrl = ADMIN_URL,
) -> None:
    """Write policy, result, record and certificate of an experiment; privateer create --warm-start begins with it."""
    page = f"{admin_url}/experiments/{name}/export"
    document = request_json("GET", page, field="--admin-url", headers=admin_headers(token))
    files = {target.name: document} if target.suffix == ".json" else _export_files(document)
    folder = target.parent if target.suffix == ".json" else target
    open_folder(folder, "DIR|FILE")
    if existing := next((path for path in files if (folder / path).exists()), None):
        raise SpecError(f"there is a {existing} already", field="DIR|FILE", remedy="name another place")
    for path, part in files.items():
        body = part if isinstance(part, bytes) else json.dumps(part, indent=2).encode() + b"\n"
        (folder / path).write_bytes(body)
        screen.print(f"{folder / path}: {len(body):,} bytes", soft_wrap=True, markup=False)


def _export_files(document: dict[str, Any]) -> dict[str, Any]:
    """Return the contents of an export's files by name: the whole document, and its separate parts."""
    parts = {name: document[name] for name in ("policy", "record", "result") if document[name] is not None}
    parts["certificate"] = document["record"]["certificate"]
    publication = base64.b64decode(document["publication"])
    return {_DOCUMENT: document, "publication.msgpack": publication} | {f"{name}.json": parts[name] for name in parts}
