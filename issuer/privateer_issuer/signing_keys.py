"""The issuer's keys and their rotation: a current key for each experiment, and its predecessor while it is valid.

A key computes the issuer's half of blind RSA: the private operation on blinded messages. `cryptography` has no private
operation without padding, so this module has its own, with GMP's exponentiation in constant time and memory access for
all exponents of a size (`mpz_powm_sec`). A fresh random factor on the input, unknown to the device, hides the key from
the timing of all other operations. The signature is verified before it is returned: a single wrong signature of a CRT
computation would reveal the key.
"""

import logging
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_der_private_key
from gmpy2 import gcd, invert, mpz, powmod, powmod_sec

from privateer_core.clock import Clock
from privateer_core.errors import NotFound, TokenRequestRefused
from privateer_core.serving.logs import log_event
from privateer_core.wire.keys import write_file
from privateer_core.wire.token_keys import EXPONENT, MODULUS_BITS, Directory, TokenKey
from privateer_issuer.store import IssuerStore, KeyRow

_BLIND_BITS: Final = 64
"""Bits of the random multiple of p - 1 that blinds an exponent."""
DAY: Final = 86_400
_log = logging.getLogger("privateer.issuer")


class Signer:
    """Signs blinded messages with a key (RFC 9474, section 4.3).

    p, q, e: the key's primes and public exponent.
    """

    def __init__(self, p: int, q: int, e: int) -> None:
        self._p, self._q, self._e = mpz(p), mpz(q), mpz(e)
        self._n = self._p * self._q
        self._q_inverse = invert(self._q, self._p)
        self._exponents = tuple((prime, invert(self._e, prime - 1)) for prime in (self._p, self._q))
        self._size = -(-int(self._n).bit_length() // 8)

    @classmethod
    def from_private_key(cls, key: RSAPrivateKey) -> "Signer":
        """Return the signer of a key."""
        numbers = key.private_numbers()
        return cls(numbers.p, numbers.q, numbers.public_numbers.e)

    def check(self, blinded: bytes) -> None:
        """Refuse an invalid blinded message, at a hundredth of the cost of a signature."""
        message = mpz(int.from_bytes(blinded))
        if len(blinded) != self._size or message >= self._n or gcd(message, self._n) != 1:
            raise TokenRequestRefused("not a blinded message for this key", remedy="send what the client library makes")

    def sign(self, blinded: bytes) -> bytes:
        """Sign a blinded message; the result is deterministic. Raises the errors of `check`."""
        self.check(blinded)
        message = mpz(int.from_bytes(blinded))
        factor = self._draw_blinding_factor()
        signed = self._power(message * powmod(factor, self._e, self._n) % self._n) * invert(factor, self._n) % self._n
        if powmod(signed, self._e, self._n) != message:
            raise ArithmeticError("a signature does not verify")
        return int(signed).to_bytes(self._size)

    def _draw_blinding_factor(self) -> mpz:
        """Draw a number below the modulus that has an inverse."""
        while True:
            factor = mpz(secrets.randbelow(int(self._n) - 1) + 1)
            if gcd(factor, self._n) == 1:
                return factor

    def _power(self, base: mpz) -> mpz:
        """Return a number to the power of the private exponent, by the Chinese remainder theorem."""
        of_p, of_q = (
            powmod_sec(base % prime, exponent + (secrets.randbits(_BLIND_BITS) | 1 << _BLIND_BITS) * (prime - 1), prime)
            for prime, exponent in self._exponents
        )
        return of_q + self._q * ((of_p - of_q) * self._q_inverse % self._p)


class HeldKey(NamedTuple):
    """A public key with its signer, which is None after its expiry."""

    public: TokenKey
    signer: Signer | None


class KeyRing:
    """The keys of all experiments.

    A key begins at the start of a day, so that its age reveals no hour. After ``days`` it gets a successor, and stays
    valid for as many more days. An expired key is published for as long again without its private half, so that
    verifiers can distinguish expired tokens from forged ones.

    experiments, days: names of the experiments, and the days until a key gets a successor.
    name, public_keys_file: the issuer's name, and the file with the public keys.
    """

    def __init__(
        self, store: IssuerStore, experiments: Sequence[str], days: int, name: str, public_keys_file: Path, clock: Clock
    ) -> None:
        self._store, self._experiments, self._seconds = store, experiments, days * DAY
        self._name, self._public_keys_file, self._clock = name, public_keys_file, clock
        self._keys: dict[str, list[HeldKey]] = {}
        self.directory = b""  # of all public keys
        self.rotate()

    def rotate(self) -> None:
        """Create due keys, erase expired keys and their counts of tokens, and publish the directory."""
        rows, now = self._store.keys(), self._clock.now()
        kept_rows = [
            row._replace(private=b"") if now >= row.not_after else row
            for row in rows
            if now < row.not_after + self._seconds
        ]
        young = {row.experiment for row in kept_rows if now < row.not_before + self._seconds}
        due_experiments = [name for name in self._experiments if name not in young]
        new = kept_rows + [_draw_key(name, now, self._seconds, kept_rows) for name in due_experiments]
        if new != rows:
            self._store.replace_keys(new)
            for name in due_experiments:
                log_event(_log, "key made", experiment=name)
        if new != rows or not self._keys:
            self._keys = {name: [_load_key(row) for row in new if row.experiment == name] for name in self._experiments}
        # Without keys no token of an experiment can be accepted again.
        self._store.delete_counts_except({row.experiment for row in new})
        self._publish_directory()

    def _publish_directory(self) -> None:
        """Write the file of public keys, unless it is the same already."""
        self._public_keys_file.parent.mkdir(parents=True, exist_ok=True)
        public_keys = {name: [key.public for key in keys] for name, keys in self._keys.items()}
        self.directory = Directory.from_keys(self._name, public_keys).encode()
        text = self.directory.decode()
        if not self._public_keys_file.exists() or self._public_keys_file.read_text() != text:
            write_file(self._public_keys_file, text, 0o644)

    @property
    def newest_keys(self) -> dict[str, TokenKey]:
        """The newest key of each experiment, which devices use."""
        return {name: keys[-1].public for name, keys in self._keys.items()}

    def signer(self, experiment: str, last_byte: int) -> Signer:
        """Return the signer of an experiment's valid key whose id ends with ``last_byte``; refuse a request without."""
        if experiment not in self._keys:
            remedy = "check its spelling, or add it to PRIVATEER_EXPERIMENTS"
            raise NotFound("the issuer has no keys for this experiment", field="name", remedy=remedy)
        now = self._clock.now()
        for key in reversed(self._keys[experiment]):
            if key.signer and key.public.id[-1] == last_byte and key.public.is_valid(now):
                return key.signer
        raise TokenRequestRefused("no valid key has such an id", remedy="fetch the keys again, and draw a new token")


def _draw_key(experiment: str, now: float, seconds: int, others: list[KeyRow]) -> KeyRow:
    """Generate a key whose id has a distinct last byte, since requests identify a key by that byte."""
    not_before = int(now) // DAY * DAY
    used_last_bytes = {_public_key(row).id[-1] for row in others if row.experiment == experiment}
    while True:
        private = generate_private_key(EXPONENT, MODULUS_BITS)
        public = TokenKey.from_rsa_key(private.public_key(), not_before, not_before + 2 * seconds)
        if public.id[-1] not in used_last_bytes:
            encoded = private.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
            return KeyRow(experiment, public.not_before, public.not_after, public.encoded, encoded)


def _public_key(row: KeyRow) -> TokenKey:
    return TokenKey(row.public, row.not_before, row.not_after)


def _load_key(row: KeyRow) -> HeldKey:
    private = load_der_private_key(row.private, None) if row.private else None
    return HeldKey(_public_key(row), Signer.from_private_key(private) if isinstance(private, RSAPrivateKey) else None)
