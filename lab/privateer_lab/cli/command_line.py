"""The command line: ``privateer``. Errors are one line and exit code 2."""

import sys
from importlib.metadata import version
from typing import Annotated

import typer
from typer._click.exceptions import ClickException as UsageError  # typer brings its own click, unnamed

from privateer_core.errors import PrivateerError, printable
from privateer_lab.cli import change, operate, run
from privateer_lab.cli.ask import effects_report, experiment, report
from privateer_lab.cli.develop import peers
from privateer_lab.cli.develop.plugins import install
from privateer_lab.cli.prove import account, audit, records, review, transparency
from privateer_lab.cli.try_out import plan, simulate, spec_from

app = typer.Typer(
    name="privateer",
    help="Learn which option works best for whom, from people whose data never leaves their device in the clear.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for module in (
    run,
    spec_from,
    experiment,
    effects_report,
    change,
    operate,
    transparency,
    simulate,
    plan,
    peers,
    account,
    records,
    audit,
    review,
    report,
):
    module.register(app)
for problem in install(app):
    print(f"privateer: {printable(str(problem))}", file=sys.stderr)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"privateer {version('privateer-lab')}")
        raise typer.Exit


@app.callback()
def _root(
    _: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", callback=_print_version, is_eager=True)
    ] = False,
) -> None: ...


def _plain(message: str) -> str:
    return message.replace("Value error, ", "").replace("Input should be", "must be")


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; the process exits with 0, with 2 on an error of the user's, or as the command says."""
    try:
        code = app(arguments, standalone_mode=False)
    except typer.Exit as stop:
        code = stop.exit_code
    except (typer.Abort, KeyboardInterrupt):
        code = 130
    except UsageError as error:
        if message := error.format_message():  # without arguments the help says it all
            print(f"privateer: {_plain(message)}", file=sys.stderr)
        code = 2
    except PrivateerError as error:
        print(f"privateer: {printable(str(error))}", file=sys.stderr)
        code = 2
    except BrokenPipeError:
        sys.stderr.close()
        code = 0
    except OSError as error:
        print(f"privateer: {error.filename or 'system'}: {error.strerror} (name another path)", file=sys.stderr)
        code = 2
    sys.exit(code or 0)
