"""Somebody who has the files, and the key, of a process that serves many people; and one whose visitor goes away."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import httpx

from privateer_client import Client
from tests.support.experiments import CONTEXT, Device, Server
from tests.support.notary import Notary
from tests.support.publications import published
from tests.support.specs import make_spec


def bodies(device: Device) -> list[bytes]:
    """What the ledger keeps of all choices and arms, encrypted."""
    with closing(sqlite3.connect(device.folder / "ledger.db")) as database:
        return [body for table in ("choices", "arms") for (body,) in database.execute(f"SELECT body FROM {table}")]


def choosing(client: Client, *keys: str) -> None:
    for key in keys:
        client.person(key).join("test").choose(CONTEXT)


def test_nothing_of_a_forgotten_person_is_left_in_the_files(tmp_path: Path) -> None:
    """The log of writes has what was overwritten in the file, and the key that decrypts it is beside it."""
    device = Device(tmp_path, Server(published(make_spec())))
    client = device.start()
    choosing(client, "a")
    (choice, arm) = bodies(device)
    assert choice[-60:] in device.files()  # the test can see
    client.person("a").forget()
    assert not any(body[-60:] in device.files() for body in (choice, arm))
    choosing(client, "b", "c")
    client.person("b").forget()
    assert len(bodies(device)) == 2
    assert all(body[-60:] in device.files() for body in bodies(device))


class Stuck(httpx.AsyncBaseTransport):
    """A server that never answers the first request."""

    def __init__(self, server: Server) -> None:
        self._notarized, self.asked = Notary().transport(server), asyncio.Event()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if not self.asked.is_set():
            self.asked.set()
            await asyncio.sleep(3600)
        return await self._notarized.handle_async_request(request)


async def test_whoever_goes_away_holds_nobody_even_if_their_error_is_kept(tmp_path: Path) -> None:
    device = Device(tmp_path, Server(published(make_spec())))
    stuck = Stuck(device.server)
    async with device.start_async(transport=stuck) as client:
        gone = asyncio.ensure_future(client.person("a").join("test"))
        await stuck.asked.wait()
        gone.cancel()
        (error,) = await asyncio.gather(gone, return_exceptions=True)
        assert isinstance(error, asyncio.CancelledError)
        session = await asyncio.wait_for(client.person("b").join("test"), 3.0)
        assert await session.choose(CONTEXT)
