"""``pause``, ``stop``, ``extend`` and the other changes to a running experiment; its log; and what it exports."""

import base64
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from privateer_core.errors import SpecError
from privateer_lab.cli.ask import Name
from privateer_lab.cli.options import ADMIN_URL, AdminUrl, Json, Token
from privateer_lab.cli.output import open_folder, print_json, print_rows, screen
from privateer_lab.services.rest import ask, bearer

Within = Annotated[
    float | None,
    typer.Option(min=0, help="Seconds after which the open round ends; 0: now. By default it waits until it is full."),
]
Arm = Annotated[str, typer.Argument(help="Name of the arm.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask whether you are sure.")]
_EXPERIMENT = "experiment.json"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (pause, resume, stop, extend, clone, delete, log, export):
        app.command()(command)
    app.command(name="retire-arm")(retire_arm)
    app.command(name="add-arm")(add_arm)


def pause(
    name: Name, within: Within = None, token: Token = None, admin_url: AdminUrl = ADMIN_URL, as_json: Json = False
) -> None:
    """Ask nobody until you resume. People who have chosen may still report to the open round."""
    _change(name, "pause", {"seconds": within}, token, admin_url, as_json)


def resume(name: Name, token: Token = None, admin_url: AdminUrl = ADMIN_URL, as_json: Json = False) -> None:
    """Ask people again after a pause."""
    _change(name, "resume", None, token, admin_url, as_json)


def stop(
    name: Name,
    within: Annotated[float, typer.Option(min=0, help="Seconds after which the open round ends.")] = 0.0,
    token: Token = None,
    admin_url: AdminUrl = ADMIN_URL,
    as_json: Json = False,
) -> None:
    """End an experiment: it asks nobody any more, and its best policy stays published."""
    _change(name, "stop", {"seconds": within}, token, admin_url, as_json)


def extend(
    name: Name,
    horizon: Annotated[int, typer.Argument(min=1, help="The new horizon, all people before included.")],
    within: Within = None,
    token: Token = None,
    admin_url: AdminUrl = ADMIN_URL,
    as_json: Json = False,
) -> None:
    """Let an experiment last longer, also one that is finished."""
    _change(name, "extend", {"horizon": horizon, "seconds": within}, token, admin_url, as_json)


def retire_arm(
    name: Name,
    arm: Arm,
    within: Within = None,
    token: Token = None,
    admin_url: AdminUrl = ADMIN_URL,
    as_json: Json = False,
) -> None:
    """Give an arm to nobody from the next policy on. What is known of it stays, and so does its name."""
    _change(name, "retire-arm", {"arm": arm, "seconds": within}, token, admin_url, as_json)


def add_arm(
    name: Name,
    arm: Arm,
    within: Within = None,
    token: Token = None,
    admin_url: AdminUrl = ADMIN_URL,
    as_json: Json = False,
) -> None:
    """Try one more arm from the next policy on."""
    _change(name, "add-arm", {"arm": arm, "seconds": within}, token, admin_url, as_json)


def clone(
    name: Name,
    new: Annotated[str, typer.Argument(metavar="NEW", help="Name of the new experiment.")],
    horizon: Annotated[int | None, typer.Option(min=1, help="Its horizon; the same by default.")] = None,
    token: Token = None,
    admin_url: AdminUrl = ADMIN_URL,
    as_json: Json = False,
) -> None:
    """Create an experiment that begins with what another one has learned."""
    answer = _post(f"{admin_url}/experiments/{name}/clone", {"name": new, "horizon": horizon}, token)
    print_json(answer) if as_json else screen.print(f"created {new}, which knows what {name} has learned")


def delete(
    name: Name, yes: Yes = False, token: Token = None, admin_url: AdminUrl = ADMIN_URL, as_json: Json = False
) -> None:
    """Erase an experiment for good: its keys, rounds and policies. Nobody can use its name again."""
    if not yes:
        typer.confirm(f"Erase {name} for good?", abort=True)
    page = f"{admin_url}/experiments/{name}"
    answer = ask("DELETE", page, field="--admin-url", headers=bearer(token))
    gone = "deleted" if answer["changed"] else "was deleted before"
    print_json(answer) if as_json else screen.print(f"{name} {gone}")


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


def _change(
    name: str, action: str, body: dict[str, Any] | None, token: str | None, admin_url: str, as_json: bool
) -> None:
    answer = _post(f"{admin_url}/experiments/{name}/{action}", body, token)
    if as_json:
        print_json(answer)
        return
    screen.print(f"{name}: {answer['status']}, version {answer['version']}" + _remark(answer), markup=False)


def _remark(answer: dict[str, Any]) -> str:
    if not answer["changed"]:
        return "; nothing changed"
    waiting = ", ".join(row["action"] for row in answer["waiting"])
    return f"; with the next version: {waiting}" if waiting else ""


def _post(url: str, body: dict[str, Any] | None, token: str | None) -> Any:
    given = {} if body is None else {"json": {key: value for key, value in body.items() if value is not None}}
    return ask("POST", url, field="--admin-url", headers=bearer(token), **given)
