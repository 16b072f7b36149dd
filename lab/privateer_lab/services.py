"""The server and the shuffler as processes of this machine, for ``up``, ``demo`` and ``bench``."""

import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from privateer.errors import Unavailable

_START_SECONDS = 30.0


class Processes:
    """The two processes, by name; they can be killed and started again on the same data."""

    def __init__(self) -> None:
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._how: dict[str, tuple[str, dict[str, str], str]] = {}

    def start(self, name: str, how: tuple[str, dict[str, str], str] | None = None) -> None:
        """Start a process: its module, environment and address, or as it was started before."""
        module, environment, url = self._how[name] = how or self._how[name]
        settings = os.environ | {"PRIVATEER_HOST": "127.0.0.1", "PRIVATEER_PORT": url.rpartition(":")[2]} | environment
        # -P: what lies about in the working directory is not imported.
        self._running[name] = subprocess.Popen(
            [sys.executable, "-P", "-c", f"from {module} import main; main()"], env=settings
        )

    def wait(self, name: str) -> None:
        """Return when a process is ready.

        Raises
        ------
        Unavailable
            If it ends, or takes too long.
        """
        deadline, url = time.monotonic() + _START_SECONDS, self._how[name][2]
        while time.monotonic() < deadline and self._running[name].poll() is None:
            try:
                if httpx.get(f"{url}/readyz", timeout=2).status_code == httpx.codes.OK:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.1)
        raise Unavailable(f"the {name} did not start", remedy="see its message above; is the port taken?")

    def kill(self, name: str) -> None:
        """End a process at once, as a crash does."""
        self._running[name].kill()
        self._running[name].wait()

    def stop(self) -> None:
        """End all; the shuffler first, since it is the server's guest."""
        for process in reversed(self._running.values()):
            process.terminate()
            process.wait(timeout=_START_SECONDS)


@dataclass(frozen=True)
class Services:
    """Where the running services are, the token that creates experiments, and the processes."""

    server: str
    shuffler: str
    token: str
    processes: Processes


def free_port() -> int:
    """A port of the loopback interface that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(data: Path, server_port: int, shuffler_port: int, token: str | None = None) -> Iterator[Services]:
    """Start both services with their data under ``data``; stop them at the end.

    Raises
    ------
    Unavailable
        If one does not become ready.
    """
    trusted = data / "trusted"
    for folder in (data / "server", data / "shuffler", trusted):
        folder.mkdir(parents=True, exist_ok=True)
    server, shuffler = f"http://127.0.0.1:{server_port}", f"http://127.0.0.1:{shuffler_port}"
    services = Services(server, shuffler, token or secrets.token_urlsafe(24), Processes())
    environments = {
        "server": {
            "PRIVATEER_DATA": str(data / "server"),
            "PRIVATEER_ADMIN_TOKEN": services.token,
            "PRIVATEER_SHUFFLER_KEYS": str(trusted),
        },
        "shuffler": {
            "PRIVATEER_DATA": str(data / "shuffler"),
            "PRIVATEER_SERVER_URL": server,
            "PRIVATEER_PUBLIC_KEY_FILE": str(trusted / "shuffler.pub"),
        },
    }
    processes = services.processes
    try:
        for name, url in (("server", server), ("shuffler", shuffler)):
            processes.start(name, (f"privateer_{name}.app", environments[name], url))
        for name in environments:
            processes.wait(name)
        yield services
    finally:
        processes.stop()
