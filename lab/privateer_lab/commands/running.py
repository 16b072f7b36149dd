"""``server``, ``shuffler``, ``up``: services on this machine; ``demo``: everything in one command."""

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from privateer_lab.output import print_json, print_table, screen
from privateer_lab.services import free_port, running

Data = Annotated[Path, typer.Option(help="Directory for keys and databases.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(server)
    app.command()(shuffler)
    app.command()(up)
    app.command()(demo)
    app.command()(bench)


def server(
    host: Annotated[str, typer.Option(envvar="PRIVATEER_HOST")] = "127.0.0.1",
    port: Annotated[int, typer.Option(envvar="PRIVATEER_PORT", min=1, max=65535)] = 8000,
    data: Annotated[Path, typer.Option(envvar="PRIVATEER_DATA")] = Path("data/server"),
) -> None:
    """Run the server; further settings come from the environment (docs/configuration.md)."""
    from privateer_server.app import main

    _environment(host, port, data)
    main([])


def shuffler(
    host: Annotated[str, typer.Option(envvar="PRIVATEER_HOST")] = "127.0.0.1",
    port: Annotated[int, typer.Option(envvar="PRIVATEER_PORT", min=1, max=65535)] = 8001,
    data: Annotated[Path, typer.Option(envvar="PRIVATEER_DATA")] = Path("data/shuffler"),
) -> None:
    """Run the shuffler; further settings come from the environment (docs/configuration.md)."""
    from privateer_shuffler.app import main

    _environment(host, port, data)
    main()


def _environment(host: str, port: int, data: Path) -> None:
    os.environ.update(PRIVATEER_HOST=host, PRIVATEER_PORT=str(port), PRIVATEER_DATA=str(data))


@contextmanager
def _until_told() -> Iterator[None]:
    """End the block on SIGINT and SIGTERM, in order: else the services would outlive this process."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except KeyboardInterrupt:
        screen.print("stopping")


def up(
    data: Data = Path("data"),
    server_port: Annotated[int, typer.Option(min=1, max=65535)] = 8000,
    shuffler_port: Annotated[int, typer.Option(min=1, max=65535)] = 8001,
    admin_port: Annotated[int, typer.Option(min=1, max=65535, help="Private listener of the server.")] = 8002,
    shuffler_admin_port: Annotated[int, typer.Option(min=1, max=65535, help="Of the shuffler.")] = 8003,
    token: Annotated[str | None, typer.Option(envvar="PRIVATEER_ADMIN_TOKEN", help="Made up if not given.")] = None,
) -> None:
    """Run server and shuffler here until interrupted."""
    private = (admin_port, shuffler_admin_port)
    with _until_told(), running(data, server_port, shuffler_port, token, private) as services:
        screen.print(f"server    {services.server}  (private: {services.admin})")
        screen.print(f"shuffler  {services.shuffler}  (private: {services.shuffler_admin})")
        shown = "..." if token else services.token  # the operator knows the token that they gave
        line = f"PRIVATEER_ADMIN_TOKEN={shown} privateer create SPEC.toml"
        screen.print(f"create an experiment:\n  {line}", soft_wrap=True)
        services.processes.watch()


def demo(
    users: Annotated[int, typer.Option(min=2000, help="Simulated people.")] = 30_000,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the services running at the end.")] = False,
) -> None:
    """Services, an experiment under shuffle privacy, people over HTTP, and the policy they teach."""
    from privateer_lab.demo import print_addresses, run_demo

    with _until_told():
        with (
            tempfile.TemporaryDirectory(prefix="privateer-") as folder,
            running(Path(folder), free_port(), free_port(), quiet=True) as services,
        ):
            run_demo(services, users)
            if keep:
                print_addresses(services)
                services.processes.watch()
        screen.print("The services have stopped; privateer up starts them to stay.")


def bench(
    users: Annotated[int, typer.Option(min=5000, help="Simulated people.")] = 60_000,
    batch: Annotated[int, typer.Option(min=1, max=1000, help="Sealed reports per upload.")] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure the report path against one core's HPKE opens."""
    from privateer_lab.bench import bench_pipeline

    result = bench_pipeline(users, batch)
    print_json(result) if as_json else print_table("report path", result.items())
