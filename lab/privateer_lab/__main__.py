"""The command line, or where its libraries are not installed, one line that says so."""

import sys


def main() -> None:
    """Run the command line; the process exits with 2 where only the load driver is installed."""
    try:
        from privateer_lab.cli.command_line import main as run
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.startswith("privateer_lab"):
            raise
        print(f"privateer: {missing.name} is not installed (install privateer-lab[workbench])", file=sys.stderr)
        sys.exit(2)
    run()


if __name__ == "__main__":
    main()
