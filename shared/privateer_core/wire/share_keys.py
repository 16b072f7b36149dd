"""Keys of both servers of a report in shares: the helper's sealing key, and the key that both verify proofs with."""

import hashlib
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

_PRIME: Final = (1 << 255) - 19
_KEY_SIZE: Final = 32
_PURPOSE: Final = b"privateer/verification/1\0"


def derive_sealing_key(key: Ed25519PrivateKey) -> X25519PrivateKey:
    """Return the X25519 key of a signing key's secret scalar (RFC 8032, section 5.1.5).

    So whoever knows the shuffler's public key can seal to it. Signatures and HPKE may share that scalar (Thormarker
    2021, On using the same key pair for Ed25519 and an X25519 based KEM).
    """
    return X25519PrivateKey.from_private_bytes(hashlib.sha512(key.private_bytes_raw()).digest()[:_KEY_SIZE])


def sealing_public_key(signing_key: bytes) -> bytes:
    """Return the public key of `derive_sealing_key` by the public signing key (RFC 7748, section 4.1); or `ValueError`.

    `ValueError` is for bytes that no signing key has.
    """
    y = int.from_bytes(signing_key, "little") & (1 << 255) - 1
    return ((1 + y) * pow(1 - y, -1, _PRIME) % _PRIME).to_bytes(_KEY_SIZE, "little")


def derive_verification_key(own_key: X25519PrivateKey, other_key: bytes, context: bytes) -> bytes:
    """Return the key with which both servers verify the proofs of a round, and which no device knows.

    It follows from the round's key of the one and the sealing key of the other, so that no party can verify a report
    under two keys, which would tell its vote. `ValueError` for a key of low order.
    """
    secret = own_key.exchange(X25519PublicKey.from_public_bytes(other_key))
    return HKDF(SHA256(), _KEY_SIZE, salt=None, info=_PURPOSE + context).derive(secret)
