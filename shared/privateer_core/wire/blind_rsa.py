"""Blind RSA signatures, RSABSSA-SHA384-PSS-Deterministic: what everybody may do who has the public key.

The algorithms and their names are those of RFC 9474, and the encoding is that of RFC 8017, section 9.1.1. Whoever has a
message signed draws the blinding, so the signer learns nothing about message and signature. The signer's half is the
issuer's (`privateer_issuer.signing_keys`). Python's whole numbers take time that depends on their values. What is
secret here is drawn anew for each message, and the values that meet it are random.
"""

import hashlib
import math
import secrets
from typing import Final, NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.padding import MGF1, PSS
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.hashes import SHA384

from privateer_core.errors import Malformed

SALT_SIZE: Final = 48
_HASH_SIZE: Final = 48
_TRAILER: Final = b"\xbc"


class Blinded(NamedTuple):
    """A message that is ready to be signed."""

    message: bytes  # what the signer gets
    inverse: bytes  # what takes the blinding off the signer's answer; a secret until then


def blind(key: RSAPublicKey, message: bytes, *, salt: bytes | None = None, inverse: int | None = None) -> Blinded:
    """Blind a message (RFC 9474, section 4.2).

    key, message: the signer's key, and what shall be signed.
    salt, inverse: randomness, drawn from the operating system. Only tests pass some.
    """
    n, e = _numbers(key)
    salt = secrets.token_bytes(SALT_SIZE) if salt is None else salt
    encoded = int.from_bytes(encode_pss(message, salt, n.bit_length() - 1))
    if math.gcd(encoded, n) != 1:
        raise ValueError("the encoded message has a factor of the modulus")  # as likely as guessing the private key
    factor, inverse = _factor(n) if inverse is None else (pow(inverse, -1, n), inverse)
    size = size_of(key)
    return Blinded((encoded * pow(factor, e, n) % n).to_bytes(size), inverse.to_bytes(size))


def _factor(n: int) -> tuple[int, int]:
    """Draw a blinding factor, and return it with its inverse."""
    while True:
        factor = secrets.randbelow(n - 1) + 1
        if math.gcd(factor, n) == 1:
            return factor, pow(factor, -1, n)


def finalize(key: RSAPublicKey, message: bytes, signed: bytes, inverse: bytes) -> bytes:
    """Take the blinding off what the signer answered, and return the signature (RFC 9474, section 4.4)."""
    (n, _), size = _numbers(key), size_of(key)
    if len(signed) == size:
        signature = (int.from_bytes(signed) * int.from_bytes(inverse) % n).to_bytes(size)
        if verifies(key, message, signature):
            return signature
    raise Malformed("the issuer did not sign with the key that it shows everybody", remedy="do not use its tokens")


def verifies(key: RSAPublicKey, message: bytes, signature: bytes) -> bool:
    """Whether a signature is one of the message by this key."""
    try:
        key.verify(signature, message, PSS(MGF1(SHA384()), SALT_SIZE), SHA384())
    except InvalidSignature:
        return False
    return True


def encode_pss(message: bytes, salt: bytes, bits: int) -> bytes:
    """Encode a message in so many bits with EMSA-PSS, SHA-384 and MGF1 (RFC 8017, section 9.1.1)."""
    digest = hashlib.sha384(bytes(8) + hashlib.sha384(message).digest() + salt).digest()
    size = -(-bits // 8) - _HASH_SIZE - 1
    block = bytes(size - len(salt) - 1) + b"\x01" + salt
    masked = int.from_bytes(block) ^ int.from_bytes(_mask(digest, size))
    masked &= (1 << (bits - 8 * (_HASH_SIZE + 1))) - 1
    return masked.to_bytes(size) + digest + _TRAILER


def size_of(key: RSAPublicKey) -> int:
    """Return the bytes of a modulus, of a blinded message, and of a signature."""
    return -(-key.key_size // 8)


def _mask(seed: bytes, size: int) -> bytes:
    """Return MGF1 of a seed."""
    blocks = (hashlib.sha384(seed + count.to_bytes(4)).digest() for count in range(-(-size // _HASH_SIZE)))
    return b"".join(blocks)[:size]


def _numbers(key: RSAPublicKey) -> tuple[int, int]:
    numbers = key.public_numbers()
    return numbers.n, numbers.e
