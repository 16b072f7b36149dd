"""``list``: the experiments of a server."""

import typer

from privateer_lab.cli.command_line import URL, Json, Url
from privateer_lab.cli.output import print_json, screen
from privateer_lab.services.rest import request_json


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="list")(list_experiments)


def list_experiments(url: Url = URL, as_json: Json = False) -> None:
    """List the experiments of a server."""
    answer = request_json("GET", f"{url}/experiments")
    if as_json:
        print_json(answer)
        return
    for row in answer["experiments"]:
        screen.print(f"{row['name']}: {row['status']}, version {row['version']}, {row['model']}")
