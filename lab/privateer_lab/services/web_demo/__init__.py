"""``privateer demo --web``: services of this machine, and a page on which every visitor is a device."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

from privateer_core.algorithms import read_spec
from privateer_lab.cli.output import screen
from privateer_lab.services.processes import Services, check_ports, free_port, running
from privateer_lab.services.rest import create
from privateer_lab.services.web_demo.site import Told, sdk_folder, serving


def run_web_demo(port: int | None = None) -> None:
    """Serve the page until somebody interrupts it; ``port`` is the page's, by default a free one.

    Raises
    ------
    SpecError
        If the port is taken, or the SDK for JavaScript is not here.
    """
    with tempfile.TemporaryDirectory(prefix="privateer-") as folder, web_demo(Path(folder), port) as (page, services):
        screen.print(f"open [bold]{page}[/] in a browser: every visitor is a device, and nothing leaves this machine")
        screen.print(f"the server's own page is {services.server}/ ; interrupt with Ctrl-C")
        services.processes.watch()


@contextmanager
def web_demo(folder: Path, port: int | None = None) -> Iterator[tuple[str, Services]]:
    """Start the services on data in a folder, create the experiment, and serve the page; yield its address and them."""
    sdk, port = sdk_folder(), port or free_port()
    check_ports({"--port": port})
    page = f"http://127.0.0.1:{port}"
    spec = read_spec((files("privateer_lab.services.web_demo") / "places.toml").read_text(encoding="utf-8"))
    with running(folder, free_port(), free_port(), quiet=True, origins=page) as services:
        create(services.admin, spec, services.token)
        with serving(Told(sdk, services.server, services.shuffler, spec.name), port):
            yield f"{page}/", services
