"""Commands that other distributions bring."""

from collections.abc import Callable
from typing import Final

import typer

from privateer_core.errors import PluginError
from privateer_core.plugins import Plugins

COMMANDS: Final = Plugins[Callable[[typer.Typer], None]]("privateer.commands", "distribution that brings it", "command")
"""What adds a command to the command line, by the command's name."""
_ELSEWHERE: Final = {"reproduce": "privateer-papers"}
"""Commands of ours that are not installed with the lab, and the distributions that bring them."""


def install(app: typer.Typer) -> list[PluginError]:
    """Add all commands, and for those of ours that are missing one that says so; return what cannot be added."""
    problems = []
    for name in COMMANDS:
        try:
            COMMANDS[name](app)
        except PluginError as problem:
            problems.append(problem)
    for name, distribution in _ELSEWHERE.items():
        if name not in COMMANDS:
            app.command(name, hidden=True, context_settings=_ANYTHING)(_missing(name, distribution))
    return problems


_ANYTHING: Final = {"allow_extra_args": True, "ignore_unknown_options": True}


def _missing(name: str, distribution: str) -> Callable[[], None]:
    def refuse() -> None:
        detail = f"the command {name} is not installed"
        raise PluginError(detail, field=name, remedy=f"install {distribution}")

    return refuse
