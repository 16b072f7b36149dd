"""The command line: ``privateer``. Errors are one line, and exit code 2, 3 or 4.

A command's module is imported when the command runs; the list of commands imports none.
"""

import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer import Argument, Option
from typer._click.exceptions import ClickException as UsageError  # typer brings its own click, unnamed
from typer.core import TyperCommand, TyperGroup
from typing_extensions import override

from privateer_core.errors import PluginError, PrivateerError, exit_code, printable
from privateer_core.plugins import Plugins
from privateer_lab.simulation.parallel import JOBS_MAX, SEEDS_MAX, Backend

COMMANDS: Final[dict[str, dict[str, tuple[str, str]]]] = {
    "Plan: what can you expect, before anybody is asked?": {
        "spec-from": ("try_out", "Draft an experiment from the columns of a file."),
        "plan": ("plan", "Say what an experiment can be expected to earn, and what would change that."),
        "simulate": ("try_out", "Run an experiment, or many variants, with simulated people, without services."),
        "demo": ("run", "See a whole experiment: services, people and what was learned."),
    },
    "Run: the services that people's devices talk to": {
        "up": ("run", "Run a server and a shuffler here until you interrupt them."),
        "load": ("try_out", "Let simulated people take part over HTTP, as devices do."),
        "serve": ("run", "Run one service alone: server, shuffler or issuer."),
    },
    "Ask: begin experiments, and read what was learned": {
        "create": ("create", "Begin an experiment from a spec, or check the spec."),
        "list": ("ask", "List the experiments of a server."),
        "answer": ("ask", "Say which option, for whom, how much better, and how sure."),
        "analyze": ("analyze", "Show the effects of a test that is over, from a file of its rows."),
        "evaluate": ("evaluate", "Show what options or a policy would have earned, from a log of choices."),
    },
    "Change: experiments that run": {
        "change": ("change", "Pause, resume, stop, extend, clone or delete one, add or retire an option."),
        "export": ("change", "Write policy, result, record and certificate to files."),
    },
    "Operate: keep services healthy": {
        "doctor": ("operate", "Look for what is wrong with services, and change nothing."),
        "backup": ("operate", "Copy the database of a running server."),
        "restore": ("operate", "Make a data folder from a backup."),
        "token": ("operate", "Make the tokens with which people administer a server."),
    },
    "Prove: that the promise to people holds": {
        "account": ("account", "Calculate privacy, and check records and certificates."),
        "audit": ("prove", "Attack every claim of privacy."),
        "review": ("prove", "Write a pack of documents for reviewers and lawyers."),
        "log": ("prove", "Check a server's public log, and show the key that signs it."),
    },
    "Measure: beside other software": {
        "bench": ("run", "Measure what a report costs on its way."),
        "peers": ("try_out", "Compare an experiment with libraries that others wrote."),
    },
}
"""Commands by heading, with the module in ``privateer_lab.cli`` and a line of help."""
PLUGINS: Final = Plugins[Callable[[typer.Typer], None]]("privateer.commands", "distribution that brings it", "command")
"""Functions that add a command, by the command's name; ``account-x`` adds to the group ``account``."""
_PAPERS: Final = {"reproduce": "Make figures and tables of papers again."}
"""Commands of the distribution privateer-papers."""
_LAST_HEADING: Final = list(COMMANDS)[-1]
_MODULES: Final = {name: module for commands in COMMANDS.values() for name, (module, _) in commands.items()}
_HELP: Final = """Learn which option works best for whom, from people whose data never leaves their device in the clear.

From a question to an answer in six commands:

  1  privateer spec-from data.csv --out spec.toml   draft an experiment from a file of people like yours
  2  privateer plan spec.toml                       read what to expect of it, before you ask anybody
  3  privateer up                                   start the services here, and leave them running
  4  privateer create spec.toml                     begin the experiment, with the token that `up` shows
  5  privateer load NAME                            let simulated people take part, by the name in spec.toml
  6  privateer answer NAME                          read which option is best, for whom, and how sure that is

Without services, in place of 3 to 6: privateer simulate spec.toml
If the file says what people got, and what came of it: spec-from data.csv --arm COLUMN --reward COLUMN
All commands: privateer --help. More on one: privateer COMMAND --help"""
"""Output of ``privateer`` without a command."""
Url = Annotated[str, Option(envvar="PRIVATEER_URL", help="Address of the server.")]
AdminUrl = Annotated[str, Option(envvar="PRIVATEER_ADMIN_URL", help="Address of the server's private listener.")]
ShufflerAdminUrl = Annotated[
    str, Option(envvar="PRIVATEER_SHUFFLER_ADMIN_URL", help="Address of the shuffler's private listener.")
]
ShufflerUrl = Annotated[str, Option(envvar="PRIVATEER_SHUFFLER_URL", help="Address of the shuffler.")]
Token = Annotated[str | None, Option(envvar="PRIVATEER_ADMIN_TOKEN", help="Admin token of the server.")]
Json = Annotated[bool, Option("--json", help="Print JSON.")]
ServerPort = Annotated[int, Option(envvar="PRIVATEER_PORT", min=1, max=65535, help="The server's port.")]
ShufflerPort = Annotated[int, Option(min=1, max=65535, help="The shuffler's port.")]
AdminPort = Annotated[int, Option(envvar="PRIVATEER_ADMIN_PORT", min=1, max=65535, help="The server's private port.")]
ShufflerAdminPort = Annotated[int, Option(min=1, max=65535, help="The shuffler's private port.")]
IssuerPort = Annotated[int, Option(min=1, max=65535, help="The issuer's port.")]
IssuerAdminPort = Annotated[int, Option(min=1, max=65535, help="The issuer's private port.")]
Name = Annotated[str, Argument(metavar="NAME", help="Name of the experiment.")]
SpecFile = Annotated[Path, Argument(metavar="SPEC", help="The spec, a TOML file.")]
PeopleSpec = Annotated[Path, Argument(metavar="SPEC", help="The spec, a TOML file with a population section.")]
Set = Annotated[list[str], Option("--set", help="Set a key of the spec: section.key=value. May be repeated.")]
Users = Annotated[int | None, Option(min=1, help="Number of people; the spec's by default.")]
Person = Annotated[
    str | None, Option(metavar="COLUMN", help="Column of people, if some have several rows: each counts once.")
]
Cluster = Annotated[
    str | None,
    Option(metavar="COLUMN", help="Column of what rows depend on each other by, as shops: errors are theirs."),
]
Control = Annotated[str | None, Option(help="Option with which the others are compared; the first by name by default.")]
LowerIsBetter = Annotated[bool, Option("--lower-is-better", help="Less of the reward is better, as of waiting times.")]
Missing = Annotated[list[str], Option(help="A text that stands for no value, such as 999. May be repeated.")]
Population = Annotated[
    str | None,
    Option(help="Other simulated people: an environment, a TOML file with a population section, or module:Class."),
]
Seeds = Annotated[int, Option(min=1, max=SEEDS_MAX, help="Number of independent runs of each setting.")]
Jobs = Annotated[int | None, Option(min=1, max=JOBS_MAX, help="Number of processes; one a core by default.")]
On = Annotated[Backend, Option(help="Run processes here, or on a Ray cluster.")]
URL = "http://127.0.0.1:8000"
ADMIN_URL = "http://127.0.0.1:8002"
SHUFFLER_URL = "http://127.0.0.1:8001"
SHUFFLER_ADMIN_URL = "http://127.0.0.1:8003"


@cache
def load_command(name: str) -> Any:
    """Import a command, or a group with the commands of plug-ins; `PluginError` if it is not installed."""
    app = typer.Typer()
    if name in _MODULES:
        import_module(f"privateer_lab.cli.{_MODULES[name]}").register(app)
        _add_plugins([plugin for plugin in PLUGINS if plugin.startswith(f"{name}-")], app)
    elif name in PLUGINS:
        PLUGINS[name](app)
    else:
        raise PluginError(f"the command {name} is not installed", field=name, remedy="install privateer-papers")
    return typer.main.get_group(app).commands[name]


def _add_plugins(plugins: list[str], app: typer.Typer) -> None:
    """Add the commands of plug-ins; print an error if a plug-in cannot be loaded."""
    for plugin in plugins:
        try:
            PLUGINS[plugin](app)
        except PluginError as error:
            print(f"privateer: {printable(str(error))}", file=sys.stderr)


class _Commands(TyperGroup):
    """A command group that imports a command when it is run."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for heading, commands in COMMANDS.items():
            for name, (_, line) in commands.items():
                self.add_command(TyperCommand(name, help=line, rich_help_panel=heading))
        for name, line in _PAPERS.items():
            self.add_command(TyperCommand(name, help=line, rich_help_panel=_LAST_HEADING, hidden=name not in PLUGINS))

    @override
    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, resolved, rest = super().resolve_command(ctx, args)
        return name, load_command(name) if name in _MODULES or name in _PAPERS else resolved, rest


app = typer.Typer(
    name="privateer",
    cls=_Commands,
    help="Learn which option works best for whom, from people whose data never leaves their device in the clear.",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
)


_add_plugins([name for name in PLUGINS if name not in _PAPERS and name.partition("-")[0] not in _MODULES], app)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        print(f"privateer {version('privateer-lab')}")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    _: Annotated[
        bool, Option("--version", help="Print the version and stop.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        print(_HELP)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; the process exits with the code of an error's kind, or as the command says."""
    try:
        code = app(arguments, standalone_mode=False)
    except typer.Exit as stop:
        code = stop.exit_code
    except (typer.Abort, KeyboardInterrupt):
        code = 130
    except UsageError as error:
        if message := error.format_message():  # without arguments the help says it all
            message = message.replace("Value error, ", "").replace("Input should be", "must be")
            print(f"privateer: {message}", file=sys.stderr)
        code = 2
    except PrivateerError as error:
        print(f"privateer: {printable(str(error))}", file=sys.stderr)
        code = exit_code(error)
    except BrokenPipeError:
        sys.stderr.close()
        code = 0
    except OSError as error:
        print(f"privateer: {error.filename or 'system'}: {error.strerror} (name another path)", file=sys.stderr)
        code = 2
    sys.exit(code or 0)
