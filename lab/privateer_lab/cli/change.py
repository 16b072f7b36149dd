"""``change``: what may happen to a running experiment, and the log of that; ``export``: what it has learned."""

import base64
import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from privateer_core.errors import SpecError
from privateer_lab.cli.ask import Name
from privateer_lab.cli.command_line import ADMIN_URL, AdminUrl, Json, Token
from privateer_lab.cli.output import open_folder, print_json, print_rows, screen
from privateer_lab.services.rest import ask, bearer
from privateer_server.experiments.changes import CHANGES, Change, Clone, Delete, Option, limit_of

Yes = Annotated[bool, typer.Option("--yes", help="Do not ask whether you are sure.")]
_EXPERIMENT = "experiment.json"
_SHARED: Final = {"token": (Token, None), "admin_url": (AdminUrl, ADMIN_URL), "as_json": (Json, False)}
"""What all commands of changes have, and its defaults."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="Change an experiment that runs, and see who changed it.", no_args_is_help=True)
    for change in CHANGES:
        group.command(name=change.verb, help=change.__doc__)(_command(change))
    group.command()(log)
    app.add_typer(group, name="change")
    app.command()(export)


def _command(change: type[Change]) -> Callable[..., None]:
    """Return the command of a change: fields that must be given are arguments, the others are options."""

    def run(name: str, token: str | None, admin_url: str, as_json: bool, yes: bool = True, **given: Any) -> None:
        if not yes:
            _confirm(f"Erase {name} for good?")
        page = f"{admin_url}/experiments/{name}"
        body = {field: given[_named(change, field)] for field in change.model_fields}
        if change is Delete:
            answer = ask("DELETE", page, field="--admin-url", headers=bearer(token))
        else:
            sent = {"json": {key: value for key, value in body.items() if value is not None}} if body else {}
            answer = ask("POST", f"{page}/{change.verb}", field="--admin-url", headers=bearer(token), **sent)
        print_json(answer) if as_json else screen.print(_outcome(change, name, answer), markup=False)

    kinds: dict[str, tuple[Any, Any]] = {"name": (Name, ...)}
    kinds |= {_named(change, field): _parameter(change, field) for field in change.model_fields}
    kinds |= ({"yes": (Yes, False)} if change is Delete else {}) | _SHARED
    run.__annotations__ = {name: kind for name, (kind, _) in kinds.items()} | {"return": None}
    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if default is ... else default,
            annotation=kind,
        )
        for name, (kind, default) in kinds.items()
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def _confirm(question: str) -> None:
    """Ask somebody at a terminal; through a pipe the answer comes unasked."""
    if sys.stdin.isatty():
        typer.echo(f"{question} [y/N]: ", nl=False, err=True)
    answer = sys.stdin.readline()
    if not answer:
        raise SpecError("it needs a confirmation", field="--yes", remedy="give --yes where nobody can be asked")
    if answer.strip().lower() not in {"y", "yes"}:
        raise typer.Abort


def _named(change: type[Change], field: str) -> str:
    """Return how the command line calls a field."""
    return next((one.name for one in change.model_fields[field].metadata if isinstance(one, Option)), field)


def _parameter(change: type[Change], field: str) -> tuple[Any, Any]:
    """Return the type and the default of a field's argument or option."""
    facts, name = change.model_fields[field], _named(change, field)
    least = limit_of(facts, "ge")
    text = f"{facts.title}. {facts.description or ''}".strip()
    if facts.is_required():
        return Annotated[facts.annotation, typer.Argument(metavar=name.upper(), min=least, help=text)], ...
    return Annotated[facts.annotation, typer.Option(f"--{name}", min=least, help=text)], facts.default


def _outcome(change: type[Change], name: str, answer: dict[str, Any]) -> str:
    if change is Delete:
        return f"{name} deleted" if answer["changed"] else f"{name} was deleted before"
    if change is Clone:
        return f"created {answer['name']}, which knows what {name} has learned"
    return f"{name}: {answer['status']}, version {answer['version']}{_remark(answer)}"


def _remark(answer: dict[str, Any]) -> str:
    if not answer["changed"]:
        return "; nothing changed"
    waiting = ", ".join(row["action"] for row in answer["waiting"])
    remark = f"; with the next version: {waiting}" if waiting else ""
    return f"{remark}; the open round was given up, with what came in it" if answer.get("given_up") else remark


def log(name: Name, token: Token = None, admin_url: AdminUrl = ADMIN_URL, as_json: Json = False) -> None:
    """Show what was changed, when and by whom; also of a deleted experiment."""
    answer = ask("GET", f"{admin_url}/experiments/{name}/log", field="--admin-url", headers=bearer(token))
    print_json(answer) if as_json else print_rows(f"changes to {name}", answer["changes"])


def export(
    name: Name,
    target: Annotated[Path, typer.Argument(metavar="DIR|FILE", help="A folder, or one file (.json).")],
    token: Token = None,
    admin_url: AdminUrl = ADMIN_URL,
) -> None:
    """Write policy, result, record and certificate of an experiment; privateer create --warm-start begins with it."""
    document = ask("GET", f"{admin_url}/experiments/{name}/export", field="--admin-url", headers=bearer(token))
    files = {target.name: document} if target.suffix == ".json" else _parts(document)
    folder = target.parent if target.suffix == ".json" else target
    open_folder(folder, "DIR|FILE")
    if taken := next((path for path in files if (folder / path).exists()), None):
        raise SpecError(f"there is a {taken} already", field="DIR|FILE", remedy="name another place")
    for path, part in files.items():
        body = part if isinstance(part, bytes) else json.dumps(part, indent=2).encode() + b"\n"
        (folder / path).write_bytes(body)
        screen.print(f"{folder / path}: {len(body):,} bytes", soft_wrap=True, markup=False)


def _parts(document: dict[str, Any]) -> dict[str, Any]:
    """Return the files of a folder: the whole document, and those of its parts that are read by themselves."""
    parts = {name: document[name] for name in ("policy", "record", "result") if document[name] is not None}
    parts["certificate"] = document["record"]["certificate"]
    publication = base64.b64decode(document["publication"])
    return {_EXPERIMENT: document, "publication.msgpack": publication} | {f"{name}.json": parts[name] for name in parts}
