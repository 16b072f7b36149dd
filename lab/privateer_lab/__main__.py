"""The command line, or an error message if its libraries are not installed."""

import sys


def main() -> None:
    """Run the command line; exit with 2 if it needs a library that is not installed."""
    try:
        from privateer_lab.cli.command_line import main as run

        run()
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("privateer_lab"):
            raise
        print(f"privateer: {error.name} is not installed (install privateer-lab[workbench])", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
