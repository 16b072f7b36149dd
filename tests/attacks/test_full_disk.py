"""Somebody fills the shuffler's disk for a while: it refuses, forgets nothing, and goes on by itself."""

import asyncio
import resource

import httpx
import pytest

from tests.support.senders import Signing
from tests.unit.shuffler.fake_server import FakeServer, body_of, listening
from tests.unit.shuffler.helpers import assert_problem, sealed_reports, until
from tests.unit.shuffler.test_process import running


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


def limit_files(pid: int, size: int) -> None:
    """Let a process write no file beyond a size: its writes then fail, as on a disk that is full."""
    hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))


async def standing(client: httpx.AsyncClient, status: int) -> httpx.Response:
    """What strangers are told once the service has looked again: it looks at the disk once a second for them."""
    async with asyncio.timeout(20):
        while (answer := await client.get("/readyz")).status_code != status:
            await asyncio.sleep(0.05)
    return answer


async def test_a_full_disk_heals_by_itself(server: FakeServer, tmp_path: object) -> None:
    header, reports = server.publish(batch=40), sealed_reports(40)
    with listening(server) as address, running(address, tmp_path) as process:
        await process.ready()
        async with httpx.AsyncClient(base_url=process.url, auth=Signing()) as client:

            async def post(start: int, stop: int) -> httpx.Response:
                body = body_of(header, reports[start:stop])
                return await client.post("/experiments/spring/reports", content=body)

            assert (await post(0, 10)).status_code == 202
            limit_files(process.pid, 1)
            for _ in range(3):
                assert_problem(await post(10, 20), 503, "unavailable")
            assert_problem(await standing(client, 503), 503, "unavailable")
            limit_files(process.pid, resource.RLIM_INFINITY)
            assert (await post(10, 20)).json() == {"accepted": 10, "refused": {}}
            await standing(client, 200)
            assert (await post(0, 20)).json()["refused"] == {"duplicate-report": 20}
            assert (await post(20, 40)).status_code == 202
            await until(lambda: bool(server.taken))
    assert sorted(server.received()) == sorted(reports)
