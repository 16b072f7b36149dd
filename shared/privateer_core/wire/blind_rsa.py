"""Blind RSA signatures, RSABSSA-SHA384-PSS-Deterministic: the operations of the client and the verifier.

Algorithms and names are from RFC 9474, and the encoding is from RFC 8017, section 9.1.1. The client draws the blinding,
so the signer learns nothing about message and signature. The signer's operations are the issuer's
(`privateer_issuer.signing_keys`). The time of Python's integer arithmetic depends on the values. The secrets here are
drawn anew for each message, and are only combined with random values.
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


class BlindedMessage(NamedTuple):
    """A blinded message, and the inverse of its blinding factor."""

    message: bytes  # sent to the signer
    inverse: bytes  # unblinds the signer's answer; a secret until then


def blind(
    key: RSAPublicKey, message: bytes, *, salt: bytes | None = None, inverse: int | None = None
) -> BlindedMessage:
    """Blind a message (RFC 9474, section 4.2).

    salt, inverse: randomness, by default drawn from the operating system. Only tests pass these.
    """
    numbers = key.public_numbers()
    n, e = numbers.n, numbers.e
    salt = secrets.token_bytes(SALT_SIZE) if salt is None else salt
    encoded = int.from_bytes(encode_pss(message, salt, n.bit_length() - 1))
    if math.gcd(encoded, n) != 1:
        raise ValueError("the encoded message has a factor of the modulus")  # as likely as guessing the private key
    factor, inverse = _draw_blinding_factor(n) if inverse is None else (pow(inverse, -1, n), inverse)
    size = modulus_size(key)
    return BlindedMessage((encoded * pow(factor, e, n) % n).to_bytes(size), inverse.to_bytes(size))


def _draw_blinding_factor(n: int) -> tuple[int, int]:
    """Draw a blinding factor, and return it with its inverse."""
    while True:
        factor = secrets.randbelow(n - 1) + 1
        if math.gcd(factor, n) == 1:
            return factor, pow(factor, -1, n)


def finalize(key: RSAPublicKey, message: bytes, blind_signature: bytes, inverse: bytes) -> bytes:
    """Return the signature unblinded from the signer's answer, and refuse one that does not verify (section 4.4)."""
    n, size = key.public_numbers().n, modulus_size(key)
    if len(blind_signature) == size:
        signature = (int.from_bytes(blind_signature) * int.from_bytes(inverse) % n).to_bytes(size)
        if is_valid_signature(key, message, signature):
            return signature
    raise Malformed("the issuer did not sign with the key that it shows everybody", remedy="do not use its tokens")


def is_valid_signature(key: RSAPublicKey, message: bytes, signature: bytes) -> bool:
    """Whether a signature of the message verifies under this key."""
    try:
        key.verify(signature, message, PSS(MGF1(SHA384()), SALT_SIZE), SHA384())
    except InvalidSignature:
        return False
    return True


def encode_pss(message: bytes, salt: bytes, n_bits: int) -> bytes:
    """Encode a message in ``n_bits`` bits with EMSA-PSS, SHA-384 and MGF1 (RFC 8017, section 9.1.1)."""
    digest = hashlib.sha384(bytes(8) + hashlib.sha384(message).digest() + salt).digest()
    size = -(-n_bits // 8) - _HASH_SIZE - 1
    block = bytes(size - len(salt) - 1) + b"\x01" + salt
    masked = int.from_bytes(block) ^ int.from_bytes(_mgf1(digest, size))
    masked &= (1 << (n_bits - 8 * (_HASH_SIZE + 1))) - 1
    return masked.to_bytes(size) + digest + _TRAILER


def modulus_size(key: RSAPublicKey) -> int:
    """Return the size in bytes of the modulus, which is also that of a blinded message and of a signature."""
    return -(-key.key_size // 8)


def _mgf1(seed: bytes, size: int) -> bytes:
    """Return ``size`` bytes of MGF1 of a seed."""
    blocks = (hashlib.sha384(seed + count.to_bytes(4)).digest() for count in range(-(-size // _HASH_SIZE)))
    return b"".join(blocks)[:size]
