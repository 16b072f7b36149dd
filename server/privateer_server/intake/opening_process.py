"""A process that opens sealed messages for the server: jobs come on its input, what they hold goes to its output."""

from contextlib import suppress
from io import FileIO
from typing import Final, Protocol

import msgspec

from privateer_core.wire.envelope import pieces
from privateer_server.intake.opening import Opener

LENGTH_BYTES: Final = 4
"""Bytes of the number before every message, which is its length."""


class Job(msgspec.Struct, array_like=True):
    """Messages of one size that were sealed to one key.

    Attributes
    ----------
    private_key
        What opens them (32 bytes).
    sealed, size
        The messages, one after the other, and the bytes of each.
    info
        What they are bound to.
    """

    private_key: memoryview
    sealed: bytes
    size: int
    info: bytes


class Input(Protocol):
    """A stream that jobs come from."""

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Read so many bytes at most, and return how many; 0 at the end."""
        ...


class Output(Protocol):
    """A stream that results go to."""

    def write(self, data: memoryview, /) -> int | None:
        """Write some of the bytes, and return how many."""
        ...


def main() -> None:
    """Do one job after the other, until the server ends."""
    # Without buffers, which would keep a private key and what it opened until the next job.
    with suppress(BrokenPipeError):  # the server has died and wants no result any more
        serve(FileIO(0, "rb"), FileIO(1, "wb"))


def serve(jobs: Input, results: Output) -> None:
    """Read jobs and write what their messages hold; a message that does not open holds nothing."""
    while _serve_one(jobs, results):
        pass  # nothing is kept from a job to the next: its round may close, and its key be destroyed


def _serve_one(jobs: Input, results: Output) -> bool:
    """Do one job; return whether there was a whole one."""
    length = bytearray(LENGTH_BYTES)
    if not _filled(jobs, length):
        return False
    body = bytearray(int.from_bytes(length))
    if not _filled(jobs, body):
        return False
    job = msgspec.msgpack.decode(body, type=Job)
    opened = Opener.of(job.private_key).open(pieces(job.sealed, job.size), job.info)
    body[:] = bytes(len(body))
    answer = msgspec.msgpack.encode(opened)
    left = memoryview(len(answer).to_bytes(LENGTH_BYTES) + answer)
    while left:
        left = left[results.write(left) :]
    return True


def _filled(jobs: Input, buffer: bytearray) -> bool:
    """Fill the buffer; False if the input ends before."""
    left = memoryview(buffer)
    while left and (count := jobs.readinto(left)):
        left = left[count:]
    return not left
