"""Opens sealed reports, and keeps the sums of open rounds secret: the only place of the server that decrypts."""

import os
from collections.abc import Sequence
from typing import Final, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

REPORT_ID_SIZE: Final = 16
"""A sealed report starts with this many random bytes, by which it is counted once."""
SEAL_SIZE: Final = 48
"""What sealing adds: an X25519 public key and an AES-GCM tag."""
SEALED_SIZE: Final = SEAL_SIZE + REPORT_ID_SIZE
"""What a sealed message has beside what it says."""
_TOTALS: Final = b"privateer/total/1"
_TOTALS_KEY_SIZE: Final = 32
_NONCE_SIZE: Final = 12


class Opener:
    """Opens the reports of a round with its private key, and encrypts the round's sums for the disk.

    The key of the sums is derived from the private key, so that destroying the private key destroys both.

    Attributes
    ----------
    public_key
        To which reports are sealed (X25519, 32 bytes).
    """

    def __init__(self, private_key: X25519PrivateKey) -> None:
        self._key = private_key
        self._suite = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)
        self.public_key = private_key.public_key().public_bytes_raw()
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
