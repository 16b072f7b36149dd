"""The web servers of docs/sdk/people.md, with what the measurement asks of their process.

``PEOPLE_RECIPE``: the recipe's heading. ``PEOPLE_WAY``: "person", or "client" for a client and a ledger a person, as
before there was ``client.person``. ``PEOPLE_SERVER``, ``PEOPLE_SHUFFLER``: addresses.
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
PAUSE = 0.001


def recipe(heading: str, addresses: dict[str, str]) -> str:
    """The code below a heading of the page, for other addresses than the page has."""
    code = PAGE.read_text().partition(f"## {heading}\n")[2].partition("```python\n")[2].partition("```")[0]
    assert code, heading
    for written, meant in addresses.items():
        code = code.replace(written, meant)
    return code


class OfEach:
    """Clients as a process had to make them: one for each person, with a ledger each."""

    def __init__(self, kind: type[Any]) -> None:
        self._kind, self._folder = kind, Path("ledgers")
        self._folder.mkdir(exist_ok=True)

    def person(self, key: str) -> Any:
        where = {"shuffler": os.environ["PEOPLE_SHUFFLER"], "ledger": Ledger(self._folder / f"{key}.db")}
        return self._kind(os.environ["PEOPLE_SERVER"], **where)

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *_: object) -> None: ...


class Times:
    """Durations, counted by tenths of a millisecond, so that many of them take no room."""

    def __init__(self) -> None:
        self.counts, self.most = Counter[int](), 0.0

    def add(self, seconds: float) -> None:
        self.counts[int(seconds * 10_000)] += 1
        self.most = max(self.most, seconds)

    def taken(self) -> list[float]:
        """The median, what one in a hundred exceeds, and the longest since the last time, in milliseconds."""
        all_, seen, marks = sum(self.counts.values()), 0, []
        for tenth, count in sorted(self.counts.items()):
            seen += count
            marks += [tenth / 10] * (len(marks) < 1 and seen >= 0.5 * all_)
            marks += [tenth / 10] * (len(marks) == 1 and seen >= 0.99 * all_)
        marks.append(1000 * self.most)
        self.__init__()  # type: ignore[misc]
        return marks


class Loop:
    """How late an event loop is, the processor time of its thread between two turns, and the pauses of Python."""

    def __init__(self) -> None:
        self.times = {"late": Times(), "busy": Times(), "garbage": Times()}
        self._began = 0.0
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

    def taken(self) -> dict[str, list[float]]:
        """What was seen since the last time."""
        return {name: times.taken() for name, times in self.times.items()}


def used() -> dict[str, Any]:
    """The processor time and memory of this process."""
    spent = resource.getrusage(resource.RUSAGE_SELF)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "pid": os.getpid(),
        "seconds": spent.ru_utime + spent.ru_stime,
        "system": spent.ru_stime,
        "memory": pages * resource.getpagesize(),
    }


def made() -> Any:
    """The application of the recipe, and a page with what it has used."""
    space: dict[str, Any] = {"__name__": "recipe"}
    heading = os.environ["PEOPLE_RECIPE"]
    exec(recipe(heading, {written: os.environ[name] for written, name in ADDRESSES.items()} | PATIENT), space)
    if os.environ["PEOPLE_WAY"] == "client":
        space["client"] = OfEach(AsyncClient if heading == "FastAPI" else Client)
    app = space["app"]
    if heading == "Flask":
        app.get("/used")(used)
        return app
    loop = Loop()

    async def page() -> dict[str, Any]:
        if not hasattr(loop, "task"):
            loop.task = asyncio.create_task(loop.watch())
            return used()
        return used() | loop.taken()

    app.get("/used")(page)
    return app


app = made()
