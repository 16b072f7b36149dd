"""The page of all commands, from the command line itself."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from privateer_lab.cli import command_line

PAGE = Path("docs/reference/commands.md")
_HEAD = """# Commands

Every command of `privateer`, as `privateer COMMAND --help` says it. Errors are one line.
The exit code says whose they are:

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | done, and what was checked does not hold: a claim, a record, a service's health |
| 2 | a wrong command, option, file or setting, or a service that refuses |
| 3 | a service that does not answer, cannot answer now, or is none of Privateer's |
| 4 | no such experiment, version or page |
| 130 | interrupted |

With `--json` a command prints one document. Its `format`, such as `privateer/output/1`, gets another number
if a key goes or changes its meaning. Keys may be added.
"""


def documents() -> dict[Path, str]:
    """The text of the file."""
    return {PAGE: "\n".join([_HEAD, *(_section(path, command) for path, command in leaves())])}


def leaves() -> list[tuple[str, Any]]:
    """Every command with its full name, subcommands included."""
    names = typer.main.get_command(command_line.app).commands  # type: ignore[attr-defined]
    return [leaf for name in names for leaf in _leaves(f"privateer {name}", command_line.load_command(name))]


def _leaves(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    if subcommands := getattr(command, "commands", None):
        for name, subcommand in subcommands.items():
            yield from _leaves(f"{path} {name}", subcommand)
    else:
        yield path, command


def _section(path: str, command: Any) -> str:
    parameters = [parameter for parameter in command.params if parameter.name != "help"]
    arguments = [parameter for parameter in parameters if parameter.param_type_name == "argument"]
    usage = " ".join([path, *(_metavar(argument) for argument in arguments)])
    text = f"## `{usage}`\n\n{_cell(command.help)}\n"
    rows = [f"| {_names(parameter)} | {_default(parameter)} | {_cell(parameter.help)} |" for parameter in parameters]
    return text + ("\n| | default | |\n|---|---|---|\n" + "\n".join(rows) + "\n" if rows else "")


def _metavar(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    return name if argument.required else f"[{name}]"


def _names(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{_metavar(parameter).strip('[]')}`".replace("|", "\\|")
    variable = f", `{parameter.envvar}`" if parameter.envvar else ""
    return ", ".join(f"`{name}`" for name in parameter.opts) + variable


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    value = parameter.default
    return "" if value is None or value is False or callable(value) or value in ([], ()) else f"`{value}`"


def _cell(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")
