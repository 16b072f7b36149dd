"""What survives a restart, a kill and a failure."""

import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from privateer_core.answer.people import GIVEN_UP
from privateer_core.errors import SpecError
from privateer_core.wire.batch import BATCH, SIGNATURE_HEADER
from privateer_core.wire.publication import decode_publication
from privateer_lab.services.processes import free_port
from privateer_server.algorithms.partition.learner import PartitionLearner
from privateer_server.app import create_app
from privateer_server.settings import ServerSettings
from privateer_server.store.store import Store
from tests.support.asgi import serving
from tests.support.phased import tables as phased_tables
from tests.support.sealing import body_of, sealed_reports
from tests.support.senders import TRUSTED, Signing
from tests.support.servers import ADMIN, MSGPACK, PHASED, SHUFFLED, SMALL, TOKEN, Api, assert_problem
from tests.support.specs import tables


async def test_restart_continues_where_it_was(settings: ServerSettings) -> None:
    async with serving(create_app(settings)) as client:
        api = Api(client)
        await api.create(SMALL)
        first = await api.publication()
        await client.post("/reports", content=body_of(first, sealed_reports(first, 20)))
        second = await api.publication()
        open_reports = sealed_reports(second, 12)
        await client.post("/reports", content=body_of(second, [*open_reports, os.urandom(72)]))
        before = (await api.facts(), second, (await client.get("/experiments/test/state")).json())
    async with serving(create_app(settings)) as client:
        api = Api(client)
        state = (await client.get("/experiments/test/state")).json()
        assert (await api.facts(), await api.publication(), state) == before
        assert (await client.get("/experiments/test/policy/1", headers=MSGPACK)).content == first
        response = await client.post("/reports", content=body_of(second, open_reports))
        assert_problem(response, 409, "duplicate-report")
        rest = await client.post("/reports", content=body_of(second, sealed_reports(second, 8, seed=2)))
        assert rest.json()["accepted"] == 8
        assert (await api.facts())["version"] == 3


async def test_restart_keeps_the_learned_state(settings: ServerSettings, tmp_path: Path) -> None:
    """A total restored from disk and one kept in memory lead to the same state."""
    async with serving(create_app(settings)) as client:
        await Api(client).create(SMALL)
        first = await Api(client).publication()
        sealed = sealed_reports(first, 20)
        await client.post("/reports", content=body_of(first, sealed[:13]))
    copy = ServerSettings(data=tmp_path / "copy", admin_token=TOKEN, sender_keys=TRUSTED)
    shutil.copytree(settings.data, copy.data)
    states = []
    for copied, parts in ((settings, [sealed[13:]]), (copy, [sealed[13:16], sealed[16:]])):
        for part in parts:
            async with serving(create_app(copied)) as client:
                await client.post("/reports", content=body_of(first, part))
                states.append((await client.get("/experiments/test/state")).json())
    assert states[0]["version"] == 2
    assert states[0] == states[2]


async def test_failing_to_learn_keeps_the_reports_and_a_restart_learns(settings, monkeypatch, caplog):
    def fail(*_: object) -> None:
        raise ValueError("secret detail")

    async with serving(create_app(settings)) as client:
        api = Api(client)
        await api.create(SMALL)
        first = await api.publication()
        with monkeypatch.context() as broken, caplog.at_level(logging.ERROR):
            broken.setattr(PartitionLearner, "learn", fail)
            response = await client.post("/reports", content=body_of(first, sealed_reports(first, 20)))
            assert (response.status_code, response.json()["accepted"]) == (202, 20)
            late = await client.post("/reports", content=body_of(first, sealed_reports(first, 1)))
            assert_problem(late, 409, "round-closed")
        assert "test" in caplog.text
        assert "secret" not in caplog.text
        facts = await api.facts()
        assert facts | {"version": 1, "received": 20, "accepted": 20} == facts
    async with serving(create_app(settings)) as client:
        facts = await Api(client).facts()
        assert facts | {"version": 2, "received": 0, "accepted": 20} == facts


async def test_one_experiment_that_cannot_learn_does_not_keep_the_server_from_starting(settings, monkeypatch):
    monkeypatch.setattr(PartitionLearner, "learn", lambda *_: 1 / 0)
    async with serving(create_app(settings)) as client:
        await Api(client).create(SMALL)
        first = await Api(client).publication()
        await client.post("/reports", content=body_of(first, sealed_reports(first, 20)))
    async with serving(create_app(settings)) as client:
        facts = await Api(client).facts()
        assert facts | {"version": 1, "received": 20, "accepted": 20} == facts
        assert (await Api(client).create(SMALL | {"experiment.name": "other"})).status_code == 201


async def test_failing_to_learn_keeps_a_batch(settings, shuffler_key, monkeypatch):
    async with serving(create_app(settings)) as client:
        api = Api(client)
        await api.create(SHUFFLED)
        first = await api.publication()
        body = body_of(first, [*sealed_reports(first, 99), os.urandom(70)])
        headers = {SIGNATURE_HEADER: BATCH.sign(body, shuffler_key)}
        with monkeypatch.context() as broken:
            broken.setattr(PartitionLearner, "learn", lambda *_: 1 / 0)
            first_answer = await client.post("/batches", content=body, headers=headers)
            assert first_answer.json() == {"accepted": 99, "refused": {"decryption-failed": 1}, "closed": True}
        response = await client.post("/batches", content=body, headers=headers)
        assert (response.status_code, response.json()) == (200, first_answer.json())
    async with serving(create_app(settings)) as client:
        facts = await Api(client).facts()
        assert facts | {"version": 2, "accepted": 99} == facts


async def test_a_store_failure_is_unavailable_and_counts_no_report(settings, monkeypatch):
    async with serving(create_app(settings)) as client:
        api = Api(client)
        await api.create(SMALL)
        first = await api.publication()
        body = body_of(first, sealed_reports(first, 20))
        with monkeypatch.context() as broken:
            broken.setattr(Store, "commit", lambda *_: 1 / 0)
            response = await client.post("/reports", content=body)
            assert_problem(response, 503, "unavailable")
            assert response.headers["retry-after"] == "1"
        facts = await api.facts()
        assert facts | {"version": 1, "received": 0, "accepted": 0} == facts
        assert (await client.post("/reports", content=body)).json()["accepted"] == 20


async def test_a_round_whose_key_is_lost_is_given_up_and_another_one_opens(settings: ServerSettings) -> None:
    async with serving(create_app(settings)) as client:
        api = Api(client)
        await api.create(SMALL)
        first = await api.publication()
        await client.post("/reports", content=body_of(first, sealed_reports(first, 12)))
    for key in (settings.data / "keys").iterdir():
        key.write_bytes(b"short")
    async with serving(create_app(settings)) as client:
        api = Api(client)
        facts = await api.facts()
        assert facts | {"version": 1_000_001, "received": 0, "accepted": 12, "status": "open"} == facts
        people = facts["people"]
        assert (people["counted"], people["refused"], people["replaced"]) == (0, {GIVEN_UP: 12}, 12)
        assert people["not_asked"] == people["planned"] == SMALL["experiment.horizon"]
        second = await api.publication()
        response = await client.post("/reports", content=body_of(second, sealed_reports(second, 20)))
        assert response.json()["accepted"] == 20
        assert (await api.facts())["version"] == 1_000_002
        rounds = (await client.get("/experiments/test/privacy")).json()["rounds"]
        assert [(row["version"], row["released"]) for row in rounds][:2] == [(1, False), (1_000_001, True)]


async def test_a_phase_with_a_lost_key_invites_other_participants(settings: ServerSettings) -> None:
    async def read_draw(api: Api) -> tuple[int, range]:
        draw = (await api.client.get("/experiments/test/policy")).json()["policy"]["shows"]["draw"]
        return draw["seed"], range(draw["start"], draw["start"] + draw["places"])

    async with serving(create_app(settings)) as client:
        await client.post("/experiments", json=phased_tables(PHASED, "local"), headers=ADMIN)
        seed, first = await read_draw(Api(client))
    shutil.rmtree(settings.data / "keys")
    async with serving(create_app(settings)) as client:
        api = Api(client)
        facts = await api.facts()
        assert facts | {"version": 1_000_001, "status": "open"} == facts
        next_seed, others = await read_draw(api)
        assert (next_seed, others.start) == (seed, first.stop)
        publication = await api.publication()
        people = decode_publication(publication).round.batch_size
        await client.post("/reports", content=body_of(publication, sealed_reports(publication, people)))
        facts = await api.facts()
        assert facts | {"version": 1_000_002, "status": "open", "accepted": people} == facts
        state = (await client.get("/experiments/test/state")).json()["answer"]
        assert state["rounds"] == 1


async def test_a_second_server_on_the_same_data_is_refused(settings: ServerSettings) -> None:
    async with serving(create_app(settings)):
        with pytest.raises(SpecError, match="is in use"):
            create_app(settings)


class Process:
    """A server as a process of its own."""

    def __init__(self, data: Path) -> None:
        ports = [free_port(), free_port()]
        self.url, self.admin = (f"http://127.0.0.1:{port}" for port in ports)
        environment = {
            "PRIVATEER_DATA": str(data),
            "PRIVATEER_ADMIN_TOKEN": TOKEN,
            "PRIVATEER_PORT": str(ports[0]),
            "PRIVATEER_ADMIN_PORT": str(ports[1]),
            "PRIVATEER_SENDER_KEYS": str(TRUSTED[0]),
        }
        code = "from privateer_server.app import main; main()"
        self.process = subprocess.Popen([sys.executable, "-c", code], env=os.environ | environment)

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                if httpx.get(f"{self.url}/readyz").status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(0.05)
        raise AssertionError("the server did not start")


@contextmanager
def server_process(data: Path) -> Iterator[Process]:
    server = Process(data)
    try:
        server.wait_until_ready()
        yield server
    finally:
        server.process.kill()
        server.process.wait()


class Sender(threading.Thread):
    """Posts reports five at a time, and notes what was acknowledged, until the server is gone."""

    def __init__(self, url: str, publication: bytes, sealed: list[bytes]) -> None:
        super().__init__()
        self.bodies = [body_of(publication, sealed[i : i + 5]) for i in range(0, len(sealed), 5)]
        self.url, self.acknowledged, self.unanswered = url, 0, 0

    def run(self) -> None:
        with httpx.Client(base_url=self.url, timeout=10, auth=Signing()) as client:
            for body in self.bodies:
                try:
                    response = client.post("/reports", content=body)
                except httpx.TransportError:
                    self.unanswered += 5
                    return
                assert response.status_code == 202
                self.acknowledged += response.json()["accepted"]


def test_kill_in_mid_load_keeps_every_acknowledged_report_once(tmp_path: Path) -> None:
    count = 6000
    size = {"experiment.round_size": count, "experiment.horizon": 2 * count}
    with server_process(tmp_path) as server:
        httpx.post(f"{server.admin}/experiments", json=tables(size), headers=ADMIN).raise_for_status()
        publication = httpx.get(f"{server.url}/experiments/test/policy", headers=MSGPACK).content
        sealed = sealed_reports(publication, count)
        senders = [Sender(server.url, publication, sealed[i::4]) for i in range(4)]
        for sender in senders:
            sender.start()
        while sum(sender.acknowledged for sender in senders) < 500:
            time.sleep(0.005)
        server.process.send_signal(signal.SIGKILL)
        for sender in senders:
            sender.join()
    acknowledged = sum(sender.acknowledged for sender in senders)
    assert 500 <= acknowledged < count
    with server_process(tmp_path) as server, httpx.Client(base_url=server.url, auth=Signing()) as client:
        assert client.get("/experiments/test/policy", headers=MSGPACK).content == publication
        stored = client.get("/experiments/test").json()["accepted"]
        # A request may have been committed and its answer lost: at most what was under way.
        assert acknowledged <= stored <= acknowledged + sum(sender.unanswered for sender in senders)
        accepted, refused = 0, 0
        for start in range(0, count, 1000):
            answer = client.post("/reports", content=body_of(publication, sealed[start : start + 1000])).json()
            accepted += answer.get("accepted", 0)
            refused += answer["refused"].get("duplicate-report", 0)
        assert (accepted, refused) == (count - stored, stored)
        facts = client.get("/experiments/test").json()
        assert (facts["version"], facts["accepted"]) == (2, count)
        repeated = client.post("/reports", content=body_of(publication, sealed[:1000])).json()
        assert repeated["refused"] == {"round-closed": 1000}


async def test_experiments_missing_in_the_database_are_logged_at_the_start(settings, caplog):
    async with serving(create_app(settings)) as client:
        await Api(client).create(SMALL)
    for path in settings.data.glob("server.db*"):
        path.unlink()
    with caplog.at_level(logging.WARNING):
        async with serving(create_app(settings)) as client:
            assert "experiment test: published earlier, and not in this database; restore" in caplog.text
            caplog.clear()
            await Api(client).create(SMALL)
    async with serving(create_app(settings)):
        assert caplog.text == ""
