"""The server and the shuffler as processes of this machine, for ``up``, ``demo`` and ``bench``."""

import errno
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import httpx

from privateer.errors import SpecError, Unavailable
from privateer.wire.keys import own_key, publish_key

_START_SECONDS = 30.0
_PORTS = ("--server-port", "--shuffler-port", "--admin-port", "--shuffler-admin-port")


class Processes:
    """The two processes, by name; they can be killed and started again on the same data.

    Parameters
    ----------
    quiet
        Whether they log only warnings and errors.
    """

    def __init__(self, quiet: bool = False) -> None:
        self._before = "import logging; logging.disable(logging.INFO); " if quiet else ""
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._how: dict[str, tuple[str, dict[str, str], str]] = {}

    def start(self, name: str, how: tuple[str, dict[str, str], str] | None = None) -> None:
        """Start a process by its module, environment and address, or as it was started before."""
        module, environment, url = self._how[name] = how or self._how[name]
        here = {"PRIVATEER_HOST": "127.0.0.1", "PRIVATEER_ADMIN_HOST": "127.0.0.1"}
        settings = os.environ | here | {"PRIVATEER_PORT": url.rpartition(":")[2]} | environment
        # -P: modules in the working directory are not imported.
        code = f"{self._before}from {module} import main; main()"
        self._running[name] = subprocess.Popen([sys.executable, "-P", "-c", code], env=settings)

    def wait(self, name: str) -> None:
        """Wait until a process is ready.

        Raises
        ------
        Unavailable
            If it ends, or takes too long.
        """
        deadline, url = time.monotonic() + _START_SECONDS, self._how[name][2]
        while time.monotonic() < deadline:
            ready = _is_ready(url)
            if self._running[name].poll() is not None:  # another process has answered
                break
            if ready:
                return
            time.sleep(0.1)
        raise Unavailable(f"the {name} did not start", remedy="see its message above")

    def watch(self) -> NoReturn:
        """Check once a second that the processes run.

        Raises
        ------
        Unavailable
            When one has ended.
        """
        while True:
            for name, process in self._running.items():
                if (code := process.poll()) is not None:
                    remedy = "see its log above, then start privateer up again"
                    raise Unavailable(f"the {name} ended with code {code}", remedy=remedy)
            time.sleep(1)

    def pid(self, name: str) -> int:
        """Return the id of a process."""
        return self._running[name].pid

    def kill(self, name: str) -> None:
        """End a process at once, as a crash does."""
        self._running[name].kill()
        self._running[name].wait()

    def stop(self) -> None:
        """End both processes; the shuffler first, since it depends on the server."""
        for process in reversed(self._running.values()):
            process.terminate()
            process.wait(timeout=_START_SECONDS)


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", timeout=2).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


@dataclass(frozen=True)
class Services:
    """The running services.

    Attributes
    ----------
    server, shuffler
        Addresses of their public listeners.
    admin, shuffler_admin
        Addresses of their private listeners.
    token
        The admin token.
    sender_key
        File of a key that both trust with several people's reports at once.
    processes
        Their processes.
    """

    server: str
    shuffler: str
    admin: str
    shuffler_admin: str
    token: str
    sender_key: Path
    processes: Processes


def free_port() -> int:
    """Return a port of the loopback interface on which nobody listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def check_ports(ports: Mapping[str, int]) -> None:
    """Check that nobody listens on these ports, given by the options that name them.

    Raises
    ------
    SpecError
        Naming the option of the first that is taken, or named twice.
    """
    with ExitStack() as probes:
        for option, port in ports.items():
            try:
                probes.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError as error:
                taken = error.errno == errno.EADDRINUSE
                why = f"{port} is taken" if taken else f"cannot listen on {port}: {error.strerror}"
                remedy = "stop the other services, or choose another port" if taken else "choose another port"
                raise SpecError(why, field=option, remedy=remedy) from None


@contextmanager
def running(
    data: Path,
    server_port: int,
    shuffler_port: int,
    token: str | None = None,
    private: tuple[int, int] | None = None,
    *,
    quiet: bool = False,
) -> Iterator[Services]:
    """Start both services with their data under ``data``; stop them at the end.

    ``private`` are the ports of the private listeners, the server's first; by default free ones. ``quiet`` services log
    only warnings and errors.

    Raises
    ------
    SpecError
        If a port is taken.
    Unavailable
        If a service does not become ready.
    """
    for folder in (data / "server", data / "shuffler", data / "trusted"):
        folder.mkdir(parents=True, exist_ok=True)
    ports = (server_port, shuffler_port, *(private or (free_port(), free_port())))
    check_ports(dict(zip(_PORTS, ports, strict=True)))
    server, shuffler, admin, shuffler_admin = (f"http://127.0.0.1:{port}" for port in ports)
    token = token or secrets.token_urlsafe(24)
    services = Services(server, shuffler, admin, shuffler_admin, token, _sender_key(data), Processes(quiet))
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
    publish_key(own_key(path, "--data"), data / "senders" / "sender.pub")
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
