"""Every command that runs a service starts it, and so does every such line of the docs: each is asked something."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from privateer_lab.cli.command_line import COMMANDS
from privateer_lab.services.processes import free_port
from tests.docs.test_readme import BIN, ROOT, in_this_process

SECONDS: Final = 90.0
TOKEN: Final = "token-of-the-starting-tests"
_BLOCK: Final = re.compile(r"^( *)```sh\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
_STARTS: Final = re.compile(r"^(?:\w+=\S+ +)*(?:\.venv/bin/)?privateer(?: serve|-)? ?(up|server|shuffler|issuer)\b")
_OURS: Final = re.compile(r"(?:\S+=\S+ )*(?:\.venv/bin/)?(?:privateer|make|docker-compose|pip)\b")
_FOLDER: Final = re.compile(r"=(\S+)/\w+\.(?:db|key)\b")


def runs() -> set[str]:
    """Return the commands that run services: the group Run, and the rest of its module."""
    modules = {name: module for commands in COMMANDS.values() for name, (module, _) in commands.items()}
    (group,) = (commands for heading, commands in COMMANDS.items() if heading.startswith("Run:"))
    return set(group) | {name for name, module in modules.items() if module == "run"}


class Ports:
    """Free ports for the services of a command, and the settings that pass them to it."""

    def __init__(self) -> None:
        self.server, self.shuffler, self.issuer = free_port(), free_port(), free_port()
        self.private = {"server": free_port(), "shuffler": free_port(), "issuer": free_port()}

    def public(self, service: str) -> int:
        return int(vars(self)[service])

    def environment(self, service: str) -> dict[str, str]:
        """Return the settings of a command that runs this service; ``up`` takes its server's ports from there."""
        first_service = "server" if service == "up" else service
        ports = {"PRIVATEER_PORT": self.public(first_service), "PRIVATEER_ADMIN_PORT": self.private[first_service]}
        return {name: str(port) for name, port in ports.items()}

    def options(self) -> list[str]:
        """Return the options of ``up``, for the ports that no variable gives."""
        ports = {
            "--shuffler-port": self.shuffler,
            "--shuffler-admin-port": self.private["shuffler"],
            "--issuer-port": self.issuer,
            "--issuer-admin-port": self.private["issuer"],
        }
        return [part for option, port in ports.items() for part in (option, str(port))]


@contextmanager
def run_command(command: list[str], folder: Path, environment: dict[str, str]) -> Iterator["subprocess.Popen[str]"]:
    """Run a command in a folder, with the programs of this environment, and end it and all that it started."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PRIVATEER_")}
    path = {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    log = (folder / "log").open("w")
    process = subprocess.Popen(
        command, cwd=folder, env=clean | path | environment, stdout=log, stderr=log, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(SECONDS)
        log.close()


def wait_for_answer(process: "subprocess.Popen[str]", folder: Path, url: str) -> httpx.Response:
    """What a service answers once it does."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            return httpx.get(url, timeout=10, trust_env=False)
        except httpx.TransportError:
            time.sleep(0.1)
    raise AssertionError(f"nothing answers at {url}: {(folder / 'log').read_text()[-2000:]}")


def ask(service: str, ports: Ports, process: "subprocess.Popen[str]", folder: Path) -> None:
    """Ask a service that a command has started what it alone knows."""
    url, private = f"http://127.0.0.1:{ports.public(service)}", f"http://127.0.0.1:{ports.private[service]}"
    page, key = {
        "server": ("/experiments", "experiments"),
        "shuffler": ("/keys", "public_key"),
        "issuer": ("/token-keys", "keys"),
    }[service]
    assert key in wait_for_answer(process, folder, url + page).json() or service == "issuer"
    assert httpx.get(f"{url}/healthz").json() == {"status": "ok"}
    assert "privateer_" in httpx.get(f"{private}/metrics").text
    assert httpx.get(f"{url}/metrics").status_code == httpx.get(f"{url}/version").status_code == 404
    build = httpx.get(f"{private}/version").json()
    assert f"version={build['version']}+{build['commit'][:12]} " in (folder / "log").read_text() + " "
    for listener in (url, private):  # whoever calls a service without a page learns what it is, and where its pages are
        remedy = httpx.get(f"{listener}/").json()["remedy"]
        assert ("dashboard" if service == "server" else f"a Privateer {service}: its /openapi.json") in remedy
        assert httpx.get(f"{listener}/openapi.json").json()["paths"]


def run_alone(service: str, folder: Path, *options: str) -> None:
    ports = Ports()
    environment = ports.environment(service) | {"PRIVATEER_ADMIN_TOKEN": TOKEN}
    with run_command(["privateer", "serve", service, *options], folder, environment) as process:
        ask(service, ports, process, folder)
        assert list((folder / "data" / service).iterdir())


def run_all(folder: Path) -> None:
    """Services for an experiment with tokens, and simulated people who take part in it with a key and without."""
    ports, name = Ports(), "test"
    environment = ports.environment("up") | {"PRIVATEER_ADMIN_TOKEN": TOKEN}
    with run_command(["privateer", "up", "--tokens", name, *ports.options()], folder, environment) as process:
        for service in ("server", "shuffler", "issuer"):
            ask(service, ports, process, folder)
        private = ports.private["issuer"]
        line = f"issuer    http://127.0.0.1:{ports.issuer}  (private: http://127.0.0.1:{private})"
        assert line in (folder / "log").read_text()


def run_load(folder: Path) -> None:
    ports = Ports()
    environment = ports.environment("up") | {"PRIVATEER_ADMIN_TOKEN": TOKEN}
    with run_command(["privateer", "up", *ports.options()], folder, environment) as process:
        ask("shuffler", ports, process, folder)  # the server was ready before
        environment_ = {
            "PRIVATEER_URL": f"http://127.0.0.1:{ports.server}",
            "PRIVATEER_ADMIN_URL": f"http://127.0.0.1:{ports.private['server']}",
            "PRIVATEER_SHUFFLER_URL": f"http://127.0.0.1:{ports.shuffler}",
            "PRIVATEER_SENDER_KEY": str(folder / "data" / "sender.key"),
            "PRIVATEER_ADMIN_TOKEN": TOKEN,
            "PRIVATEER_LEDGER": str(folder / "ledger.db"),
        }
        in_this_process(["create", str(ROOT / "examples" / "peaks-shuffle.toml")], environment_)
        in_this_process(["load", "peaks-shuffle", "--users", "100"], environment_)
        assert "peaks-shuffle" in in_this_process(["list", "--json"], environment_)


def run_demo(folder: Path) -> None:
    in_this_process(["demo", "--users", "2000", "--no-keep", "--out", str(folder / "demo.html")], {})
    assert (folder / "demo.html").stat().st_size > 1000


def run_bench(_: Path) -> None:
    assert '"report path"' in in_this_process(["bench", "--users", "4000", "--json"], {})


RUNS: Final[dict[str, Callable[[Path], None]]] = {
    "up": run_all,
    "load": run_load,
    "serve server": partial(run_alone, "server"),
    "serve shuffler": partial(run_alone, "shuffler"),
    "serve issuer": lambda folder: run_alone("issuer", folder, "--experiments", "a,b", "--attestation", "open"),
    "demo": run_demo,
    "bench": run_bench,
}
SLOW: Final = {"load", "demo", "bench"}


def test_no_command_is_forgotten() -> None:
    assert {name.split()[0] for name in RUNS} == runs()


@pytest.mark.parametrize(
    "command", [pytest.param(name, marks=[pytest.mark.nightly] if name in SLOW else []) for name in RUNS]
)
def test_every_command_of_the_group_run_starts_and_answers(command: str, tmp_path: Path) -> None:
    RUNS[command](tmp_path)


def service_lines() -> Iterator[tuple[str, str, str]]:
    """Lines of the docs that start services: the page, what comes before in the same block, and the line."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*/README.md"))]
    for page in pages:
        for indent, block in _BLOCK.findall(page.read_text()):
            before = list[str]()
            for line in (line_.removeprefix(indent) for line_ in block.replace("\\\n", " ").splitlines()):
                if _STARTS.search(line.partition("#")[0]):
                    yield page.relative_to(ROOT).as_posix(), "\n".join(before), line
                elif not _OURS.match(line):
                    before.append(line)


def unique_service_lines() -> list[Any]:
    """Return these lines, each once; lines on every page, and lines that the group's tests start as well, by night."""
    unique = {(before, line.replace(".venv/bin/", "")): page for page, before, line in reversed(list(service_lines()))}
    return [
        pytest.param(before, line, id=page, marks=[pytest.mark.nightly] if " up" in line else [])
        for (before, line), page in reversed(unique.items())
    ]


def test_the_pages_start_services() -> None:
    pages = {page for page, _, _ in service_lines()}
    assert {"README.md", "server/README.md", "shuffler/README.md", "issuer/README.md", "docs/tokens.md"} <= pages
    assert {"docs/operations/install.md", "docs/operations/backup.md", "docs/web.md"} <= pages
    assert len(unique_service_lines()) >= 8


@pytest.mark.parametrize(("before", "line"), unique_service_lines())
def test_a_line_of_the_docs_starts_its_service(before: str, line: str, tmp_path: Path) -> None:
    """In an empty folder, on free ports."""
    (service,) = _STARTS.findall(line)
    ports = Ports()
    for folder in _FOLDER.findall(line):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    options = f" {' '.join(ports.options())}" if service == "up" else ""
    with run_command(["sh", "-ec", f"{before}\n{line}{options}"], tmp_path, ports.environment(service)) as process:
        for name in ("server", "shuffler") if service == "up" else (service,):
            ask(name, ports, process, tmp_path)
