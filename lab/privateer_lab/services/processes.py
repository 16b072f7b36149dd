"""The server and the shuffler as processes of this machine, for ``up``, ``demo`` and ``bench``."""

import errno
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple, NoReturn

import httpx

from privateer_core.errors import SpecError, Unavailable
from privateer_core.wire.keys import load_or_create_key, publish_key

_START_SECONDS = 90.0
_LOOPBACK_SETTINGS = {"PRIVATEER_HOST": "127.0.0.1", "PRIVATEER_ADMIN_HOST": "127.0.0.1"}
_FREE_PORTS, _PORT_SHARES = range(20_000, 32_000), 16
"""Ports outside of the ephemeral ranges of all systems, and the number of processes that share them out."""
_tried_ports: set[int] = set()
_PORT_OPTIONS = ("--server-port", "--shuffler-port", "--admin-port", "--shuffler-admin-port")


class Processes:
    """Processes of services by name, to be killed and restarted on the same data; quiet ones log warnings alone."""

    def __init__(self, quiet: bool = False, log: BinaryIO | None = None) -> None:
        self._log = log
        self._logging_code = "import logging; logging.disable(logging.INFO); " if quiet else ""
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._start_arguments: dict[str, tuple[str, dict[str, str], str]] = {}

    def start(self, name: str, arguments: tuple[str, dict[str, str], str] | None = None) -> None:
        """Start a process by its module, environment and address, or as it was started before."""
        module, environment, url = self._start_arguments[name] = arguments or self._start_arguments[name]
        settings = os.environ | _LOOPBACK_SETTINGS | {"PRIVATEER_PORT": url.rpartition(":")[2]} | environment
        # -P: modules in the working directory are not imported.
        code = f"{self._logging_code}from {module} import main; main()"
        self._running[name] = subprocess.Popen([sys.executable, "-P", "-c", code], env=settings, stderr=self._log)

    def wait(self, name: str) -> None:
        """Wait until a process is ready; `Unavailable` if it ends, or takes too long."""
        deadline, url = time.monotonic() + _START_SECONDS, self._start_arguments[name][2]
        with httpx.Client(timeout=2) as http:  # a single client, since each reads all certificates
            while time.monotonic() < deadline:
                ready = _is_ready(http, url)
                if self._running[name].poll() is not None:  # another process has answered
                    raise Unavailable(f"the {name} did not start", remedy="see its message above")
                if ready:
                    return
                time.sleep(0.1)
        remedy = "try again when the machine has less to do"
        raise Unavailable(f"the {name} is not ready after {_START_SECONDS:g} seconds", remedy=remedy)

    def watch(self) -> NoReturn:
        """Check every second that all processes run, and raise an error when a process ends."""
        while True:
            for name, process in self._running.items():
                if (code := process.poll()) is not None:
                    remedy = "see its log above, then start privateer up again"
                    ending = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
                    raise Unavailable(f"the {name} {ending}", remedy=remedy)
            time.sleep(1)

    def pid(self, name: str) -> int:
        """Return the id of a process."""
        return self._running[name].pid

    def kill(self, name: str) -> None:
        """End a process at once, as a crash does."""
        self._running[name].kill()
        self._running[name].wait()

    def stop(self) -> None:
        """End all processes, those started last first: the shuffler depends on the server."""
        for process in reversed(self._running.values()):
            process.terminate()
            process.wait(timeout=_START_SECONDS)


def _is_ready(http: httpx.Client, url: str) -> bool:
    """Tell whether a service answers that it is ready."""
    try:
        return http.get(f"{url}/readyz").status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


class Services(NamedTuple):
    """The running services: their public and private listeners, the admin token, a trusted key, and the processes."""

    server: str
    shuffler: str
    admin: str
    shuffler_admin: str
    token: str
    sender_key: Path
    processes: Processes
    issuer: str = ""


class IssuerProcess(NamedTuple):
    """The settings of an issuer beside the services, which then accept only reports with upload tokens."""

    experiments: str  # names of the experiments that it issues tokens for, separated by commas
    port: int  # of its public listener
    # attestation, secrets: the kind of attestation of devices, and the file of secrets shared with the application's
    # backend
    attestation: str = "open"
    secrets: Path | None = None
    admin_port: int = 0  # of its private listener; 0: a free one

    @property
    def url(self) -> str:
        """The issuer's URL."""
        return f"http://127.0.0.1:{self.port}"

    def settings(self, data: Path) -> dict[str, str]:
        """Return the settings of the issuer."""
        return {
            "PRIVATEER_DATA": str(data / "issuer"),
            "PRIVATEER_PORT": str(self.port),
            "PRIVATEER_ADMIN_PORT": str(self.admin_port or free_port()),
            "PRIVATEER_EXPERIMENTS": self.experiments,
            "PRIVATEER_ISSUER_NAME": f"127.0.0.1:{self.port}",
            "PRIVATEER_ATTESTATION_VERIFIER": self.attestation,
            "PRIVATEER_PUBLIC_KEY_FILE": str(data / "tokens" / "issuer.json"),
            **({"PRIVATEER_ATTESTATION_SECRETS": str(self.secrets)} if self.secrets else {}),
            **_LOOPBACK_SETTINGS,
        }

    def token_settings(self, data: Path, url: str) -> dict[str, str]:
        """Return the additional settings of a service at a URL that checks upload tokens."""
        return {
            "PRIVATEER_UPLOAD_TOKENS": "required",
            "PRIVATEER_TOKEN_KEYS": str(data / "tokens"),
            "PRIVATEER_TOKEN_ORIGIN": url.removeprefix("http://"),
        }


def free_port() -> int:
    """Return a free port of the loopback interface.

    It is below the ephemeral ports, since a system may give an ephemeral port away before the service listens. No
    process tries a port again before it has tried all of its share, and processes started one after another have
    different shares.
    """
    share = _FREE_PORTS[os.getpid() % _PORT_SHARES :: _PORT_SHARES]
    for _ in range(2 * len(share)):
        if _tried_ports.issuperset(share):
            _tried_ports.clear()
        port = secrets.choice([port for port in share if port not in _tried_ports])
        _tried_ports.add(port)
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError(errno.EADDRINUSE, f"no port from {_FREE_PORTS.start} to {_FREE_PORTS.stop - 1} is free")


def check_ports(ports: Mapping[str, int]) -> None:
    """Check that ports, by their command-line options, are free."""
    with ExitStack() as probes:
        for option, port in ports.items():
            try:
                probes.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError as error:
                is_taken = error.errno == errno.EADDRINUSE
                detail = f"{port} is taken" if is_taken else f"cannot listen on {port}: {error.strerror}"
                remedy = "stop the other services, or choose another port" if is_taken else "choose another port"
                raise SpecError(detail, field=option, remedy=remedy) from None


def service_settings(data: Path, ports: tuple[int, int, int, int], token: str) -> dict[str, dict[str, str]]:
    """Return both services' settings, with data under ``data``; ports: server's, shuffler's, and their private ones."""
    server, shuffler, admin, shuffler_admin = map(str, ports)
    common = _LOOPBACK_SETTINGS | {"PRIVATEER_SENDER_KEYS": str(data / "senders")}
    return {
        "server": {
            "PRIVATEER_DATA": str(data / "server"),
            "PRIVATEER_ADMIN_TOKEN": token,
            "PRIVATEER_PORT": server,
            "PRIVATEER_ADMIN_PORT": admin,
            "PRIVATEER_SHUFFLER_KEYS": str(data / "trusted"),
            **common,
        },
        "shuffler": {
            "PRIVATEER_DATA": str(data / "shuffler"),
            "PRIVATEER_SERVER_URL": f"http://127.0.0.1:{admin}",
            "PRIVATEER_PORT": shuffler,
            "PRIVATEER_ADMIN_PORT": shuffler_admin,
            "PRIVATEER_PUBLIC_KEY_FILE": str(data / "trusted" / "shuffler.pub"),
            **common,
        },
    }


@contextmanager
def run_services(
    data: Path,
    server_port: int,
    shuffler_port: int,
    token: str | None = None,
    private: tuple[int, int] | None = None,
    *,
    quiet: bool = False,
    log: BinaryIO | None = None,
    issuing: IssuerProcess | None = None,
    origins: str = "",
) -> Iterator[Services]:
    """Run both services, and an issuer if given, for the block; pages of ``origins`` may send them requests."""
    ports = (server_port, shuffler_port, *(private or (free_port(), free_port())))
    issuer_ports = {"--issuer-port": issuing.port, "--issuer-admin-port": issuing.admin_port} if issuing else {}
    check_ports({**dict(zip(_PORT_OPTIONS, ports, strict=True)), **issuer_ports})
    for folder in (data / "server", data / "shuffler", data / "trusted"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    token, key = token or secrets.token_urlsafe(24), data / "sender.key"
    publish_key(load_or_create_key(key, "--data"), data / "senders" / "sender.pub")
    server, shuffler, admin, shuffler_admin = (f"http://127.0.0.1:{port}" for port in ports)
    services = Services(server, shuffler, admin, shuffler_admin, token, key, Processes(quiet, log))
    cors = {"PRIVATEER_CORS_ORIGINS": origins} if origins else {}
    settings = {name: service | cors for name, service in service_settings(data, ports, token).items()}
    urls = {"server": server, "shuffler": shuffler}
    if issuing:
        services = services._replace(issuer=issuing.url)
        checked = {name: service | issuing.token_settings(data, urls[name]) for name, service in settings.items()}
        settings, urls = ({"issuer": issuing.settings(data) | cors, **checked}, {"issuer": issuing.url, **urls})
    try:
        # One after the other: a shuffler that follows experiments would warn that the server does not answer yet.
        for name, url in urls.items():
            services.processes.start(name, (f"privateer_{name}.app", settings[name], url))
            services.processes.wait(name)
        yield services
    finally:
        services.processes.stop()
