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


@dataclass(frozen=True)
class Services:
    """Where the running services are, and the token that creates experiments."""

    server: str
    shuffler: str
    token: str


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
    token = token or secrets.token_urlsafe(24)
    trusted = data / "trusted"
    for folder in (data / "server", data / "shuffler", trusted):
        folder.mkdir(parents=True, exist_ok=True)
    services = Services(f"http://127.0.0.1:{server_port}", f"http://127.0.0.1:{shuffler_port}", token)
    server = {
        "PRIVATEER_DATA": str(data / "server"),
        "PRIVATEER_ADMIN_TOKEN": token,
        "PRIVATEER_SHUFFLER_KEYS": str(trusted),
        "PRIVATEER_PORT": str(server_port),
    }
    shuffler = {
        "PRIVATEER_DATA": str(data / "shuffler"),
        "PRIVATEER_SERVER_URL": services.server,
        "PRIVATEER_PUBLIC_KEY_FILE": str(trusted / "shuffler.pub"),
        "PRIVATEER_PORT": str(shuffler_port),
    }
    processes = [_start("privateer_server.app", server), _start("privateer_shuffler.app", shuffler)]
    try:
        _wait(services.server, processes[0], "server")
        _wait(services.shuffler, processes[1], "shuffler")
        yield services
    finally:
        # The shuffler first: it is the server's guest.
        for process in reversed(processes):
            process.terminate()
            process.wait(timeout=_START_SECONDS)


def _start(module: str, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    code = f"from {module} import main; main()"
    quiet = os.environ | {"PRIVATEER_HOST": "127.0.0.1"} | environment
    return subprocess.Popen([sys.executable, "-c", code], env=quiet)


def _wait(url: str, process: subprocess.Popen[bytes], name: str) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(f"{url}/readyz", timeout=2).status_code == httpx.codes.OK:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise Unavailable(f"the {name} did not start", remedy="see its message above; is the port taken?")
