"""People who visit a web server: each is shown an arm, and buys."""

import asyncio
import json
import random
import time
from collections import Counter
from typing import Any


class Visits:
    """Visits of people to a server on a port of this machine, over connections that stay open."""

    def __init__(self, port: int, tries: int = 1) -> None:
        self._port, self._tries = port, tries
        self.arm_by_user: dict[str, str] = {}
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self.outcomes, self.arms = Counter[str](), Counter[str]()
        self._seconds: list[float] = []

    async def until_there(self) -> None:
        """Wait until the server answers."""
        for _ in range(300):
            try:
                await self.read_usage()
                return
            except OSError:
                await asyncio.sleep(0.1)
        raise TimeoutError

    async def read_usage(self) -> dict[str, Any]:
        """Return the processor time and memory of the process that answers."""
        return await self.ask("GET", "/used")

    async def offer(self, user: str) -> str:
        """Be shown an arm."""
        x1, x2 = random.random(), random.random()
        return (await self.ask("GET", f"/offer/{user}?x1={x1}&x2={x2}"))["arm"]

    async def buy(self, user: str) -> str:
        """Report."""
        return (await self.ask("POST", f"/bought/{user}"))["outcome"]

    async def visit(self, user: str) -> None:
        """Be shown an arm, and buy."""
        began = time.monotonic()
        arm = await self.offer(user)
        self._seconds.append(time.monotonic() - began)
        self.arms[arm] += 1
        self.arm_by_user[user] = arm
        self.outcomes[await self.buy(user)] += 1

    async def visit_all(self, users: list[str], at_once: int) -> None:
        """Have all users visit, ``at_once`` at the same time."""
        remaining = iter(users)

        async def visit_remaining() -> None:
            for user in remaining:
                await self.visit(user)

        await asyncio.gather(*(visit_remaining() for _ in range(at_once)))

    def latency(self) -> list[float]:
        """Milliseconds until the arm was there: the median, and of one in a hundred."""
        seconds = sorted(self._seconds)
        return [round(1000 * seconds[int(quantile * (len(seconds) - 1))], 1) for quantile in (0.5, 0.99)]

    async def ask(self, method: str, path: str) -> dict[str, Any]:
        """Return the answer to one request, which is made again if the server goes away."""
        for n_left in reversed(range(self._tries)):
            try:
                return await self._ask(method, path)
            except OSError:
                if not n_left:
                    raise
                await asyncio.sleep(0.1)
        raise AssertionError

    async def _ask(self, method: str, path: str) -> dict[str, Any]:
        reader, writer = self._idle.pop() if self._idle else await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n".encode())
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        except asyncio.IncompleteReadError as error:
            raise ConnectionError("the server went away") from error
        size = int(head.partition("content-length:")[2].partition("\r\n")[0])
        try:
            body = await reader.readexactly(size)
        except asyncio.IncompleteReadError as error:
            raise ConnectionError("the server went away") from error
        if "connection: close" in head:
            writer.close()
        else:
            self._idle.append((reader, writer))
        assert " 200 " in head.partition("\r\n")[0], (path, head, body)
        return json.loads(body)

    async def close(self) -> None:
        for _, writer in self._idle:
            writer.close()
