"""Measures web servers that decide for many people, the recipes of docs/sdk/people.md, beside a client for each.

``python -m tests.people --people 10000 --each 500`` needs flask and gunicorn beside the development packages.
"""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

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
        self.folder, self.port = folder, port
        where = str(port) if recipe == "FastAPI" else f"127.0.0.1:{port}"
        names = {
            "PEOPLE_RECIPE": recipe,
            "PEOPLE_WAY": way,
            "PEOPLE_SERVER": services["server"],
            "PEOPLE_SHUFFLER": services["shuffler"],
        }
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        self.process = subprocess.Popen(
            [sys.executable, *SERVERS[recipe], where], cwd=folder, env=os.environ | names | {"PYTHONPATH": path}
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


async def measured(web: Web, people: int, at_once: int) -> dict[str, Any]:
    """Decide for people and report, so many at once; what that took a person."""
    visits = Visits(web.port)
    await visits.until_there()
    await visits.visit("first")
    await visits.used()
    before, began, memory = web.seconds(), time.monotonic(), []
    for start in range(0, people, max(1, people // 10)):
        await visits.visit_all(
            [f"user-{number}" for number in range(start, min(people, start + max(1, people // 10)))], at_once
        )
        memory.append(web.memory() >> 20)
    spent, wall = web.seconds() - before, time.monotonic() - began
    used = await visits.used()
    await visits.close()
    disk = sum(file.stat().st_blocks * 512 for file in web.folder.rglob("*") if file.is_file())
    return {
        "people": people,
        "processor_ms": round(1000 * spent / people, 2),
        "people_per_second": round(people / wall, 1),
        "disk_bytes": round(disk / people),
        "memory_mib": memory,
        "outcomes": dict(visits.outcomes),
        "arms": dict(visits.arms),
        "latency_ms_p50_p99": visits.latency(),
        "loop_ms_p50_p99_max": {
            name: [round(one, 1) for one in used[name]] for name in ("late", "busy") if name in used
        },
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
    given = parser.parse_args()
    services = {"server": given.server, "shuffler": given.shuffler}
    for recipe in given.recipes:
        for way, people in (("client", given.each), ("person", given.people)):
            if not people:
                continue
            with tempfile.TemporaryDirectory() as folder:
                web = Web(recipe, way, Path(folder), given.port, services)
                try:
                    result = asyncio.run(measured(web, people, given.at_once))
                finally:
                    web.close()
            print(json.dumps({"recipe": recipe, "way": way} | result), flush=True)


main()
