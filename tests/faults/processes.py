"""Services in this process that die as processes do, and the ways to them."""

import asyncio
import shutil
import threading
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import httpx

from privateer_core.errors import PrivateerError
from privateer_core.serving.store.postgres import Unreachable
from tests.faults.points import Faults
from tests.support.asgi import AtOnce

Made = Callable[[Path, "Process"], Any]
_TRIES = 100


class Process:
    """One life of a service.

    On a folder of its own it dies by a copy of its files: the next life begins on that, and nobody hears any more of
    this one, which ends in peace elsewhere. Without, whatever it asks of its databases fails from then on.
    """

    def __init__(self, role: str, folder: Path, life: int, is_shared: bool) -> None:
        self.role, self.life, self.is_alive = role, life, True
        self._base, self.is_shared = folder, is_shared
        self.disk: Any = nullcontext() if is_shared else threading.RLock()
        self.app: Any = None
        self._lifespan: asyncio.Task[None] | None = None
        self._to_app: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._from_app: asyncio.Queue[Any] = asyncio.Queue()

    @property
    def folder(self) -> Path:
        return self._base / str(self.life)

    @property
    def next_folder(self) -> Path:
        return self._base / str(self.life + 1)

    def die(self) -> None:
        """Die now, in whichever thread."""
        with self.disk:
            if not self.is_alive:
                return
            self.is_alive = False
            if not self.is_shared:
                copy(self.folder, self.next_folder)
        if self.is_shared:
            raise Unreachable("the process is dead")

    async def start(self, faults: Faults, make: Made) -> bool:
        """Start; False if it died before it was ready, or cannot start now."""
        faults.starting = self
        faults.assign_folder(self.folder, self)
        try:
            self.app = make(self.folder, self)
        except (OSError, PrivateerError):  # it died, or its database is away: what it said is no traceback
            if self.is_alive:
                with suppress(Unreachable):
                    self.die()
            return False
        finally:
            faults.starting = None
        scope = {"type": "lifespan", "asgi": {"version": "3.0"}}
        self._lifespan = asyncio.create_task(self.app(scope, self._to_app.get, self._from_app.put))
        await self._to_app.put({"type": "lifespan.startup"})
        if (await self._from_app.get())["type"] != "lifespan.startup.complete":
            if self.is_alive:
                self.die()
            return False
        return self.is_alive

    async def stop(self) -> None:
        """Stop in peace: of a dead process nothing of that is seen."""
        if self._lifespan is not None and self.app is not None:
            getattr(self.app, "end_waits", lambda: None)()
            await self._to_app.put({"type": "lifespan.shutdown"})
            with suppress(Exception):
                await asyncio.wait_for(self._lifespan, 20)
        if self.is_alive and not self.is_shared:
            self.is_alive = False
            self.folder.rename(self.next_folder)
        elif not self.is_shared:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.is_alive = False


class Slot:
    """A place for a process: a dead process is followed by another on the data that it left.

    Attributes
    ----------
    process
        The one that is there now; None: none.
    down
        For how many further operations none is started.
    n_lost_answers
        How many of the next answers are lost on their way.
    """

    def __init__(self, role: str, folder: Path, faults: Faults, make: Made, is_shared: bool = False) -> None:
        self.role, self.faults, self._make, self._is_shared = role, faults, make, is_shared
        self._folder, self._life = folder, 0
        self.process: Process | None = None
        self.down = self.n_lost_answers = 0
        (folder / "0").mkdir(parents=True)

    @property
    def is_up(self) -> bool:
        return self.process is not None and self.process.is_alive

    @property
    def folder(self) -> Path:
        """Where the data of the next process are, if none is there."""
        return self._folder / str(self._life)

    async def revive(self) -> bool:
        """See that a process is there; whether it is."""
        if self.is_up:
            return True
        await self.bury()
        process = Process(self.role, self._folder, self._life, self._is_shared)
        if await process.start(self.faults, self._make):
            self.process = process
            return True
        await process.stop()
        self._life += 1
        return False

    async def bury(self) -> None:
        """Let a dead process go."""
        if self.process is not None and not self.process.is_alive:
            process, self.process = self.process, None
            self._life += 1
            await process.stop()

    async def stop(self) -> None:
        """Stop the process that is there, as an operator does."""
        if self.process is not None:
            is_alive, process, self.process = self.process.is_alive, self.process, None
            self._life += 1
            await process.stop()
            assert is_alive or not process.is_alive

    def kill(self) -> None:
        """Kill the process that is there."""
        if self.process is not None:
            with suppress(Unreachable):
                self.process.die()


class Way(httpx.AsyncBaseTransport):
    """The way to one of several processes, as a balancer finds it.

    Attributes
    ----------
    note_request
        Gets every request that reaches a process, whatever becomes of its answer.
    loses
        Says whether the answer to a request is lost.
    note
        Takes what every request comes to.
    """

    def __init__(self, slots: list[Slot], sender: Process | None = None) -> None:
        self._slots, self._sender, self._turn = slots, sender, 0
        self.note_request: Callable[[httpx.Request], None] = lambda _: None
        self.loses: Callable[[httpx.Request], bool] = lambda _: False
        self.note: Callable[[str], None] = lambda _: None

    def _next(self) -> Slot:
        for _ in self._slots:
            self._turn += 1
            slot = self._slots[self._turn % len(self._slots)]
            if slot.is_up:
                return slot
        raise httpx.ConnectError("nobody is there")

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Pass a request on; no answer comes from the dead, nor reaches them."""
        request_line = f"{request.method} {request.url.path}"
        try:
            answer = await self._pass_on(request)
        except httpx.TransportError as error:
            self.note(f"{request_line}: {error}")
            raise
        self.note(f"{request_line}: {answer.status_code}")
        return answer

    async def _pass_on(self, request: httpx.Request) -> httpx.Response:
        if self._sender and not self._sender.is_alive:
            raise httpx.ConnectError("the sender is dead")
        slot = self._next()
        process = slot.process
        assert process is not None
        self.note_request(request)
        app = AtOnce(process.app) if hasattr(process.app, "answer_at_once") else process.app
        answer = await httpx.ASGITransport(app, raise_app_exceptions=False).handle_async_request(request)
        if not process.is_alive or (self._sender and not self._sender.is_alive):
            raise httpx.ReadError("the process died")
        if self.loses(request):
            raise httpx.ReadTimeout("the answer is lost")
        return answer


def copy(folder: Path, to: Path) -> None:
    """Copy what is on disk; a key may go just then."""
    for _ in range(_TRIES):
        with suppress(shutil.Error, FileNotFoundError):
            shutil.copytree(folder, to)
            return
        shutil.rmtree(to, ignore_errors=True)
    raise AssertionError("the folder does not hold still")
