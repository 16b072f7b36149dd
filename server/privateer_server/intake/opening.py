"""Opens sealed reports, and keeps the sums of open rounds secret: the only place of the server that decrypts.

`serve` does it in a process of its own: jobs come on its input, and what they hold goes to its output.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from io import FileIO
from typing import Final, Protocol, Self

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from privateer_core.prepared_types import prepared
from privateer_core.wire.envelope import pieces

REPORT_ID_SIZE: Final = 16
"""A sealed report starts with this many random bytes, by which it is counted once."""
SEAL_SIZE: Final = 48
"""What sealing adds: an X25519 public key and an AES-GCM tag."""
SEALED_SIZE: Final = SEAL_SIZE + REPORT_ID_SIZE
"""What a sealed message has beside what it says."""
_TOTALS: Final = b"privateer/total/1"
_TOTALS_KEY_SIZE: Final = 32
_NONCE_SIZE: Final = 12
LENGTH_BYTES: Final = 4
"""Bytes of the number before every message, which is its length."""


class Opener:
    """Opens the reports of a round with its private key, and encrypts the round's sums for the disk.

    The key of the sums is derived from the private key, so that destroying the private key destroys both.
    """

    def __init__(self, private_key: X25519PrivateKey) -> None:
        self._key = private_key
        self._suite = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)
        self.public_key = private_key.public_key().public_bytes_raw()  # to which reports are sealed (X25519, 32 bytes)
        self._totals = AESGCM(HKDF(SHA256(), _TOTALS_KEY_SIZE, salt=None, info=_TOTALS).derive(self.private_bytes()))

    @classmethod
    def of(cls, private_key: bytes | memoryview) -> Self:
        """Return the opener of a private key, as `private_bytes` gives it."""
        return cls(X25519PrivateKey.from_private_bytes(private_key))

    def private_bytes(self) -> bytes:
        """Return the private key (32 bytes): for the disk, and for another process of this server."""
        return self._key.private_bytes_raw()

    def open(self, sealed: Sequence[bytes], info: bytes) -> list[bytes]:
        """Return what the reports hold, report id first, in order; nothing for one that does not open."""
        return [self._opened(one, info) for one in sealed]

    def _opened(self, sealed: bytes, info: bytes) -> bytes:
        try:
            return self._suite.decrypt(sealed, self._key, info)
        except InvalidTag:
            return b""

    def protect(self, total: bytes, digest: bytes) -> bytes:
        """Encrypt the encoded sums of a round for the round of this digest: a fresh nonce, then AES-256-GCM."""
        nonce = os.urandom(_NONCE_SIZE)
        return nonce + self._totals.encrypt(nonce, total, digest)

    def reveal(self, protected: bytes, digest: bytes) -> bytes | None:
        """Decrypt what `protect` made for the round of this digest; None if the bytes are something else."""
        try:
            return self._totals.decrypt(protected[:_NONCE_SIZE], protected[_NONCE_SIZE:], digest)
        except (InvalidTag, ValueError):
            return None


def nobodys_key() -> bytes:
    """Return a public key whose private half is gone, for an experiment that is over."""
    return X25519PrivateKey.generate().public_key().public_bytes_raw()


class Job(msgspec.Struct, array_like=True):
    """Messages of one size that were sealed to one key."""

    private_key: memoryview  # what opens them (32 bytes)
    # sealed, size: the messages, one after the other, and the bytes of each
    sealed: bytes
    size: int
    info: bytes  # what they are bound to


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
    job = msgspec.msgpack.decode(body, type=prepared(Job))
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
