"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from privateer_lab.simulation.parallel import JOBS_MAX, SEEDS_MAX, Backend

Url = Annotated[str, typer.Option(envvar="PRIVATEER_URL", help="Address of the server.")]
AdminUrl = Annotated[str, typer.Option(envvar="PRIVATEER_ADMIN_URL", help="Address of the server's private listener.")]
ShufflerAdminUrl = Annotated[
    str, typer.Option(envvar="PRIVATEER_SHUFFLER_ADMIN_URL", help="Address of the shuffler's private listener.")
]
Token = Annotated[str | None, typer.Option(envvar="PRIVATEER_ADMIN_TOKEN", help="Admin token of the server.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
SpecFile = Annotated[Path, typer.Argument(help="The spec, a TOML file.")]
PeopleSpec = Annotated[Path, typer.Argument(help="The spec, a TOML file with a population section.")]
Set = Annotated[list[str], typer.Option("--set", help="Set a key of the spec: section.key=value. May be repeated.")]
Users = Annotated[int | None, typer.Option(min=1, help="Number of people; the spec's by default.")]
Seeds = Annotated[int, typer.Option(min=1, max=SEEDS_MAX, help="Number of independent runs of each setting.")]
Jobs = Annotated[int | None, typer.Option(min=1, max=JOBS_MAX, help="Number of processes; one a core by default.")]
On = Annotated[Backend, typer.Option(help="Run processes here, or on a Ray cluster.")]
URL = "http://127.0.0.1:8000"
ADMIN_URL = "http://127.0.0.1:8002"
SHUFFLER_ADMIN_URL = "http://127.0.0.1:8003"
