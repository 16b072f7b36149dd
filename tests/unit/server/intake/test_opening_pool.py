"""Processes that open reports: the same as the server opens itself, whatever becomes of a process."""

import asyncio
import os
import signal
import subprocess
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from msgspec.msgpack import encode

from privateer_server.app import create_app
from privateer_server.intake.opening import LENGTH_BYTES, SEAL_SIZE, Job, Opener, serve
from privateer_server.intake.opening_pool import Openers
from privateer_server.settings import ServerSettings
from tests.support.asgi import serving
from tests.support.sealing import body_of, sealed_reports
from tests.support.servers import SMALL, Api
from tests.unit.shuffler.helpers import until

INFO = b"info"
KEY = X25519PrivateKey.generate()
SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)
SIZE = SEAL_SIZE + 2
CONTENTS = [number.to_bytes(2) for number in range(1, 701)]
"""More than one process opens at a time."""
SEALED = [SUITE.encrypt(one, KEY.public_key(), info=INFO) for one in CONTENTS]


@pytest.fixture
async def openers() -> AsyncIterator[Openers]:
    pool = Openers(2)
    yield pool
    await pool.close()


async def opened(openers: Openers) -> list[bytes] | None:
    return await openers.open(Opener(KEY), b"".join(SEALED), SIZE, INFO)


def children() -> list[int]:
    found = subprocess.run(
        ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(os.getpid())], capture_output=True, text=True
    )
    return [int(line.split()[0]) for line in found.stdout.splitlines() if "intake.opening import" in line]


async def test_processes_know_no_secret_of_the_server(openers: Openers, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = ("PRIVATEER_ADMIN_TOKEN", "PRIVATEER_DATABASE", "PGPASSWORD", "OTEL_EXPORTER_OTLP_HEADERS", "AWS_SECRET")
    for name in secrets:
        monkeypatch.setenv(name, "secret-of-the-server")
    await openers.start()
    for process in children():
        variables = Path(f"/proc/{process}/environ").read_bytes()
        assert b"secret-of-the-server" not in variables
        assert b"PATH=" in variables
    assert await opened(openers) == CONTENTS


async def test_processes_start_before_reports_come(openers: Openers) -> None:
    await openers.start()
    started = children()
    assert len(started) == 2
    assert await opened(openers) == CONTENTS
    assert children() == started


async def test_a_process_that_does_not_start_is_tried_again(openers: Openers, monkeypatch: pytest.MonkeyPatch) -> None:
    async def failing(*_: object, **__: object) -> None:
        raise OSError("no memory")

    with monkeypatch.context() as patch:
        patch.setattr(asyncio, "create_subprocess_exec", failing)
        await openers.start()
    assert children() == []
    assert await opened(openers) == CONTENTS


async def test_processes_open_what_the_server_would(openers: Openers) -> None:
    assert await opened(openers) == CONTENTS
    junk = [*SEALED[:40], bytes(SIZE), *SEALED[40:80]]
    assert await openers.open(Opener(KEY), b"".join(junk), SIZE, INFO) == [*CONTENTS[:40], b"", *CONTENTS[40:80]]
    assert await openers.open(Opener(KEY), b"".join(SEALED), SIZE, b"other") == [b""] * len(SEALED)


async def test_few_messages_are_left_to_the_caller(openers: Openers) -> None:
    assert await openers.open(Opener(KEY), b"".join(SEALED[:10]), SIZE, INFO) is None
    assert await Openers(0).open(Opener(KEY), b"".join(SEALED), SIZE, INFO) is None


def kill() -> None:
    for pid in children():
        os.kill(pid, signal.SIGKILL)


async def test_a_process_that_has_died_is_replaced(openers: Openers) -> None:
    assert await opened(openers) == CONTENTS
    kill()
    started = [process for process in openers._idle._queue if process]
    assert len(started) == 2
    await until(lambda: all(process.returncode is not None for process in started))  # the server has noticed
    assert await opened(openers) == CONTENTS


async def test_what_a_process_held_when_it_died_is_left_to_the_caller(openers: Openers) -> None:
    job = asyncio.create_task(opened(openers))
    while not children():
        await asyncio.sleep(0)
    kill()
    assert await job is None
    assert await opened(openers) == CONTENTS


async def test_where_no_process_starts_reports_are_left_to_the_caller(
    openers: Openers, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def start() -> Process:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("privateer_server.intake.opening_pool._start", start)
    assert await opened(openers) is None


async def test_a_caller_who_goes_away_leaves_no_answer_to_others(openers: Openers) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(opened(openers), 0.01)
    assert await opened(openers) == CONTENTS


def test_a_process_serves_jobs_until_its_input_ends() -> None:
    body = encode(Job(memoryview(Opener(KEY).private_bytes()), b"".join(SEALED[:2]), SIZE, INFO))
    framed, results = len(body).to_bytes(LENGTH_BYTES) + body, BytesIO()
    serve(BytesIO(framed * 2), results)
    answer = encode(CONTENTS[:2])
    assert results.getvalue() == (len(answer).to_bytes(LENGTH_BYTES) + answer) * 2


class Locals(BytesIO):
    """Jobs, with what the reader of the next one still has."""

    seen: bytes

    def readinto(self, buffer: Any, /) -> int:
        found, frame = [], sys._getframe(1)
        while frame and frame.f_globals["__name__"] == "privateer_server.intake.opening":
            found += [encode(one) for one in frame.f_locals.values() if isinstance(one, bytes | bytearray | Job | list)]
            frame = frame.f_back
        self.seen = b"".join(found)
        return super().readinto(buffer)


def test_a_process_that_waits_has_neither_the_key_nor_what_it_opened() -> None:
    private, content = Opener(KEY).private_bytes(), b"what somebody reported"
    sealed = SUITE.encrypt(content, KEY.public_key(), info=INFO)
    body = encode(Job(memoryview(private), sealed, len(sealed), INFO))
    jobs, results = Locals(len(body).to_bytes(LENGTH_BYTES) + body), BytesIO()
    serve(jobs, results)
    assert content in results.getvalue()
    assert private not in jobs.seen
    assert content not in jobs.seen


async def test_a_server_with_processes_counts_as_one_without(settings: ServerSettings) -> None:
    async with serving(create_app(settings.model_copy(update={"openers": 1}))) as client:
        api = Api(client)
        await api.create(SMALL | {"experiment.round_size": 200})
        body = await api.publication()
        reports = sealed_reports(body, 100)
        bad = bytes(len(reports[0]))
        answer = await client.post("/reports", content=body_of(body, [*reports, bad, reports[0]]))
        assert answer.json() == {"accepted": 100, "refused": {"unopenable": 1, "duplicate-report": 1}}
        assert children()
    assert not children()
