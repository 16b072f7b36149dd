"""HPKE (RFC 9180) with an ephemeral key that is given, so that what is sealed can be compared byte by byte."""

import hashlib
import hmac

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_KEM = b"KEM" + (0x20).to_bytes(2, "big")
_SUITE = b"HPKE" + (0x20).to_bytes(2, "big") + (1).to_bytes(2, "big") + (1).to_bytes(2, "big")


def _extract(salt: bytes, suite: bytes, label: bytes, secret: bytes) -> bytes:
    return hmac.digest(salt or bytes(32), b"HPKE-v1" + suite + label + secret, hashlib.sha256)


def _expand(key: bytes, suite: bytes, label: bytes, info: bytes, length: int) -> bytes:
    """One block of HKDF is enough for all that is asked here."""
    labelled = length.to_bytes(2, "big") + b"HPKE-v1" + suite + label + info
    return hmac.digest(key, labelled + b"\x01", hashlib.sha256)[:length]


def seal(plaintext: bytes, public_key: bytes, info: bytes, ephemeral: X25519PrivateKey) -> bytes:
    """Encapsulated key and ciphertext."""
    encapsulated = ephemeral.public_key().public_bytes_raw()
    shared = ephemeral.exchange(X25519PublicKey.from_public_bytes(public_key))
    secret = _expand(_extract(b"", _KEM, b"eae_prk", shared), _KEM, b"shared_secret", encapsulated + public_key, 32)
    context = b"\0" + _extract(b"", _SUITE, b"psk_id_hash", b"") + _extract(b"", _SUITE, b"info_hash", info)
    schedule = _extract(secret, _SUITE, b"secret", b"")
    key, nonce = _expand(schedule, _SUITE, b"key", context, 16), _expand(schedule, _SUITE, b"base_nonce", context, 12)
    return encapsulated + AESGCM(key).encrypt(nonce, plaintext, None)
