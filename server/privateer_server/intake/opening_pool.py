"""Processes that open reports: an open holds the interpreter's lock, so that threads would open no faster than one."""

import asyncio
import logging
import os
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from typing import Final

import msgspec

from privateer_core.serving.logs import trace
from privateer_server.intake.opening import LENGTH_BYTES, Job, Opener

_WORTH: Final = 32
"""Sealed messages from which on handing them over costs less than it saves."""
_SHARE: Final = 512
"""Messages that a process opens at a time: some twenty milliseconds."""
_NEEDED: Final = ("PATH", "HOME", "TMPDIR", "TZ", "LANG", "LC_", "LD_", "PYTHON", "VIRTUAL_ENV")
"""Beginnings of the names of variables that an interpreter may need. Others, such as the admin token, stay here."""
_log = logging.getLogger("privateer.server")


class Openers:
    """Opens sealed messages in so many processes; with none, leaves it to the caller.

    A process gets the private key of a round with the messages, and keeps neither. It ends when the server does.

    processes: how many there are.
    """

    def __init__(self, processes: int) -> None:
        self._idle: asyncio.LifoQueue[Process | None] = asyncio.LifoQueue()
        self._processes = processes
        for _ in range(processes):
            self._idle.put_nowait(None)

    async def start(self) -> None:
        """Start all processes, before reports wait for them. One that does not start is tried again for a job."""
        for process in [self._idle.get_nowait() for _ in range(self._idle.qsize())]:
            started = process
            with suppress(OSError):
                started = process or await _start()
            self._idle.put_nowait(started)

    async def open(self, opener: Opener, sealed: bytes, size: int, info: bytes) -> list[bytes] | None:
        """Open messages of one size that were sealed to one key; None if the caller does better to open them itself.

        Returns
        -------
        list of bytes
            What each message holds, in order; empty for one that does not open.
        """
        if not self._processes or len(sealed) < _WORTH * size:
            return None
        private, share = memoryview(opener.private_bytes()), _SHARE * size
        jobs = [Job(private, sealed[start : start + share], size, info) for start in range(0, len(sealed), share)]
        try:
            opened = await asyncio.gather(*map(self._opened, jobs))
        except Exception as error:  # it died, or none starts, since memory or threads are short
            _log.warning("a process that opens reports has failed, and another takes its place (%s)", trace(error))
            return None
        return [one for some in opened for one in some]

    async def _opened(self, job: Job) -> list[bytes]:
        process = await self._idle.get()
        try:
            if process is None or process.returncode is not None:
                process = await _start()
            opened = await _ask(process, job)
        except BaseException:  # what it would answer next is not what it is asked next
            if process:
                _kill(process)
            self._idle.put_nowait(None)
            raise
        self._idle.put_nowait(process)
        return opened

    async def close(self) -> None:
        """End the processes, which nobody asks any more."""
        while not self._idle.empty():
            if process := self._idle.get_nowait():
                _kill(process)
                await process.wait()


async def _start() -> Process:
    # A session of its own: Ctrl-C in a terminal reaches the server alone. -P: nothing is imported from here.
    code = "from privateer_server.intake.opening import main; main()"
    needed = {name: value for name, value in os.environ.items() if name.startswith(_NEEDED)}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-c", code, stdin=PIPE, stdout=PIPE, start_new_session=True, env=needed
    )


async def _ask(process: Process, job: Job) -> list[bytes]:
    assert process.stdin is not None, "it is a pipe"
    assert process.stdout is not None, "it is a pipe"
    body = msgspec.msgpack.encode(job)
    process.stdin.write(len(body).to_bytes(LENGTH_BYTES) + body)
    length = int.from_bytes(await process.stdout.readexactly(LENGTH_BYTES))
    return msgspec.msgpack.decode(await process.stdout.readexactly(length), type=list[bytes])


def _kill(process: Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()
