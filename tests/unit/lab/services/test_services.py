"""The services that ``up`` starts, and what ``show`` knows of a shuffler."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from privateer_core.answer.people import HeldReports, People
from privateer_core.errors import SpecError, Unavailable
from privateer_lab.cli.command_line import main
from privateer_lab.load.driver import run_load
from privateer_lab.services import processes
from privateer_lab.services import rest as shuffler_holdings
from privateer_lab.services.demo import demo_spec
from privateer_lab.services.processes import Processes, check_ports, free_port, run_services
from privateer_lab.services.rest import ShufflerProgress, create_experiment, fetch_shuffler_progress

OPTIONS = ("--server-port", "--shuffler-port", "--admin-port", "--shuffler-admin-port")


@pytest.mark.parametrize("option", OPTIONS)
def test_a_busy_port_is_an_error_before_a_service_starts(option, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Processes, "start", lambda *_: pytest.fail("a service was started"))
    ports = {name: free_port() for name in OPTIONS}
    listener = (
        "import socket, sys; s = socket.create_server(('', 0)); print(s.getsockname()[1], flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", listener], stdin=-1, stdout=-1) as other:
        busy_port = ports[option] = int(other.stdout.readline())
        options = [part for name, port in ports.items() for part in (name, str(port))]
        with pytest.raises(SystemExit) as stop:
            main(["up", "--data", str(tmp_path), *options])
        other.kill()
    remedy = "stop the other services, or choose another port"
    assert (stop.value.code, capsys.readouterr().err) == (2, f"privateer: {option}: {busy_port} is taken ({remedy})\n")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("variable", "option"), [("PRIVATEER_PORT", "--server-port"), ("PRIVATEER_ADMIN_PORT", "--admin-port")]
)
def test_the_server_of_up_listens_where_the_environment_says(variable, option, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Processes, "start", lambda *_: pytest.fail("the variable was ignored"))
    with socket.create_server(("127.0.0.1", 0)) as other:
        busy_port = other.getsockname()[1]
        monkeypatch.setenv(variable, str(busy_port))
        ports = [part for name in OPTIONS if name != option for part in (name, str(free_port()))]
        with pytest.raises(SystemExit):
            main(["up", "--data", str(tmp_path), *ports])
    assert f"{option}: {busy_port} is taken" in capsys.readouterr().err


def test_a_port_for_two_listeners() -> None:
    port = free_port()
    with pytest.raises(SpecError, match=f"--admin-port: {port} is taken"):
        check_ports({"--server-port": port, "--admin-port": port})


def test_a_free_port_is_found_however_many_are_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process looked for a free port for ever if another process held the last untried one."""
    free = free_port()
    monkeypatch.setattr(processes, "_PORT_SHARES", 1)
    with socket.create_server(("127.0.0.1", 0)) as other:
        used = other.getsockname()[1]
        monkeypatch.setattr(processes, "_FREE_PORTS", range(free, used + 1, used - free))
        assert [free_port() for _ in range(3)] == [free] * 3
        monkeypatch.setattr(processes, "_FREE_PORTS", range(used, used + 1))
        with pytest.raises(OSError, match=f"no port from {used} to {used} is free"):
            free_port()


def test_a_service_that_dies_or_hangs_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with run_services(tmp_path, free_port(), free_port()) as services:
        with monkeypatch.context() as hasty:
            hasty.setattr("privateer_lab.services.processes._START_SECONDS", 0.5)
            os.kill(services.processes.pid("shuffler"), signal.SIGSTOP)
            with pytest.raises(Unavailable, match=r"the shuffler is not ready after 0.5 seconds"):
                services.processes.wait("shuffler")
            os.kill(services.processes.pid("shuffler"), signal.SIGCONT)
        services.processes.kill("shuffler")
        with pytest.raises(Unavailable, match=r"the shuffler was killed by SIGKILL \(see its log above, then start"):
            services.processes.watch()
        with pytest.raises(Unavailable, match="the shuffler did not start"):
            services.processes.wait("shuffler")


def test_a_shuffler_that_follows_experiments_starts_after_the_server(tmp_path, capfd, monkeypatch):
    """Of the first start an experiment is left that the shuffler follows; at the second it warned of a server away."""
    ports = [free_port() for _ in range(4)]
    with run_services(tmp_path, ports[0], ports[1], "a-token-of-the-operator", (ports[2], ports[3])) as services:
        spec = demo_spec(4000)
        create_experiment(services.admin, spec, services.token)
        run_load(spec.name, services.server, services.shuffler, users=20, seed=1, sender_key=services.sender_key)
    capfd.readouterr()
    with run_services(tmp_path, ports[0], ports[1], "a-token-of-the-operator", (ports[2], ports[3])):
        pass
    assert "cannot follow" not in capfd.readouterr().err


def test_an_answer_of_another_process_is_not_the_service(tmp_path: Path) -> None:
    """The folder is another server's, and so is the port that is asked."""
    with run_services(tmp_path, free_port(), free_port(), token="a-token-of-the-operator") as services:
        second = Processes()
        environment = {
            "PRIVATEER_DATA": str(tmp_path / "server"),
            "PRIVATEER_ADMIN_TOKEN": services.token,
            "PRIVATEER_ADMIN_PORT": str(free_port()),
        }
        second.start("server", ("privateer_server.app", environment, services.server))
        with pytest.raises(Unavailable, match="the server ended with code 2"):
            second.watch()
        with pytest.raises(Unavailable, match="the server did not start"):
            second.wait("server")


FACTS = {"name": "trial", "model": "shuffle", "batch_size": 1000, "shuffler": "8dcc29a0b1977e25"}
URL = "http://127.0.0.1:8003"
SERVER = People.from_parts(5700, 3000, reports=HeldReports(0, None, 1000), out_of_reach=700, is_unknown=True)


def answer_with(monkeypatch: pytest.MonkeyPatch, *rounds: dict[str, Any], shuffler: str = "8dcc29a0b1977e25") -> None:
    """Replace the shuffler's answer by one with these rounds."""
    answer = {"shuffler": shuffler, "min_batch": 100, "rounds": list(rounds)}
    monkeypatch.setattr(shuffler_holdings, "request_json", lambda *_, **__: answer)


def round_progress(people: int, *, batch: int = 1000, full: bool = False, experiment: str = "trial") -> dict[str, Any]:
    return {"experiment": experiment, "version": 3, "batch_size": batch, "held": people, "full": full}


@pytest.mark.parametrize(
    ("rounds", "says"),
    [
        ([round_progress(300), round_progress(700, experiment="other")], "300 to 399 of 1,000 sealed reports wait"),
        ([round_progress(900)], "900 to 999 of 1,000 sealed reports wait"),
        ([round_progress(0)], "0 to 99 of 1,000 sealed reports wait"),
        ([], "0 to 99 of 1,000 sealed reports wait"),
        ([round_progress(1000, full=True)], "a complete batch waits for the server"),
    ],
)
def test_tenths_of_a_batch_are_told(rounds: list[dict[str, Any]], says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answer_with(monkeypatch, *rounds)
    waits = fetch_shuffler_progress(FACTS, URL)
    assert waits.describe() == f"at the shuffler: {says}; its operator takes batches of 100 or more"


def test_small_batches_are_told_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    answer_with(monkeypatch, round_progress(3, batch=8))
    waits = fetch_shuffler_progress(FACTS | {"batch_size": 8}, URL)
    assert waits.describe().startswith("at the shuffler: 3 of 8 sealed reports wait")


def test_unknown_progress_names_the_option_to_find_it(monkeypatch: pytest.MonkeyPatch) -> None:
    answer_with(monkeypatch, round_progress(300), shuffler="0" * 16)
    other = fetch_shuffler_progress(FACTS, URL)

    def raise_unavailable(*_: Any, **__: Any) -> Any:
        raise Unavailable(f"no answer from the service at {URL}")

    monkeypatch.setattr(shuffler_holdings, "request_json", raise_unavailable)
    silent = fetch_shuffler_progress(FACTS, URL)
    for waits, reason in ((other, "is not the one that has claimed it"), (silent, "no answer from the service")):
        assert (waits.held, waits.min_batch) == (None, None)
        assert waits.describe().startswith("at the shuffler: not known here, since ")
        assert reason in waits.describe()
        assert "--shuffler-admin-url or PRIVATEER_SHUFFLER_ADMIN_URL" in waits.describe()


def test_an_unclaimed_experiment_has_no_pending_reports() -> None:
    waits = fetch_shuffler_progress(FACTS | {"shuffler": None}, URL)
    assert (waits.held, waits.min_batch) == (0, None)


@pytest.mark.parametrize("changes", [{"model": "local"}, {"model": "central"}, {"batch_size": 0}])
def test_no_progress_is_shown_without_a_shuffler(changes: dict[str, Any]) -> None:
    assert fetch_shuffler_progress(FACTS | changes, URL) is None


def test_pending_reports_are_part_of_the_counts_of_people() -> None:
    people = ShufflerProgress(300, 1000).add_to(SERVER)
    assert (people.held.at_shuffler, people.unknown, people.not_asked) == (300, 99, 1601)
    full = ShufflerProgress(1000, 1000, full=True).add_to(SERVER)
    assert (full.held.at_shuffler, full.unknown, full.held.needed) == (1000, 0, 0)
    assert ShufflerProgress(None, 1000).add_to(SERVER) == SERVER
