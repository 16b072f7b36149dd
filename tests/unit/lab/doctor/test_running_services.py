"""``privateer doctor`` on services that run, that hang, and that answer on the address of another service."""

import json
import os
import signal
from pathlib import Path
from threading import Event, Thread

import httpx
import pytest

from privateer_core.wire.keys import load_or_create_key
from privateer_lab.doctor import places as answers
from privateer_lab.services.processes import free_port
from tests.support.doctor import TOKEN, Deployment, ports, run, run_checks
from tests.support.sealing import body_of, sealed_reports
from tests.support.servers import MSGPACK, SMALL
from tests.support.specs import tables


def test_services_that_run_are_fine(deployment: Deployment, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "--data", str(deployment.data), *ports(deployment.at))
    assert code == 0, err
    lines = out.splitlines()
    assert len(lines) > 15
    assert {line.split()[0] for line in lines} == {"ok"}
    assert {line.split()[1] for line in lines} == {"server", "shuffler", "sender"}


def test_rounds_that_close_meanwhile_are_no_finding(deployment: Deployment, capsys: pytest.CaptureFixture[str]) -> None:
    """Several rounds close in a second, and each changes journal, database and keys in turn."""
    busy, headers = SMALL | {"experiment.name": "busy"}, {"authorization": f"Bearer {TOKEN}"}
    httpx.post(f"{deployment.at.admin}/experiments", json=tables(busy), headers=headers).raise_for_status()
    ended = Event()

    def fill() -> None:
        with httpx.Client(base_url=deployment.at.server) as client:
            while not ended.is_set():
                body = client.get("/experiments/busy/policy", headers=MSGPACK).content
                for sealed_report in sealed_reports(body, 20):
                    client.post("/reports", content=body_of(body, [sealed_report]))

    filling = Thread(target=fill)
    filling.start()
    try:
        checkups = [run_checks(capsys, deployment.data, *ports(deployment.at)) for _ in range(3)]
    finally:
        ended.set()
        filling.join()
    assert checkups == [(0, {})] * 3
    assert httpx.get(f"{deployment.at.server}/experiments/busy").json()["version"] > 3


def test_a_service_that_hangs_and_one_that_is_elsewhere(
    deployment: Deployment, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "_TIMEOUT_SECONDS", 0.5)
    os.kill(deployment.at.processes.pid("shuffler"), signal.SIGSTOP)
    try:
        code, checks = run_checks(capsys, deployment.data, *ports(deployment.at))
    finally:
        os.kill(deployment.at.processes.pid("shuffler"), signal.SIGCONT)
    assert (code, set(checks)) == (1, {"shuffler answers"})
    assert checks["shuffler answers"][0]["detail"].startswith("a process has the data open, and nothing answers at")
    _, checks = run_checks(capsys, deployment.killed, *ports(deployment.at))
    assert {name: checks[name][0]["detail"] for name in checks} == {
        "server answers": f"a server answers at {deployment.at.server}, and it does not use this folder",
        "shuffler answers": f"a shuffler answers at {deployment.at.shuffler}, and it does not use this folder",
    }


def test_a_shuffler_whose_server_is_gone_says_so_and_keeps_its_round(
    deployment: Deployment, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment.at.processes.kill("server")
    try:
        code, checks = run_checks(capsys, deployment.data, *ports(deployment.at))
    finally:
        deployment.at.processes.start("server")
        deployment.at.processes.wait("server")
    assert code == 1
    (row,) = checks["shuffler its server"]
    assert (row["level"], row["detail"]) == ("fail", f"no server answers at {deployment.at.admin}")
    assert "shuffler answers" not in checks  # it takes reports for a round that is open
    assert checks["server answers"][0]["level"] == "warn"


def test_a_service_that_is_not_privateers_is_named(
    deployment: Deployment, data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "fetch_or_none", lambda _: httpx.Response(200, content=b"<html>secret</html>"))
    code, checks = run_checks(capsys, data)
    assert code == 1
    assert "is no Privateer service" in checks["server answers"][0]["detail"]
    assert "secret" not in json.dumps(checks)


def test_a_shuffler_with_another_key_than_the_claims(
    deployment: Deployment, data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIVATEER_SERVER_URL", deployment.at.admin)
    monkeypatch.setenv("PRIVATEER_PORT", str(free_port()))
    _, checks = run_checks(capsys, data / "shuffler", "shuffler")
    assert "shuffler trust" not in checks
    for key in (data / "shuffler" / "shuffler.key", data / "shuffler" / "shuffler.pub"):
        key.unlink(missing_ok=True)
    load_or_create_key(data / "shuffler" / "shuffler.key", "PRIVATEER_DATA")
    code, checks = run_checks(capsys, data / "shuffler", "shuffler")
    (claim,) = checks["shuffler trust"]
    assert (code, claim["level"]) == (1, "fail")
    assert "has the claim of shuffled" in claim["detail"]
