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
from privateer.wire.keys import make_signing_key, publish_key, read_signing_key

_START_SECONDS = 30.0


class Processes:
    """The two processes, by name; they can be killed and started again on the same data."""

    def __init__(self) -> None:
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._how: dict[str, tuple[str, dict[str, str], str]] = {}

    def start(self, name: str, how: tuple[str, dict[str, str], str] | None = None) -> None:
        """Start a process: its module, environment and address, or as it was started before."""
        module, environment, url = self._how[name] = how or self._how[name]
        here = {"PRIVATEER_HOST": "127.0.0.1", "PRIVATEER_ADMIN_HOST": "127.0.0.1"}
        settings = os.environ | here | {"PRIVATEER_PORT": url.rpartition(":")[2]} | environment
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

    def pid(self, name: str) -> int:
        """The id of a process."""
        return self._running[name].pid

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
    """Where the running services are.

    Attributes
    ----------
    server, shuffler
        Their public listeners.
    admin, shuffler_admin
        Their private ones.
    token
        What creates experiments.
    sender_key
        File of a key that both trust with several people's reports at once.
    processes
        They themselves.
    """

    server: str
    shuffler: str
    admin: str
    shuffler_admin: str
    token: str
    sender_key: Path
    processes: Processes


def free_port() -> int:
    """A port of the loopback interface that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(
    data: Path,
    server_port: int,
    shuffler_port: int,
    token: str | None = None,
    *,
    admin_port: int | None = None,
    shuffler_admin_port: int | None = None,
) -> Iterator[Services]:
    """Start both services with their data under ``data``; stop them at the end.

    Private listeners are at free ports unless these are given.

    Raises
    ------
    Unavailable
        If one does not become ready.
    """
    for folder in (data / "server", data / "shuffler", data / "trusted"):
        folder.mkdir(parents=True, exist_ok=True)
    ports = (server_port, shuffler_port, admin_port or free_port(), shuffler_admin_port or free_port())
    server, shuffler, admin, shuffler_admin = (f"http://127.0.0.1:{port}" for port in ports)
    token = token or secrets.token_urlsafe(24)
    services = Services(server, shuffler, admin, shuffler_admin, token, _sender_key(data), Processes())
    environments = _environments(data, services)
    processes = services.processes
    try:
        for name, url in (("server", services.server), ("shuffler", services.shuffler)):
            processes.start(name, (f"privateer_{name}.app", environments[name], url))
        for name in environments:
            processes.wait(name)
        yield services
    finally:
        processes.stop()


def _sender_key(data: Path) -> Path:
    path = data / "sender.key"
    make_signing_key(path)
    publish_key(read_signing_key(path, "--data"), data / "senders" / "sender.pub")
    return path


def _environments(data: Path, services: Services) -> dict[str, dict[str, str]]:
    trusted, senders = data / "trusted", str(data / "senders")
    return {
        "server": {
            "PRIVATEER_DATA": str(data / "server"),
            "PRIVATEER_ADMIN_TOKEN": services.token,
            "PRIVATEER_ADMIN_PORT": services.admin.rpartition(":")[2],
            "PRIVATEER_SHUFFLER_KEYS": str(trusted),
            "PRIVATEER_SENDER_KEYS": senders,
        },
        "shuffler": {
            "PRIVATEER_DATA": str(data / "shuffler"),
            "PRIVATEER_SERVER_URL": services.admin,
            "PRIVATEER_ADMIN_PORT": services.shuffler_admin.rpartition(":")[2],
            "PRIVATEER_PUBLIC_KEY_FILE": str(trusted / "shuffler.pub"),
            "PRIVATEER_SENDER_KEYS": senders,
        },
    }
