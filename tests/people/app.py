"""The web servers of docs/sdk/people.md, with what the measurement asks of their process.

``PEOPLE_RECIPE``: the recipe's heading. ``PEOPLE_WAY``: "person"; "client" for a client and a ledger a person, as
before there was ``client.person``; "nothing" for routes that decide nothing, which is the web framework's own part.
``PEOPLE_SERVER``, ``PEOPLE_SHUFFLER``: addresses.
"""

import asyncio
import gc
import os
import resource
import time
from collections import Counter
from pathlib import Path
from typing import Any

from privateer_client import AsyncClient, Client, Ledger

PAGE = Path(__file__).parents[2] / "docs" / "sdk" / "people.md"
ADDRESSES = {"http://127.0.0.1:8000": "PEOPLE_SERVER", "http://127.0.0.1:8001": "PEOPLE_SHUFFLER"}
PATIENT = {'default="middle"': 'default="middle", within=10.0'}  # all get an arm, however busy the machine is
PAUSE = 0.005
"""Seconds between looks at the event loop: each takes processor time that counts as people's."""


def recipe(heading: str, addresses: dict[str, str]) -> str:
    """The code below a heading of the page, for other addresses than the page has."""
    code = PAGE.read_text().partition(f"## {heading}\n")[2].partition("```python\n")[2].partition("```")[0]
    assert code, heading
    for page_address, address in addresses.items():
        code = code.replace(page_address, address)
    return code


class ClientForEachPerson:
    """Makes a client with a ledger for each participant, as processes had to before ``client.person``."""

    def __init__(self, kind: type[Any]) -> None:
        self._kind, self._folder = kind, Path("ledgers")
        self._folder.mkdir(exist_ok=True)

    def person(self, key: str) -> Any:
        options = {"shuffler": os.environ["PEOPLE_SHUFFLER"], "ledger": Ledger(self._folder / f"{key}.db")}
        return self._kind(os.environ["PEOPLE_SERVER"], **options)

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *_: object) -> None: ...


class NoOpClient:
    """A client that gives every participant the same arm, without a ledger and without requests."""

    name = "left"

    def person(self, _: str) -> "NoOpClient":
        return self

    def arm(self, *_: Any, **__: Any) -> "NoOpClient":
        return self

    def report(self, *_: Any) -> str:
        return "accepted"


class AsyncNoOpClient(NoOpClient):
    """The same beside an event loop."""

    async def arm(self, *_: Any, **__: Any) -> "NoOpClient":  # type: ignore[override]
        return self

    async def report(self, *_: Any) -> str:  # type: ignore[override]
        return "accepted"

    async def flush_people(self) -> None: ...

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *_: object) -> None: ...


class Times:
    """Durations, counted by tenths of a millisecond, so that many of them take no room."""

    def __init__(self) -> None:
        self.counts, self.longest_seconds = Counter[int](), 0.0

    def add(self, seconds: float) -> None:
        self.counts[int(seconds * 10_000)] += 1
        self.longest_seconds = max(self.longest_seconds, seconds)

    def drain_figures(self) -> list[float]:
        """Return median, 99th percentile and maximum in milliseconds since the last call, and reset them."""
        n_total, n_seen, marks = sum(self.counts.values()), 0, []
        for tenth, count in sorted(self.counts.items()):
            n_seen += count
            marks += [tenth / 10] * (len(marks) < 1 and n_seen >= 0.5 * n_total)
            marks += [tenth / 10] * (len(marks) == 1 and n_seen >= 0.99 * n_total)
        marks.append(1000 * self.longest_seconds)
        self.__init__()  # type: ignore[misc]
        return marks


class Loop:
    """How late an event loop is, the processor time of its thread between two turns, and the pauses of Python."""

    def __init__(self) -> None:
        self.times = {"late": Times(), "busy": Times(), "garbage": Times()}
        self._began = 0.0
        self.task: asyncio.Task[None] | None = None
        gc.callbacks.append(self._collects)

    def _collects(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.perf_counter()
        else:
            self.times["garbage"].add(time.perf_counter() - self._began)

    async def watch(self) -> None:
        while True:
            wall, cpu = time.perf_counter(), time.thread_time()
            await asyncio.sleep(PAUSE)
            self.times["late"].add(time.perf_counter() - wall - PAUSE)
            self.times["busy"].add(time.thread_time() - cpu)

    def drain_figures(self) -> dict[str, list[float]]:
        """Return the figures since the last call."""
        return {name: times.drain_figures() for name, times in self.times.items()}


def read_usage() -> dict[str, Any]:
    """The processor time and memory of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "pid": os.getpid(),
        "seconds": usage.ru_utime + usage.ru_stime,
        "system": usage.ru_stime,
        "memory": pages * resource.getpagesize(),
    }


def make_app() -> Any:
    """The application of the recipe, and a page with what it has used."""
    space: dict[str, Any] = {"__name__": "recipe"}
    heading = os.environ["PEOPLE_RECIPE"]
    exec(recipe(heading, {page_address: os.environ[name] for page_address, name in ADDRESSES.items()} | PATIENT), space)
    if os.environ["PEOPLE_WAY"] == "client":
        space["client"] = ClientForEachPerson(AsyncClient if heading == "FastAPI" else Client)
    elif os.environ["PEOPLE_WAY"] == "nothing":
        space["client"] = AsyncNoOpClient() if heading == "FastAPI" else NoOpClient()
    app = space["app"]
    if heading == "Flask":
        app.get("/used")(read_usage)
        return app
    loop = Loop()

    async def page() -> dict[str, Any]:
        if loop.task is None:
            loop.task = asyncio.create_task(loop.watch())
            return read_usage()
        return read_usage() | loop.drain_figures()

    app.get("/used")(page)
    return app


app = make_app()
