"""The shuffler as a process, killed without warning."""

import asyncio
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from privateer_core.wire.problem import read_slug
from privateer_core.wire.token_keys import Directory
from privateer_lab.services.processes import free_port
from privateer_shuffler.app import main
from tests.support.issuing import key
from tests.support.senders import TRUSTED, Signing
from tests.unit.shuffler.fake_server import body_of, listening
from tests.unit.shuffler.helpers import sealed_reports, until


class Process:
    """A running shuffler."""

    def __init__(self, server: str, data: str) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        settings = {
            "PRIVATEER_SERVER_URL": server,
            "PRIVATEER_DATA": data,
            "PRIVATEER_MIN_BATCH": "2",
            "PRIVATEER_PORT": self.url.rsplit(":", 1)[1],
            "PRIVATEER_ADMIN_PORT": str(free_port()),
            "PRIVATEER_SENDER_KEYS": str(TRUSTED[0]),
        }
        command = [sys.executable, "-m", "privateer_shuffler"]
        self._process = subprocess.Popen(command, env=os.environ | settings, stderr=subprocess.PIPE)
        self.log = b""

    @property
    def pid(self) -> int:
        """Its id."""
        return self._process.pid

    async def ready(self) -> None:
        async with httpx.AsyncClient(auth=Signing()) as client, asyncio.timeout(30):
            while True:
                try:
                    if (await client.get(f"{self.url}/readyz")).status_code == 200:
                        return
                except httpx.TransportError:
                    await asyncio.sleep(0.02)

    def end(self, signal_number: signal.Signals) -> int:
        self._process.send_signal(signal_number)
        self.log = self._process.communicate(timeout=30)[1]
        return self._process.returncode


@contextmanager
def start_process(server: str, data: object) -> Iterator[Process]:
    process = Process(server, str(data))
    try:
        yield process
    finally:
        process.end(signal.SIGKILL)


async def send(client, url, header, waiting, acknowledged, target):
    """Send reports, a few at once, until none wait or enough are acknowledged; what breaks off waits again."""
    while waiting and len(acknowledged) < target:
        count = min(len(waiting), 1 + secrets.randbelow(4))
        chunk = [waiting.pop() for _ in range(count)]
        try:
            answer = await client.post(f"{url}/experiments/{header.experiment}/reports", content=body_of(header, chunk))
        except httpx.TransportError:
            waiting.extend(chunk)
            return
        assert answer.status_code == 202 or read_slug(answer.content) == "duplicate-report", answer.text
        acknowledged.update(chunk)


async def test_what_was_acknowledged_before_a_kill_is_delivered_exactly_once(server, tmp_path):
    """A kill with requests in flight; reports that were under way are sent again, and told apart as held."""
    header, reports = server.publish(batch=300), sealed_reports(300)
    waiting, acknowledged = list(reports), set()
    with listening(server) as address:
        for target in (150, 300):
            with start_process(address, tmp_path) as process:
                await process.ready()
                async with httpx.AsyncClient(auth=Signing()) as client:
                    work = [
                        asyncio.create_task(send(client, process.url, header, waiting, acknowledged, 300))
                        for _ in range(8)
                    ]
                    await until(lambda target=target: len(acknowledged) >= target, 60)
                    if target < len(reports):
                        process.end(signal.SIGKILL)
                        assert not all(task.done() for task in work)
                    await asyncio.gather(*work)
                if target == len(reports):
                    await until(lambda: bool(server.delivered))
                    await until(lambda: not list(tmp_path.glob("*.db")))
    assert acknowledged == set(reports)
    assert sorted(server.received()) == sorted(reports)


async def test_a_kill_during_delivery_delivers_the_same_bytes_again(server, tmp_path):
    header, reports = server.publish(batch=50), sealed_reports(50)
    server.mute = True
    with listening(server) as address:
        with start_process(address, tmp_path) as process:
            await process.ready()
            async with httpx.AsyncClient(auth=Signing()) as client:
                await send(client, process.url, header, list(reports), set(), 50)
            await until(lambda: bool(server.attempts))  # the server has it, the shuffler does not know
        server.mute = False
        with start_process(address, tmp_path) as process:
            await until(lambda: len(server.attempts) == 2, 30)
            await until(lambda: not list(tmp_path.glob("*.db")))
            assert process.end(signal.SIGTERM) == -signal.SIGTERM  # stopped in order, then told so
    assert len(set(server.attempts)) == 1
    assert sorted(server.received()) == sorted(reports)
    assert b"batch delivered experiment=spring round=1" in process.log


async def test_the_log_of_a_process_has_no_requests(server, tmp_path):
    header = server.publish(batch=50)
    agent = {"user-agent": "device-of-somebody/7"}
    with listening(server) as address, start_process(address, tmp_path) as process:
        await process.ready()
        async with httpx.AsyncClient(headers=agent, auth=Signing()) as client:
            reports = sealed_reports(3)
            await send(client, process.url, header, reports, set(), 3)
            answer = await client.post(f"{process.url}/experiments/spring/reports", content=b"nonsense")
            assert answer.status_code == 400
            assert {"date", "server"}.isdisjoint(answer.headers)
        process.end(signal.SIGTERM)
        content = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    lines = process.log.decode().splitlines()
    assert [line.split(": ", 1)[1].split("=")[0] for line in lines] == ["started version", "stopped signal"]
    assert b"somebody" not in content
    assert b"127.0.0.1" not in content


@pytest.mark.parametrize(
    ("variable", "value"),
    [("PRIVATEER_PORT", "high"), ("PRIVATEER_DATA", "/dev/null/data"), ("PRIVATEER_SERVER_URL", "x")],
)
def test_a_bad_setting_is_one_line_and_exit_code_2(monkeypatch, capsys, tmp_path, variable, value):
    monkeypatch.setattr("sys.argv", ["privateer-shuffler"])
    monkeypatch.setenv("PRIVATEER_DATA", str(tmp_path))
    monkeypatch.setenv(variable, value)
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert err.startswith("privateer-shuffler: ")


def test_two_issuers_of_one_experiment_are_one_line_and_exit_code_2(monkeypatch, capsys, tmp_path):
    for name in ("first", "second"):
        keys = Directory.from_keys(f"{name}.example", {"spring": [key()], name: [key()]})
        (tmp_path / f"{name}.json").write_bytes(keys.encode())
    monkeypatch.setattr("sys.argv", ["privateer-shuffler"])
    monkeypatch.setenv("PRIVATEER_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("PRIVATEER_UPLOAD_TOKENS", "required")
    monkeypatch.setenv("PRIVATEER_TOKEN_KEYS", str(tmp_path))
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert err.startswith(
        "privateer-shuffler: PRIVATEER_TOKEN_KEYS: first.json and second.json both have keys of spring"
    )
