"""Server, shuffler and people in this process, with a clock of their own: what operations happen to."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from privateer_core.wire.batch import SIGNATURE_HEADER, UPLOAD, sign_claim
from privateer_core.wire.keys import load_or_create_key, read_signing_key
from privateer_core.wire.problem import read_slug
from privateer_core.wire.token import authorization
from privateer_server.app import create_app as create_server
from privateer_server.settings import ServerSettings
from privateer_shuffler.app import create_app as create_shuffler
from privateer_shuffler.resources import KEY_FILE
from privateer_shuffler.settings import ShufflerSettings
from tests.faults.observer import Observer
from tests.faults.points import Faults
from tests.faults.processes import Process, Slot, Way
from tests.faults.reports import Body, Maker
from tests.faults.schedule import Hands, Schedule
from tests.support.issuing import minted
from tests.support.issuing import settings as tokens
from tests.support.senders import KEY, TRUSTED
from tests.support.servers import ADMIN, MSGPACK, TOKEN
from tests.support.specs import tables

PLAIN, MIXED = "plain", "mixed"
BATCHES = {PLAIN: 10, MIXED: 100}
SPECS = {
    PLAIN: {
        "experiment.arms": list("abcdefgh"),  # eight reports an arm can be told apart, also where a round begins anew
        "privacy.model": "central",
        "privacy.delta": 1e-6,
        "experiment.round_size": BATCHES[PLAIN],
        "experiment.horizon": 10_000,
    },
    MIXED: {
        "privacy.model": "shuffle",
        "privacy.delta": 1e-3,
        "privacy.min_batch": BATCHES[MIXED],
        "experiment.round_size": BATCHES[MIXED],
        "experiment.horizon": 50_000,
    },
}
"""Two experiments: reports of one reach the server as they are, those of the other one come in batches."""
_MOMENT = 2.0
_TRIES = 4
_SETTLES = 300
_AWAY = httpx.TransportError


class World:
    """All that an operation may touch.

    Attributes
    ----------
    servers
        The places for servers: one on its own folder, or several that share databases.
    late
        Bodies that were made, and are still on their way.
    sent_bodies
        Bodies that were sent, in order.
    trace
        All that has happened, and when.
    """

    def __init__(self, folder: Path, faults: Faults, clock: Hands) -> None:
        self.folder, self.faults, self.clock = folder, faults, clock
        self.trace: list[str] = []
        faults.note = self.note
        self.maker, self.observer = Maker(), Observer()
        self.late: list[Body] = []
        self.sent_bodies: list[Body] = []
        self.servers = self._make_slots()
        self.shuffler = Slot("shuffler", folder / "shuffler", faults, self._shuffler)
        self._ways = {PLAIN: self._way(self.servers), MIXED: self._way([self.shuffler])}
        self._clients = {name: self._client(way) for name, way in self._ways.items()}
        self.batch_losses = 0

    def _make_slots(self) -> list[Slot]:
        return [Slot("server", self.folder / "server", self.faults, self._server)]

    def _way(self, slots: list[Slot]) -> Way:
        way = Way(slots)

        def loses(request: httpx.Request) -> bool:
            if request.method != "POST" or not slots[0].n_lost_answers:
                return False
            slots[0].n_lost_answers -= 1
            return True

        way.loses, way.note = loses, self.note
        return way

    def _client(self, way: Way) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=way, base_url="http://server")

    def _server(self, folder: Path, process: Process) -> Any:
        del process
        settings = ServerSettings(
            data=folder,
            admin_token=TOKEN,
            shuffler_keys=(self.folder / "trusted",),
            sender_keys=TRUSTED,
            tokens=self._tokens(PLAIN, "server:80"),
            **self.stores(folder),
        )
        return create_server(settings)

    def stores(self, folder: Path) -> dict[str, Any]:
        """Where a server has its data, beside its folder."""
        del folder
        return {"publication_key": self.folder / "identity.key"}

    def _shuffler(self, folder: Path, process: Process) -> Any:
        way = Way(self.servers, process)
        way.note_request, way.loses, way.note = self.observer.note_batch, self._loses_batch, self.note
        settings = ShufflerSettings(
            server_url="http://server",
            data=folder,
            public_key_file=self.folder / "trusted" / "one.pub",
            min_batch=2,
            sender_keys=TRUSTED,
            tokens=self._tokens(MIXED, "shuffler:80"),
        )
        return create_shuffler(settings, way)

    def _loses_batch(self, request: httpx.Request) -> bool:
        if request.url.path != "/batches" or not self.batch_losses:
            return False
        self.batch_losses -= 1
        return True

    def _tokens(self, name: str, origin: str) -> Any:
        return tokens(self.folder / f"tokens-{name}", name, origin=origin)

    def note(self, event: str) -> None:
        """Write down that something has happened."""
        self.trace.append(f"{self.clock.monotonic():.6f} {event}")

    @property
    def slots(self) -> list[Slot]:
        return [*self.servers, self.shuffler]

    async def begin(self) -> None:
        """Start all services, and create both experiments."""
        load_or_create_key(self.folder / "identity.key", "PRIVATEER_PUBLICATION_KEY")
        for slot in self.slots:
            assert await slot.revive()
        for name, changes in SPECS.items():
            spec = tables({"experiment.name": name, **changes})
            answer = await self._clients[PLAIN].post("/experiments", json=spec, headers=ADMIN)
            assert answer.status_code == 201, answer.text
        await self.look()

    async def revive(self) -> None:
        """Start what is down, when its time has come."""
        for slot in self.slots:
            await slot.bury()
            if slot.process is None and slot.down > 0:
                slot.down -= 1
            else:
                await slot.revive()

    async def stop(self) -> None:
        """Stop everything."""
        for slot in reversed(self.slots):
            await slot.stop()
        for client in self._clients.values():
            await client.aclose()

    async def get(self, page: str, **options: Any) -> httpx.Response | None:
        """Return a server's successful response, or None if there is none."""
        with suppress(_AWAY):
            answer = await self._clients[PLAIN].get(page, **options)
            return answer if answer.is_success else None
        return None

    async def publication(self, name: str) -> bytes | None:
        """Return the present publication of an experiment, and note it as seen; None if no server answers."""
        answer = await self.get(f"/experiments/{name}/policy", headers=MSGPACK)
        if answer is None:
            return None
        self.observer.note_publication(answer.content)
        return answer.content

    async def facts(self, name: str) -> dict[str, Any]:
        answer = await self.get(f"/experiments/{name}")
        return answer.json() if answer else {}

    async def look(self) -> None:
        """Fetch and note the publications and the log."""
        for name in SPECS:
            await self.publication(name)
        head = await self.get("/log/head")
        entries = await self.get("/log/entries")
        if entries is not None:
            self.observer.note_log(head.text if head else "", entries.json()["entries"])

    def token(self, name: str) -> bytes:
        return minted(name, "server:80" if name == PLAIN else "shuffler:80")

    async def send(self, body: Body) -> None:
        """Send a body until a service answers, or none is reachable."""
        if body not in self.sent_bodies:
            self.sent_bodies.append(body)
        for _ in range(_TRIES):
            try:
                answer = await self._post(body)
            except _AWAY as error:
                body.answers.append(str(error))
                if "lost" in str(error):
                    continue
                return
            self._note_answer(body, answer)
            return

    async def _post(self, body: Body) -> httpx.Response:
        page = "/reports" if body.experiment == PLAIN else f"/experiments/{MIXED}/reports"
        if body.token:
            headers = {"authorization": authorization(body.token)}
        else:
            headers = {UPLOAD.header: UPLOAD.sign(body.content, KEY, self.clock.now())}
        return await self._clients[body.experiment].post(page, content=body.content, headers=headers)

    def _note_answer(self, body: Body, answer: httpx.Response) -> None:
        slug = read_slug(answer.content) if not answer.is_success else ""
        body.answers.append(f"{answer.status_code} {slug or answer.text}")
        body.is_settled = answer.status_code != httpx.codes.SERVICE_UNAVAILABLE
        assert answer.status_code < 500 or answer.status_code == httpx.codes.SERVICE_UNAVAILABLE, answer.text
        n_received = 0
        if answer.is_success:
            receipt = answer.json()
            # An earlier copy that was put back may lack the report: it is accepted anew then, and counts once.
            before = body.accepted if body.restores == self.observer.restores else 0
            body.accepted = before + receipt["accepted"]
            n_received = receipt["accepted"] + receipt["refused"].get("duplicate-report", 0)
            if receipt["refused"].get("unavailable"):
                body.is_settled = False
        elif slug == "duplicate-report":
            n_received = 1
        if n_received:
            body.acknowledged, body.restores = max(body.acknowledged, n_received), self.observer.restores

    async def claim(self, name: str) -> int:
        """Claim an experiment as the shuffler does; the status of the answer."""
        key = read_signing_key(self.shuffler.folder / KEY_FILE, "PRIVATEER_DATA")
        headers = {SIGNATURE_HEADER: sign_claim(name, key, self.clock.now())}
        answer = await self._clients[PLAIN].post(f"/experiments/{name}/shuffler", headers=headers)
        return answer.status_code

    async def settle(self, body: Body) -> None:
        """Send a body until there is an answer that stays, with time passing meanwhile."""
        for _ in range(_SETTLES):
            if body.is_settled:
                return
            await self.wait()
            await self.send(body)
        raise AssertionError(f"no answer to {body.key} stays: {body.answers[-3:]}")

    async def wait(self) -> None:
        """Let a moment pass."""
        await self.revive()
        await asyncio.sleep(_MOMENT)

    async def back_up(self) -> None:
        """Keep a copy of the server's folder, and what it gives for a backup."""
        process = self.servers[0].process
        if process is None or not process.is_alive:
            return
        stored_copy = self.folder / "kept"
        answer = await self.get("/backup", headers=ADMIN)
        shutil.rmtree(stored_copy, ignore_errors=True)
        with process.disk:
            shutil.copytree(process.folder, stored_copy)
        if answer:
            (self.folder / "backup.db").write_bytes(answer.content)

    async def put_back(self, method_number: int) -> None:
        """Put back an earlier copy, in one of several ways; the journal stays as it is."""
        if not (self.folder / "kept").exists():
            return
        await self.servers[0].stop()
        _PUT_BACK[method_number % len(_PUT_BACK)](self.folder, self.servers[0].folder)
        self.observer.restores += 1

    async def away(self) -> None:
        """Take the database away: nothing can be written."""
        self.faults.full["server"] = 1_000_000

    async def back(self) -> None:
        """Bring it back."""
        self.faults.full["server"] = 0


def _database_alone(base: Path, data: Path) -> None:
    for path in data.glob("server.db*"):
        path.unlink()
    for path in (base / "kept").glob("server.db*"):
        shutil.copy(path, data)


def _all_but_the_journal(base: Path, data: Path) -> None:
    _database_alone(base, data)
    shutil.copytree(base / "kept" / "keys", data / "keys", dirs_exist_ok=True)


def _backup(base: Path, data: Path) -> None:
    """Restore as docs/operations/backup.md says: a new folder, on which the server starts with the old journal."""
    from privateer_server.store.backup import restore
    from privateer_server.store.schema import STORE_KIND as DATABASE

    if not (base / "backup.db").exists():
        return _database_alone(base, data)
    new = base / "restored"
    (base / "server.db").write_bytes((base / "backup.db").read_bytes())
    restore(base / "server.db", new, DATABASE)
    for path in data.glob("journal.db*"):
        shutil.copy(path, new)
    shutil.rmtree(data)
    new.rename(data)
    return None


_PUT_BACK: list[Callable[[Path, Path], None]] = [_database_alone, _all_but_the_journal, _backup]


@asynccontextmanager
async def world(folder: Path, kind: Callable[..., World] = World) -> AsyncIterator[World]:
    """Begin a world on the loop that runs, a `Schedule`, and end it."""
    schedule = asyncio.get_running_loop()
    assert isinstance(schedule, Schedule), "a world has a time of its own"
    clock, faults = Hands(schedule), Faults()
    with faults.at_work(), schedule.at_work(), pytest.MonkeyPatch.context() as patched:
        patched.setattr("privateer_core.clock.SystemClock.now", lambda _: clock.now())
        patched.setattr("privateer_core.clock.SystemClock.monotonic", lambda _: clock.monotonic())
        new_world = kind(folder, faults, clock)
        new_world.observer.watch(patched)
        try:
            await new_world.begin()
            yield new_world
        finally:
            faults.clear()
            await new_world.back()
            await new_world.stop()
