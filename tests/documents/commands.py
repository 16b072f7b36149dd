"""The page of all commands, from the command line itself."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from privateer_lab.cli import command_line

PAGE = Path("docs/reference/commands.md")
_HEAD = """# Commands

Every command of `privateer`, as `privateer COMMAND --help` says it. Errors are one line and exit code 2.
"""


def documents() -> dict[Path, str]:
    """The text of the file."""
    return {PAGE: "\n".join([_HEAD, *(_section(path, command) for path, command in leaves())])}


def leaves() -> list[tuple[str, Any]]:
    """Every command with its full name, subcommands included."""
    names = typer.main.get_command(command_line.app).commands  # type: ignore[attr-defined]
    return [leaf for name in names for leaf in _leaves(f"privateer {name}", command_line.command(name))]


def _leaves(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    if own := getattr(command, "commands", None):
        for name, one in own.items():
            yield from _leaves(f"{path} {name}", one)
    else:
        yield path, command


def _section(path: str, command: Any) -> str:
    parameters = [one for one in command.params if one.name != "help"]
    arguments = [one for one in parameters if one.param_type_name == "argument"]
    shown = " ".join([path, *(_called(one) for one in arguments)])
    text = f"## `{shown}`\n\n{_plain(command.help)}\n"
    rows = [f"| {_names(one)} | {_default(one)} | {_plain(one.help)} |" for one in parameters]
    return text + ("\n| | default | |\n|---|---|---|\n" + "\n".join(rows) + "\n" if rows else "")


def _called(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    return name if argument.required else f"[{name}]"


def _names(one: Any) -> str:
    if one.param_type_name == "argument":
        return f"`{_called(one).strip('[]')}`".replace("|", "\\|")
    variable = f", `{one.envvar}`" if one.envvar else ""
    return ", ".join(f"`{name}`" for name in one.opts) + variable


def _default(one: Any) -> str:
    if one.required:
        return "required"
    value = one.default
    return "" if value is None or value is False or callable(value) or value in ([], ()) else f"`{value}`"


def _plain(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")
