"""Processes that decrypt reports."""

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
from privateer_server.intake.decryption import LENGTH_BYTES, SEAL_SIZE, Decryptor, DecryptPool, Job, serve
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
SEALED = [SUITE.encrypt(report, KEY.public_key(), info=INFO) for report in CONTENTS]


@pytest.fixture
async def openers() -> AsyncIterator[DecryptPool]:
    pool = DecryptPool(2)
    yield pool
    await pool.close()


async def decrypt_all(openers: DecryptPool) -> list[bytes] | None:
    return await openers.decrypt(Decryptor(KEY), b"".join(SEALED), SIZE, INFO)


def children() -> list[int]:
    processes = subprocess.run(
        ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(os.getpid())], capture_output=True, text=True
    )
    return [int(line.split()[0]) for line in processes.stdout.splitlines() if "intake.decryption import" in line]


async def test_processes_do_not_inherit_secrets(openers: DecryptPool, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = ("PRIVATEER_ADMIN_TOKEN", "PRIVATEER_DATABASE", "PGPASSWORD", "OTEL_EXPORTER_OTLP_HEADERS", "AWS_SECRET")
    for name in secrets:
        monkeypatch.setenv(name, "secret-of-the-server")
    await openers.start()
    for process in children():
        variables = Path(f"/proc/{process}/environ").read_bytes()
        assert b"secret-of-the-server" not in variables
        assert b"PATH=" in variables
    assert await decrypt_all(openers) == CONTENTS


async def test_processes_start_before_reports_come(openers: DecryptPool) -> None:
    await openers.start()
    started = children()
    assert len(started) == 2
    assert await decrypt_all(openers) == CONTENTS
    assert children() == started


async def test_a_process_that_does_not_start_is_tried_again(openers, monkeypatch):
    async def failing(*_: object, **__: object) -> None:
        raise OSError("no memory")

    with monkeypatch.context() as patch:
        patch.setattr(asyncio, "create_subprocess_exec", failing)
        await openers.start()
    assert children() == []
    assert await decrypt_all(openers) == CONTENTS


async def test_processes_decrypt_the_same_reports_as_the_server(openers: DecryptPool) -> None:
    assert await decrypt_all(openers) == CONTENTS
    junk = [*SEALED[:40], bytes(SIZE), *SEALED[40:80]]
    assert await openers.decrypt(Decryptor(KEY), b"".join(junk), SIZE, INFO) == [*CONTENTS[:40], b"", *CONTENTS[40:80]]
    assert await openers.decrypt(Decryptor(KEY), b"".join(SEALED), SIZE, b"other") == [b""] * len(SEALED)


async def test_small_uploads_are_left_to_the_caller(openers: DecryptPool) -> None:
    assert await openers.decrypt(Decryptor(KEY), b"".join(SEALED[:10]), SIZE, INFO) is None
    assert await DecryptPool(0).decrypt(Decryptor(KEY), b"".join(SEALED), SIZE, INFO) is None


def kill() -> None:
    for pid in children():
        os.kill(pid, signal.SIGKILL)


async def test_a_dead_process_is_replaced(openers: DecryptPool) -> None:
    assert await decrypt_all(openers) == CONTENTS
    kill()
    idle: Any = openers._idle
    started = [process for process in idle._queue if process]
    assert len(started) == 2
    await until(lambda: all(process.returncode is not None for process in started))  # the server has noticed
    assert await decrypt_all(openers) == CONTENTS


async def test_reports_of_a_dying_process_are_left_to_the_caller(openers: DecryptPool) -> None:
    job = asyncio.create_task(decrypt_all(openers))
    while not children():
        await asyncio.sleep(0)
    kill()
    assert await job is None
    assert await decrypt_all(openers) == CONTENTS


async def test_where_no_process_starts_reports_are_left_to_the_caller(openers, monkeypatch):
    async def start() -> Process:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("privateer_server.intake.decryption._start_process", start)
    assert await decrypt_all(openers) is None


async def test_results_of_a_cancelled_call_do_not_reach_the_next_caller(openers: DecryptPool) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(decrypt_all(openers), 0.01)
    assert await decrypt_all(openers) == CONTENTS


def test_a_process_serves_jobs_until_its_input_ends() -> None:
    body = encode(Job(memoryview(Decryptor(KEY).private_bytes()), b"".join(SEALED[:2]), SIZE, INFO))
    framed, results = len(body).to_bytes(LENGTH_BYTES) + body, BytesIO()
    serve(BytesIO(framed * 2), results)
    answer = encode(CONTENTS[:2])
    assert results.getvalue() == (len(answer).to_bytes(LENGTH_BYTES) + answer) * 2


class Locals(BytesIO):
    """Jobs that record the local variables of the reader of the next job."""

    frame_values: bytes

    def readinto(self, buffer: Any, /) -> int:
        values, frame = [], sys._getframe(1)
        while frame and frame.f_globals["__name__"] == "privateer_server.intake.decryption":
            values += [
                encode(f_local)
                for f_local in frame.f_locals.values()
                if isinstance(f_local, bytes | bytearray | Job | list)
            ]
            frame = frame.f_back
        self.frame_values = b"".join(values)
        return super().readinto(buffer)


def test_an_idle_process_holds_neither_key_nor_reports() -> None:
    private, content = Decryptor(KEY).private_bytes(), b"what somebody reported"
    sealed = SUITE.encrypt(content, KEY.public_key(), info=INFO)
    body = encode(Job(memoryview(private), sealed, len(sealed), INFO))
    jobs, results = Locals(len(body).to_bytes(LENGTH_BYTES) + body), BytesIO()
    serve(jobs, results)
    assert content in results.getvalue()
    assert private not in jobs.frame_values
    assert content not in jobs.frame_values


async def test_a_server_with_processes_counts_as_one_without(settings: ServerSettings) -> None:
    async with serving(create_app(settings.model_copy(update={"decrypt_workers": 1}))) as client:
        api = Api(client)
        await api.create(SMALL | {"experiment.round_size": 200})
        body = await api.publication()
        reports = sealed_reports(body, 100)
        bad = bytes(len(reports[0]))
        answer = await client.post("/reports", content=body_of(body, [*reports, bad, reports[0]]))
        assert answer.json() == {"accepted": 100, "refused": {"decryption-failed": 1, "duplicate-report": 1}}
        assert children()
    assert not children()


def test_decryption_omits_undecryptable_reports() -> None:
    suite = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)
    key = X25519PrivateKey.from_private_bytes(os.urandom(32)).public_key()
    own_key = X25519PrivateKey.generate()
    opener = Decryptor(own_key)
    good = suite.encrypt(b"good", own_key.public_key(), info=b"info")
    other_key = suite.encrypt(b"bad", key, info=b"info")
    other_info = suite.encrypt(b"bad", own_key.public_key(), info=b"other")
    assert len(good) == len(b"good") + SEAL_SIZE
    assert opener.decrypt([other_key, good, b"", other_info, os.urandom(60), good], b"info") == [
        b"",
        b"good",
        b"",
        b"",
        b"",
        b"good",
    ]
