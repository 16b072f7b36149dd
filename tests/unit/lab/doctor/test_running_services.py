"""What ``privateer doctor`` says of services that run, hang, or are not those that answer."""

import json
import os
import signal
from pathlib import Path
from threading import Event, Thread

import httpx
import pytest

from privateer_core.wire.keys import own_key
from privateer_lab.doctor import listeners as answers
from privateer_lab.services.processes import free_port
from tests.support.doctor import TOKEN, Made, examined, ports, run
from tests.support.sealing import body_of, sealed_reports
from tests.support.servers import MSGPACK, SMALL
from tests.support.specs import tables


def test_services_that_run_are_fine(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "--data", str(made.data), *ports(made.at))
    assert code == 0, err
    lines = out.splitlines()
    assert len(lines) > 15
    assert {line.split()[0] for line in lines} == {"ok"}
    assert {line.split()[1] for line in lines} == {"server", "shuffler", "sender"}


def test_rounds_that_close_meanwhile_are_no_finding(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    """Several a second, each of which changes journal, database and keys one after the other."""
    busy, headers = SMALL | {"experiment.name": "busy"}, {"authorization": f"Bearer {TOKEN}"}
    httpx.post(f"{made.at.admin}/experiments", json=tables(busy), headers=headers).raise_for_status()
    ended = Event()

    def fill() -> None:
        with httpx.Client(base_url=made.at.server) as client:
            while not ended.is_set():
                body = client.get("/experiments/busy/policy", headers=MSGPACK).content
                for one in sealed_reports(body, 20):
                    client.post("/reports", content=body_of(body, [one]))

    filling = Thread(target=fill)
    filling.start()
    try:
        found = [examined(capsys, made.data, *ports(made.at)) for _ in range(3)]
    finally:
        ended.set()
        filling.join()
    assert found == [(0, {})] * 3
    assert httpx.get(f"{made.at.server}/experiments/busy").json()["version"] > 3


def test_a_service_that_hangs_and_one_that_is_elsewhere(
    made: Made, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "_SECONDS", 0.5)
    os.kill(made.at.processes.pid("shuffler"), signal.SIGSTOP)
    try:
        code, found = examined(capsys, made.data, *ports(made.at))
    finally:
        os.kill(made.at.processes.pid("shuffler"), signal.SIGCONT)
    assert (code, set(found)) == (1, {"shuffler answers"})
    assert found["shuffler answers"][0]["detail"].startswith("a process has the data open, and nothing answers at")
    _, found = examined(capsys, made.killed, *ports(made.at))
    assert {name: found[name][0]["detail"] for name in found} == {
        "server answers": f"a server answers at {made.at.server}, and it does not use this folder",
        "shuffler answers": f"a shuffler answers at {made.at.shuffler}, and it does not use this folder",
    }


def test_a_shuffler_whose_server_is_gone_says_so_and_keeps_its_round(
    made: Made, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made.at.processes.kill("server")
    try:
        code, found = examined(capsys, made.data, *ports(made.at))
    finally:
        made.at.processes.start("server")
        made.at.processes.wait("server")
    assert code == 1
    (gone,) = found["shuffler its server"]
    assert (gone["level"], gone["detail"]) == ("fail", f"no server answers at {made.at.admin}")
    assert "shuffler answers" not in found  # it takes reports for a round that is open
    assert found["server answers"][0]["level"] == "warn"


def test_what_answers_may_be_something_else(
    made: Made, data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "get", lambda _: httpx.Response(200, content=b"<html>secret</html>"))
    code, found = examined(capsys, data)
    assert code == 1
    assert "is no Privateer service" in found["server answers"][0]["detail"]
    assert "secret" not in json.dumps(found)


def test_a_shuffler_with_another_key_than_the_claims(
    made: Made, data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIVATEER_SERVER_URL", made.at.admin)
    monkeypatch.setenv("PRIVATEER_PORT", str(free_port()))
    _, found = examined(capsys, data / "shuffler", "shuffler")
    assert "shuffler trust" not in found
    for key in (data / "shuffler" / "shuffler.key", data / "shuffler" / "shuffler.pub"):
        key.unlink(missing_ok=True)
    own_key(data / "shuffler" / "shuffler.key", "PRIVATEER_DATA")
    code, found = examined(capsys, data / "shuffler", "shuffler")
    (claim,) = found["shuffler trust"]
    assert (code, claim["level"]) == (1, "fail")
    assert "has the claim of shuffled" in claim["detail"]
