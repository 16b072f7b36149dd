"""A flood of anonymous uploads, as fast as a process can send them, from a process of its own."""

import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

DEPTH: Final = 1
"""Requests under way on a connection."""
_REFUSED: Final = b"HTTP/1.1 401"
_CODE: Final = "import sys; from tests.support.floods import run; run(*sys.argv[1:])"


class Flood:
    """Sends a request again and again over several connections until it is ended.

    Attributes
    ----------
    rate
        Uploads that were answered a second, once it has ended.
    """

    def __init__(self, url: str, request: bytes, connections: int, cores: Sequence[int] = ()) -> None:
        arguments = (url, request.hex(), str(connections), ",".join(map(str, cores)))
        self._process = subprocess.Popen([sys.executable, "-c", _CODE, *arguments], stdin=-1, stdout=-1, text=True)
        assert self._process.stdout
        assert self._process.stdout.readline() == "begun\n"
        self.rate = 0.0

    def end(self) -> None:
        """End it, and read how fast it was."""
        output, _ = self._process.communicate("\n", timeout=30)
        self.rate = float(output)


def run(url: str, request: str, connections: str, cores: str) -> None:
    """Flood a service until a line comes; tell the rate of answers, all of which must be refusals."""
    os.nice(19)  # people who share its core are not to wait for it, but for the service
    if cores:
        os.sched_setaffinity(0, set(map(int, cores.split(","))))
    at, burst = urlsplit(url), bytes.fromhex(request) * DEPTH
    sockets = [socket.create_connection((at.hostname or "", at.port or 0)) for _ in range(int(connections))]
    for connection in sockets:
        connection.sendall(burst)
        connection.setblocking(False)
    print("begun", flush=True)
    started, answered, owed = time.perf_counter(), 0, dict.fromkeys(sockets, DEPTH)
    poll, tails = select.epoll(), dict.fromkeys(sockets, b"")
    by_file = {connection.fileno(): connection for connection in sockets}
    for number in by_file:
        poll.register(number, select.EPOLLIN)
    while not _is_told():
        for number, _ in poll.poll(0.1):
            connection = by_file[number]
            answer = connection.recv(1 << 20)
            assert answer, "the connection was closed"
            heard = tails[connection] + answer
            tails[connection], count = heard[1 - len(_REFUSED) :], heard.count(_REFUSED)
            assert heard.count(b"HTTP/1.1 2") == 0, heard[:200]
            answered += count
            owed[connection] -= count
            if owed[connection] <= DEPTH // 2:
                connection.setblocking(True)
                connection.sendall(bytes.fromhex(request) * (DEPTH - owed[connection]))
                connection.setblocking(False)
                owed[connection] = DEPTH
    print(answered / (time.perf_counter() - started))


def _is_told() -> bool:
    """Whether a line has come."""
    return bool(select.select([sys.stdin], [], [], 0)[0])
