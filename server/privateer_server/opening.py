"""Opening sealed reports: the only place of the server that decrypts."""

from collections.abc import Sequence
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

REPORT_ID_SIZE: Final = 16
"""A sealed report starts with this many random bytes, by which it is counted once."""
SEAL_SIZE: Final = 48
"""What sealing adds: an X25519 public key and an AES-GCM tag."""
SEALED_SIZE: Final = SEAL_SIZE + REPORT_ID_SIZE
"""What a sealed message has beside what it says."""


class Opener:
    """Opens reports with the server's private key."""

    def __init__(self, private_key: X25519PrivateKey) -> None:
        self._key = private_key
        self._suite = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)
        self.public_key = private_key.public_key().public_bytes_raw()

    def open(self, sealed: Sequence[bytes], info: bytes) -> list[bytes]:
        """What the reports that open hold, report id first, in order; the others are left out."""
        opened = []
        for one in sealed:
            try:
                opened.append(self._suite.decrypt(one, self._key, info))
            except InvalidTag:
                continue
        return opened
