"""The services that ``up`` starts: on ports that are free, and watched."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from privateer_core.errors import SpecError, Unavailable
from privateer_lab.cli.command_line import main
from privateer_lab.load.driver import run_load
from privateer_lab.services.demo import demo_spec
from privateer_lab.services.processes import Processes, check_ports, free_port, run_services
from privateer_lab.services.rest import create_experiment

OPTIONS = ("--server-port", "--shuffler-port", "--admin-port", "--shuffler-admin-port")


@pytest.mark.parametrize("option", OPTIONS)
def test_a_busy_port_is_an_error_before_a_service_starts(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Processes, "start", lambda *_: pytest.fail("a service was started"))
    ports = {name: free_port() for name in OPTIONS}
    listener = (
        "import socket, sys; s = socket.create_server(('', 0)); print(s.getsockname()[1], flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", listener], stdin=-1, stdout=-1) as other:
        assert other.stdout is not None
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
def test_the_server_of_up_listens_where_the_environment_says(
    variable: str, option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_shuffler_that_follows_experiments_starts_after_the_server(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
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
