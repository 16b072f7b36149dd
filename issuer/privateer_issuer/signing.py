"""The issuer's half of blind RSA: the private operation, on whatever it is asked to sign.

`cryptography` has no private operation without padding, so this has its own, on GMP's exponentiation that takes the
same time and touches the same memory for all exponents of a size (`mpz_powm_sec`). A fresh random factor on its input,
unknown to whoever asks, keeps the time of everything else from telling of the key, and what comes out is verified
before anybody sees it: one wrong signature of a CRT computation would give the key away.
"""

import secrets
from typing import Final

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from gmpy2 import gcd, invert, mpz, powmod, powmod_sec

from privateer_core.errors import TokenRequestRefused

_WINDOW: Final = 64
"""Bits of the multiple of p - 1 by which an exponent varies."""


class Signer:
    """Signs blinded messages with one key (RFC 9474, section 4.3).

    Parameters
    ----------
    p, q, e
        The key's primes and public exponent.
    """

    def __init__(self, p: int, q: int, e: int) -> None:
        self._p, self._q, self._e = mpz(p), mpz(q), mpz(e)
        self._n = self._p * self._q
        self._inverse = invert(self._q, self._p)
        self._exponents = tuple((prime, invert(self._e, prime - 1)) for prime in (self._p, self._q))
        self._size = -(-int(self._n).bit_length() // 8)

    @classmethod
    def of(cls, key: RSAPrivateKey) -> "Signer":
        """Return what signs with a key."""
        numbers = key.private_numbers()
        return cls(numbers.p, numbers.q, numbers.public_numbers.e)

    def check(self, blinded: bytes) -> None:
        """Refuse what cannot be signed, at a hundredth of the cost of a signature.

        Raises
        ------
        TokenRequestRefused
            If it is no number below the modulus that has an inverse.
        """
        message = mpz(int.from_bytes(blinded))
        if len(blinded) != self._size or message >= self._n or gcd(message, self._n) != 1:
            raise TokenRequestRefused("not a blinded message for this key", remedy="send what the client library makes")

    def sign(self, blinded: bytes) -> bytes:
        """Sign a blinded message; the same message has the same answer each time. Raises what `check` does."""
        self.check(blinded)
        message = mpz(int.from_bytes(blinded))
        factor = self._factor()
        signed = self._power(message * powmod(factor, self._e, self._n) % self._n) * invert(factor, self._n) % self._n
        if powmod(signed, self._e, self._n) != message:
            raise ArithmeticError("a signature does not verify")
        return int(signed).to_bytes(self._size)

    def _factor(self) -> mpz:
        while True:
            factor = mpz(secrets.randbelow(int(self._n) - 1) + 1)
            if gcd(factor, self._n) == 1:
                return factor

    def _power(self, base: mpz) -> mpz:
        """Return the private power of a number, by the Chinese remainder theorem."""
        of_p, of_q = (
            powmod_sec(base % prime, exponent + (secrets.randbits(_WINDOW) | 1 << _WINDOW) * (prime - 1), prime)
            for prime, exponent in self._exponents
        )
        return of_q + self._q * ((of_p - of_q) * self._inverse % self._p)
