"""Measures web servers that decide for many people, the recipes of docs/sdk/people.md.

Beside them it measures a client for each person, and routes without a client.

``python -m tests.people`` needs flask and gunicorn beside the development packages, and running services with the
experiment of examples/peaks-shuffle.toml; it refuses services that do not take a report. With ``--kills 20`` workers
of gunicorn are killed meanwhile.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

from privateer_client import Client, ReportStatus
from privateer_core.errors import PrivateerError
from tests.people.people import Visits

ROOT = Path(__file__).parents[2]
SERVERS = {
    "FastAPI": ["-m", "uvicorn", "tests.people.app:app", "--log-level", "warning", "--port"],
    "Flask": [
        "-m",
        "gunicorn",
        "tests.people.app:app",
        "--workers",
        "2",
        "--threads",
        "8",
        "--log-level",
        "warning",
        "--bind",
    ],
}


class Web:
    """A web server of a recipe."""

    def __init__(self, recipe: str, way: str, folder: Path, port: int, services: dict[str, str]) -> None:
        self.folder, self.port, self.services = folder, port, services
        address = str(port) if recipe == "FastAPI" else f"127.0.0.1:{port}"
        names = {
            "PEOPLE_RECIPE": recipe,
            "PEOPLE_WAY": way,
            "PEOPLE_SERVER": services["server"],
            "PEOPLE_SHUFFLER": services["shuffler"],
        }
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        self.process = subprocess.Popen(
            [sys.executable, *SERVERS[recipe], address], cwd=folder, env=os.environ | names | {"PYTHONPATH": path}
        )

    def pids(self) -> list[int]:
        """The server's processes."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [self.process.pid, *map(int, children)]

    def seconds(self) -> float:
        """Processor time of all of them so far."""
        ticks = os.sysconf("SC_CLK_TCK")
        stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in self.pids()]
        return sum(int(part[11]) + int(part[12]) for part in stats) / ticks

    def memory(self) -> int:
        """Bytes that all of them hold."""
        return sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self.pids()) * os.sysconf(
            "SC_PAGESIZE"
        )

    def close(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=30)


def find_problem(services: dict[str, str]) -> str | None:
    """Return why these services cannot be measured; None if they take a report."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            client = Client(
                services["server"], shuffler=services["shuffler"], ledger=Path(folder) / "one.db", retry_timeout=0.0
            )
            session = client.join("peaks-shuffle")
            session.choose({"x1": 0.5, "x2": 0.5})
            status = session.report(1.0)
        except PrivateerError as error:
            return str(error)
    return None if status is ReportStatus.ACCEPTED else f"a report to {services['shuffler']} is {status.value}"


async def measure_visits(web: Web, people: int, at_once: int) -> dict[str, Any]:
    """Decide for participants and report, ``at_once`` at the same time; return the costs for each participant."""
    visits = Visits(web.port, tries=3)  # gunicorn closes connections that nobody uses
    await visits.until_there()
    await visits.visit("first")
    await visits.read_usage()
    before, began, memory = web.seconds(), time.monotonic(), []
    for start in range(0, people, max(1, people // 10)):
        await visits.visit_all(
            [f"user-{number}" for number in range(start, min(people, start + max(1, people // 10)))], at_once
        )
        memory.append(web.memory() >> 20)
    processor_seconds, wall = web.seconds() - before, time.monotonic() - began
    usage = await visits.read_usage()
    await visits.close()
    disk = sum(file.stat().st_blocks * 512 for file in web.folder.rglob("*") if file.is_file())
    return {
        "people": people,
        "processor_ms": round(1000 * processor_seconds / people, 2),
        "people_per_second": round(people / wall, 1),
        "disk_bytes": round(disk / people),
        "memory_mib": memory,
        "outcomes": dict(visits.outcomes),
        "arms": dict(visits.arms),
        "latency_ms_p50_p99": visits.latency(),
        "loop_ms_p50_p99_max": {
            name: [round(figure, 1) for figure in usage[name]] for name in ("late", "busy", "garbage") if name in usage
        },
    }


async def visit_with_kills(web: Web, people: int, at_once: int, kills: int) -> dict[str, Any]:
    """Kill workers while people visit; what became of each person afterwards."""
    visits, users = Visits(web.port, tries=100), [f"user-{number}" for number in range(people)]
    await visits.until_there()

    async def kill() -> int:
        n_kills = 0
        while n_kills < kills:
            await asyncio.sleep(random.uniform(0.2, 1.5))
            workers = web.pids()[1:]
            if workers:
                os.kill(random.choice(workers), signal.SIGKILL)
                n_kills += 1
        return n_kills

    killing = asyncio.create_task(kill())
    await visits.visit_all(users, at_once)
    n_kills = await killing
    first = dict(visits.arm_by_user)
    with Client(web.services["server"], shuffler=web.services["shuffler"], ledger=web.folder / "people.db") as client:
        resent = {name: dict(counts) for name, counts in client.flush_people().items()}
    counter = Counter([await visits.buy(user) for user in users])
    moved = sum([await visits.offer(user) != first[user] for user in users])
    await visits.close()
    with closing(sqlite3.connect(web.folder / "people.db")) as database:
        rows = {
            table: database.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in ("payments", "choices", "outbox")
        }
    return {
        "people": people,
        "kills": n_kills,
        "outcomes": dict(visits.outcomes),
        "resent": resent,
        "again": dict(counter),
        "arms_that_moved": moved,
        "rows": rows,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", default="http://127.0.0.1:8000")
    parser.add_argument("--shuffler", default="http://127.0.0.1:8001")
    parser.add_argument("--people", type=int, default=10_000)
    parser.add_argument("--each", type=int, default=300, help="people who get a client and a ledger each")
    parser.add_argument("--at-once", type=int, default=16)
    parser.add_argument("--recipes", nargs="*", default=list(SERVERS))
    parser.add_argument("--port", type=int, default=8010)
    parser.add_argument(
        "--kills", type=int, default=0, help="workers of gunicorn that are killed; measures nothing else"
    )
    args = parser.parse_args()
    services = {"server": args.server, "shuffler": args.shuffler}
    if problem := find_problem(services):
        print(f"error: {problem}", file=sys.stderr)
        sys.exit(2)
    if args.kills:
        with tempfile.TemporaryDirectory() as folder:
            web = Web("Flask", "person", Path(folder), args.port, services)
            try:
                print(json.dumps(asyncio.run(visit_with_kills(web, args.people, args.at_once, args.kills))))
            finally:
                web.close()
        return
    for recipe in args.recipes:
        for way, people in (("nothing", args.each), ("client", args.each), ("person", args.people)):
            if not people:
                continue
            with tempfile.TemporaryDirectory() as folder:
                web = Web(recipe, way, Path(folder), args.port, services)
                try:
                    result = asyncio.run(measure_visits(web, people, args.at_once))
                finally:
                    web.close()
            print(json.dumps({"recipe": recipe, "way": way} | result), flush=True)


main()
