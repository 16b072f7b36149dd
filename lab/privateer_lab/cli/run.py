"""``up``, ``serve``: services on this machine; ``demo``, ``bench``: whole experiments."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Annotated

import httpx
import typer
from typer import Option

from privateer_core.errors import SpecError
from privateer_lab.audit.transparency_log import LogSource
from privateer_lab.cli import command_line as options
from privateer_lab.cli.output import announce_task, interrupt_on_sigterm, print_json, print_table, screen
from privateer_lab.render.words import name_figures
from privateer_lab.services.processes import IssuerProcess, Services, free_port, run_services

Data = Annotated[Path, Option(help="Folder for keys and databases.")]
Host = Annotated[str, Option(envvar="PRIVATEER_HOST", help="Address of the public listener.")]
Port = Annotated[int, Option(envvar="PRIVATEER_PORT", min=1, max=65535, help="Port of the public listener.")]
DataFolder = Annotated[Path, Option(envvar="PRIVATEER_DATA", help="Folder for keys and databases.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="Run one service alone, in the foreground.", no_args_is_help=True)
    for service in (server, shuffler, issuer):
        group.command()(service)
    app.add_typer(group, name="serve")
    for command in (up, demo, bench):
        app.command()(command)


def server(host: Host = "127.0.0.1", port: Port = 8000, data: DataFolder = Path("data/server")) -> None:
    """Run the server. Further settings come from the environment (docs/configuration.md)."""
    _serve("server", host, port, data)


def shuffler(host: Host = "127.0.0.1", port: Port = 8001, data: DataFolder = Path("data/shuffler")) -> None:
    """Run the shuffler. Further settings come from the environment (docs/configuration.md)."""
    _serve("shuffler", host, port, data)


def issuer(
    experiments: Annotated[
        str, Option(envvar="PRIVATEER_EXPERIMENTS", help="Names of experiments, separated by commas.")
    ],
    attestation: Annotated[
        str, Option(envvar="PRIVATEER_ATTESTATION_VERIFIER", help="How it knows devices: hmac, open, or another plug.")
    ],
    host: Host = "127.0.0.1",
    port: Port = 8004,
    data: DataFolder = Path("data/issuer"),
) -> None:
    """Run the issuer of upload tokens. Further settings come from the environment (docs/configuration.md)."""
    _serve("issuer", host, port, data, PRIVATEER_EXPERIMENTS=experiments, PRIVATEER_ATTESTATION_VERIFIER=attestation)


def _serve(service: str, host: str, port: int, data: Path, **settings: str) -> None:
    """Run a service with these settings, and without this program's command line."""
    os.environ.update(PRIVATEER_HOST=host, PRIVATEER_PORT=str(port), PRIVATEER_DATA=str(data), **settings)
    import_module(f"privateer_{service}.app").main([])


@contextmanager
def _stop_on_signal() -> Iterator[None]:
    """End the block on SIGINT and SIGTERM; the services would otherwise outlive this process."""
    try:
        with interrupt_on_sigterm():
            yield
    except KeyboardInterrupt:
        screen.print("stopping")


def up(
    data: Data = Path("data"),
    server_port: options.ServerPort = 8000,
    shuffler_port: options.ShufflerPort = 8001,
    admin_port: options.AdminPort = 8002,
    shuffler_admin_port: options.ShufflerAdminPort = 8003,
    token: Annotated[
        str | None, Option(envvar="PRIVATEER_ADMIN_TOKEN", help="The server's admin token; made up if not given.")
    ] = None,
    tokens: Annotated[str, Option(help="Experiments whose reports need upload tokens; starts an issuer.")] = "",
    issuer_port: options.IssuerPort = 8004,
    issuer_admin_port: options.IssuerAdminPort = 8005,
) -> None:
    """Run a server and a shuffler here until you interrupt them."""
    private_ports = (admin_port, shuffler_admin_port)
    issuer_process = IssuerProcess(tokens, issuer_port, admin_port=issuer_admin_port) if tokens else None
    ports = (server_port, shuffler_port)
    with _stop_on_signal(), run_services(data, *ports, token, private_ports, issuing=issuer_process) as services:
        screen.print(f"server    {services.server}  (private: {services.admin})")
        screen.print(f"shuffler  {services.shuffler}  (private: {services.shuffler_admin})")
        if services.issuer:
            screen.print(f"issuer    {services.issuer}  (private: http://127.0.0.1:{issuer_admin_port})")
        screen.print(f"dashboard {services.server}/")
        with httpx.Client() as http:
            screen.print(f"log key   {LogSource(services.server, http).fetch_key().hex()}")
        shown_token = "..." if token else services.token  # the operator knows the token that they gave
        admin_option = "" if services.admin == options.ADMIN_URL else f" --admin-url {services.admin}"
        line = f"PRIVATEER_ADMIN_TOKEN={shown_token} privateer create SPEC.toml{admin_option}"
        screen.print(f"create an experiment:\n  {line}", soft_wrap=True)
        services.processes.watch()


def demo(
    context: typer.Context,
    users: Annotated[int, Option(min=2000, help="Number of simulated people.")] = 30_000,
    keep: Annotated[bool | None, Option(help="Keep the services running at the end; by default in a terminal.")] = None,
    out: Annotated[Path, Option(metavar="FILE.html", help="The page with the picture.")] = Path("out/demo.html"),
    web: Annotated[
        bool, Option("--web", help="Serve a page instead, on which every visitor is a device, until Ctrl-C.")
    ] = False,
) -> None:
    """Start services, create a shuffled experiment, have people take part over HTTP, and show what it learned.

    In a terminal the services stay until you press Enter, so that you can look at the dashboard.
    """
    from privateer_lab.services.demo import run_demo, run_web_demo

    is_watched = sys.stdin.isatty() and sys.stdout.isatty()
    if web:
        _refuse_web_options(context)
    if out.is_dir():
        raise SpecError(f"{out} is a folder", field="--out", remedy="name a file")

    with _stop_on_signal():
        if web:
            run_web_demo()
            return
        with (
            tempfile.TemporaryDirectory(prefix="privateer-") as folder,
            run_services(Path(folder), free_port(), free_port(), quiet=True) as services,
        ):
            announce_task(f"{users:,} simulated people take part over HTTP", "a minute or so")
            page = run_demo(services, users, out)
            if is_watched if keep is None else keep:
                _keep_running(services, page, is_watched)
        screen.print("The services have stopped. To start services that stay: privateer up")


def _refuse_web_options(context: typer.Context) -> None:
    """Refuse options that do nothing with --web."""
    for name in ("users", "keep", "out"):
        source = context.get_parameter_source(name)
        if source is not None and source.name != "DEFAULT":
            remedy = "leave it out: visitors of the page are the people, and it stays until Ctrl-C"
            raise SpecError("does nothing with --web", field=f"--{name}", remedy=remedy)


def _keep_running(services: Services, page: str, is_watched: bool) -> None:
    """Keep the services running until the user stops them."""
    screen.print(
        f"The services still run. Look at them in a browser:\n"
        f"  {services.server}/  the dashboard\n"
        f"  {page}/privacy  what the experiment promises to each person\n"
        f"{'Press Enter' if is_watched else 'Press Ctrl-C'} to stop them.",
        soft_wrap=True,
    )
    if is_watched:
        sys.stdin.readline()
    else:
        services.processes.watch()


def bench(
    users: Annotated[int, Option(min=4000, help="Number of people in each run.")] = 40_000,
    soak: Annotated[
        int, Option(min=0, help="Instead: have so many people report, and show how memory, disks and logs grow.")
    ] = 0,
    databases: Annotated[
        tuple[str, str] | None,
        Option(help="Instead: compare one server with two on these PostgreSQL databases, for store and journal."),
    ] = None,
    as_json: Annotated[bool, Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure what a report costs on its way, in multiples of opening one."""
    from privateer_lab.bench import LOOK, bench_answers, bench_path, bench_replicas, bench_soak

    if not as_json:
        announce_task("starting services and measuring them", "one to five minutes")
    if soak:
        for rows in bench_soak(soak, min(soak, LOOK)):
            if as_json:
                print_json(rows)
            else:
                for title, figures in rows.items():
                    print_table(title, name_figures({name: round(figure, 2) for name, figure in figures.items()}))
        return
    tables = bench_replicas(users, *databases) if databases else bench_path(users) | bench_answers(users)
    if as_json:
        print_json({"servers" if databases else "report path": tables})
        return
    screen.print("Each figure of the report path is processor time a report, in multiples of opening one.")
    for title, figures in tables.items():
        print_table(title, name_figures(figures))
