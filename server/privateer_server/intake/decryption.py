"""Decryption of sealed reports, and encryption of the sums of open rounds: the only module of the server that decrypts.

`serve` decrypts in a process of its own: it reads jobs from its input, and writes their messages to its output.
"""

import asyncio
import logging
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Collection, Sequence
from contextlib import suppress
from io import BufferedIOBase, FileIO, RawIOBase
from threading import Lock
from typing import Final, Protocol, Self

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from privateer_core.prepared_types import cache_decoder
from privateer_core.serving.logs import trace
from privateer_core.wire.publication import split_bytes
from privateer_core.wire.share_keys import derive_verification_key
from privateer_core.wire.shares import ShareParty, ShareSeal

REPORT_ID_SIZE: Final = 16
"""A sealed report starts with this many random bytes, by which it is counted once."""
SEAL_SIZE: Final = 48
"""The bytes that sealing adds: an X25519 public key and an AES-GCM tag."""
SEALED_SIZE: Final = SEAL_SIZE + REPORT_ID_SIZE
"""The bytes of a sealed message beside its payload."""
_SUMS_LABEL: Final = b"privateer/total/1"
_NONCE_SIZE: Final = 12
KEY_SIZE: Final = 32  # the bytes of a private key, and of the key of the sums
LENGTH_BYTES: Final = 4
"""The bytes of the length before every message."""


class Decryptor:
    """Decrypts the reports of a round with its private key, and encrypts the round's sums for the disk.

    The key of the sums is derived from the private key, so that destroying the private key destroys both.
    """

    def __init__(self, private_key: X25519PrivateKey) -> None:
        self._key = private_key
        self._suite = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)
        self.public_key = private_key.public_key().public_bytes_raw()  # to which reports are sealed (X25519, 32 bytes)
        self._cipher = AESGCM(HKDF(SHA256(), KEY_SIZE, salt=None, info=_SUMS_LABEL).derive(self.private_bytes()))

    @classmethod
    def from_private_key(cls, private_key: bytes | memoryview) -> Self:
        """Return the decryptor of a private key in the format of `private_bytes`."""
        return cls(X25519PrivateKey.from_private_bytes(private_key))

    def private_bytes(self) -> bytes:
        """Return the private key (32 bytes): for the disk, and for another process of this server."""
        return self._key.private_bytes_raw()

    def decrypt(self, sealed: Sequence[bytes], info: bytes) -> list[bytes]:
        """Return the messages in reports, report id first, in order; empty bytes for an undecryptable report."""
        return [self._decrypt_message(message, info) for message in sealed]

    def _decrypt_message(self, sealed: bytes, info: bytes) -> bytes:
        """Return the message in a sealed report; empty if it cannot be decrypted."""
        try:
            return self._suite.decrypt(sealed, self._key, info)
        except InvalidTag:
            return b""

    def open_share(self, sealed: bytes, seal: ShareSeal) -> bytes:
        """Return the leader's share of a report; empty if it cannot be decrypted."""
        return seal.open(sealed, self._key, ShareParty.LEADER)

    def derive_verification_key(self, helper_key: bytes, context: bytes) -> bytes:
        """Return the key by which this round's proofs are verified with a helper; `ValueError` for a key of none."""
        return derive_verification_key(self._key, helper_key, context)

    def encrypt_sums(self, total: bytes, digest: bytes) -> bytes:
        """Encrypt the encoded sums of a round for the round of this digest: a fresh nonce, then AES-256-GCM."""
        nonce = os.urandom(_NONCE_SIZE)
        return nonce + self._cipher.encrypt(nonce, total, digest)

    def decrypt_sums(self, protected: bytes, digest: bytes) -> bytes | None:
        """Decrypt sums that `encrypt_sums` encrypted for the round of this digest; None if the bytes are invalid."""
        try:
            return self._cipher.decrypt(protected[:_NONCE_SIZE], protected[_NONCE_SIZE:], digest)
        except (InvalidTag, ValueError):
            return None


class KeyStorage(Protocol):
    """A storage for keys of rounds, outside the store and its backups."""

    def write(self, decryptor: Decryptor) -> None:
        """Store a new key, which is durable when this returns."""

    def read(self, public_key: bytes) -> bytes | None:
        """Return the private key of a public key, if it is stored."""

    def erase(self, public_key: bytes) -> None:
        """Erase a key; a missing key is no error."""

    def erase_all_except(self, public_keys: Collection[bytes]) -> None:
        """Erase every key but these, and but those that another server may just have made."""


class RoundKeys:
    """The keys of a server's open rounds.

    A key without an open round belongs either to a round that was about to open or to a closed round. When the server
    starts, `erase_all_except` destroys both kinds.
    """

    def __init__(self, storage: KeyStorage) -> None:
        self._storage = storage
        self._decryptors: dict[bytes, Decryptor] = {}
        self._keys_to_erase: set[bytes] = set()
        self._erase_lock = Lock()

    def create_key(self) -> bytes:
        """Create a key, which is durable when this returns, and return its public key."""
        decryptor = Decryptor(X25519PrivateKey.generate())
        self._storage.write(decryptor)
        self._decryptors[decryptor.public_key] = decryptor
        return decryptor.public_key

    def find_decryptor(self, public_key: bytes) -> Decryptor | None:
        """Return the decryptor of reports sealed to a public key; None if the private key is lost or damaged."""
        if decryptor := self._decryptors.get(public_key):
            return decryptor
        with self._erase_lock:  # another thread may be destroying it
            if public_key not in self._keys_to_erase and (decryptor := self._read_decryptor(public_key)):
                self._decryptors[public_key] = decryptor
        return decryptor

    def _read_decryptor(self, public_key: bytes) -> Decryptor | None:
        raw = self._storage.read(public_key)
        decryptor = Decryptor.from_private_key(raw) if raw and len(raw) == KEY_SIZE else None
        return decryptor if decryptor and decryptor.public_key == public_key else None

    def destroy(self, public_key: bytes) -> None:
        """Forget a key and erase it; if erasing fails now, `retry_erasures` erases it later."""
        with self._erase_lock:
            self._decryptors.pop(public_key, None)
            self._keys_to_erase.add(public_key)
        self.retry_erasures()

    def retry_erasures(self) -> None:
        """Erase the keys that could not be erased."""
        with self._erase_lock:
            for public_key in list(self._keys_to_erase):
                try:
                    self._storage.erase(public_key)
                except OSError as error:
                    _log.error("the key of a closed round is not destroyed yet (%s)", trace(error))
                else:
                    self._keys_to_erase.discard(public_key)

    @property
    def n_unerased(self) -> int:
        """The number of keys of closed rounds that could not be erased yet."""
        return len(self._keys_to_erase)

    def erase_all_except(self, public_keys: Collection[bytes]) -> None:
        """Erase every key but these, and but those that another server may just have made."""
        self._storage.erase_all_except(public_keys)


def create_unusable_public_key() -> bytes:
    """Return a public key whose private key is discarded, for an experiment that is over."""
    return X25519PrivateKey.generate().public_key().public_bytes_raw()


class Job(msgspec.Struct, array_like=True):
    """Messages of the same size that were sealed to the same key."""

    private_key: memoryview  # their private key (32 bytes)
    # sealed, size: the messages, concatenated, and the bytes of each
    sealed: bytes
    size: int
    info: bytes  # the context to which they are bound (HPKE info)


ByteStream = RawIOBase | BufferedIOBase


def main() -> None:
    """Process jobs from standard input until the server ends."""
    # Without buffers, which would keep a private key and decrypted messages until the next job.
    with suppress(BrokenPipeError):  # the server has died
        serve(FileIO(0, "rb"), FileIO(1, "wb"))


def serve(jobs: ByteStream, results: ByteStream) -> None:
    """Read jobs, and write their decrypted messages; empty bytes for an undecryptable message."""
    while _process_job(jobs, results):
        pass  # nothing is kept from a job to the next: its round may close, and its key be destroyed


def _process_job(jobs: ByteStream, results: ByteStream) -> bool:
    """Process one job, and return whether the input had a complete job."""
    length = bytearray(LENGTH_BYTES)
    if not _fill_buffer(jobs, length):
        return False
    body = bytearray(int.from_bytes(length))
    if not _fill_buffer(jobs, body):
        return False
    job = msgspec.msgpack.decode(body, type=cache_decoder(Job))
    decrypted = Decryptor.from_private_key(job.private_key).decrypt(split_bytes(job.sealed, job.size), job.info)
    body[:] = bytes(len(body))
    answer = msgspec.msgpack.encode(decrypted)
    remaining = memoryview(len(answer).to_bytes(LENGTH_BYTES) + answer)
    while remaining:
        remaining = remaining[results.write(remaining) :]
    return True


def _fill_buffer(jobs: ByteStream, buffer: bytearray) -> bool:
    """Fill the buffer from the input, and return whether the input had enough bytes."""
    remaining = memoryview(buffer)
    while remaining and (count := jobs.readinto(remaining)):
        remaining = remaining[count:]
    return not remaining


_MIN_MESSAGES_FOR_PROCESSES: Final = 32  # from which on another process decrypts them faster
MIN_BYTES_FOR_PROCESSES: Final = _MIN_MESSAGES_FOR_PROCESSES * SEALED_SIZE  # fewer bytes have fewer messages
_MAX_JOB_MESSAGES: Final = 512
"""The number of messages that a process decrypts at a time: about twenty milliseconds."""
_ENVIRONMENT_PREFIXES: Final = ("PATH", "HOME", "TMPDIR", "TZ", "LANG", "LC_", "LD_", "PYTHON", "VIRTUAL_ENV")
"""Prefixes of environment variables that an interpreter may need. Others, such as the admin token, are not passed."""
_log = logging.getLogger("privateer.server")


class DecryptPool:
    """A pool of processes that decrypt sealed messages; without processes the caller decrypts.

    A process gets the private key of a round with the messages, and keeps neither. It ends with the server.
    """

    def __init__(self, processes: int) -> None:
        self._idle: asyncio.LifoQueue[Process | None] = asyncio.LifoQueue()
        self._processes = processes
        for _ in range(processes):
            self._idle.put_nowait(None)

    async def start(self) -> None:
        """Start all processes before the first reports. A process that does not start is started again for a job."""
        for process in [self._idle.get_nowait() for _ in range(self._idle.qsize())]:
            started = process
            with suppress(OSError):
                started = process or await _start_process()
            self._idle.put_nowait(started)

    async def decrypt(self, decryptor: Decryptor, sealed: bytes, size: int, info: bytes) -> list[bytes] | None:
        """Decrypt messages of the same size and key in order; None if the caller should decrypt them itself.

        An undecryptable message is returned as empty bytes.
        """
        if not self._processes or len(sealed) < _MIN_MESSAGES_FOR_PROCESSES * size:
            return None
        private_key, stride = memoryview(decryptor.private_bytes()), _MAX_JOB_MESSAGES * size
        jobs = [Job(private_key, sealed[start : start + stride], size, info) for start in range(0, len(sealed), stride)]
        try:
            decrypted = await asyncio.gather(*map(self._run_job, jobs))
        except Exception as error:  # it died, or none starts, since memory or threads are short
            _log.warning("a process that opens reports has failed, and another takes its place (%s)", trace(error))
            return None
        return [message for messages in decrypted for message in messages]

    async def _run_job(self, job: Job) -> list[bytes]:
        """Have a process decrypt the messages of a job; after a failure it is killed, and the error is raised."""
        process = await self._idle.get()
        try:
            if process is None or process.returncode is not None:
                process = await _start_process()
            decrypted = await _request_decryption(process, job)
        except BaseException:  # its next answer may belong to this job
            if process:
                with suppress(ProcessLookupError):
                    process.kill()
            self._idle.put_nowait(None)
            raise
        self._idle.put_nowait(process)
        return decrypted

    async def close(self) -> None:
        """Kill the processes."""
        while not self._idle.empty():
            if process := self._idle.get_nowait():
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()


async def _start_process() -> Process:
    """Start a process that decrypts jobs from its input."""
    # A session of its own: Ctrl-C in a terminal reaches the server alone. -P: no module of the working directory.
    code = "from privateer_server.intake.decryption import main; main()"
    environment = {name: value for name, value in os.environ.items() if name.startswith(_ENVIRONMENT_PREFIXES)}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-c", code, stdin=PIPE, stdout=PIPE, start_new_session=True, env=environment
    )


async def _request_decryption(process: Process, job: Job) -> list[bytes]:
    """Send a job to a process, and return the messages that it decrypts."""
    assert process.stdin is not None, "it is a pipe"
    assert process.stdout is not None, "it is a pipe"
    body = msgspec.msgpack.encode(job)
    process.stdin.write(len(body).to_bytes(LENGTH_BYTES) + body)
    length = int.from_bytes(await process.stdout.readexactly(LENGTH_BYTES))
    return msgspec.msgpack.decode(await process.stdout.readexactly(length), type=list[bytes])
