"""The issuer's keys: for each experiment one that signs, its predecessor as long as it is valid, and their turns.

A key signs by the issuer's half of blind RSA: the private operation, on whatever it is asked to sign. `cryptography`
has no private operation without padding, so this has its own, on GMP's exponentiation that takes the same time and
touches the same memory for all exponents of a size (`mpz_powm_sec`). A fresh random factor on its input, unknown to
whoever asks, keeps the time of everything else from telling of the key, and what comes out is verified before anybody
sees it: one wrong signature of a CRT computation would give the key away.
"""

import logging
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_der_private_key,
)
from gmpy2 import gcd, invert, mpz, powmod, powmod_sec

from privateer_core.clock import Clock
from privateer_core.errors import NotFound, TokenRequestRefused
from privateer_core.serving.logs import tell
from privateer_core.wire.keys import write_file
from privateer_core.wire.token_keys import BITS, EXPONENT, Directory, TokenKey
from privateer_issuer.store import IssuerStore, KeyRow

_WINDOW: Final = 64
"""Bits of the multiple of p - 1 by which an exponent varies."""
DAY: Final = 86_400
_log = logging.getLogger("privateer.issuer")


class Signer:
    """Signs blinded messages with one key (RFC 9474, section 4.3).

    p, q, e: the key's primes and public exponent.
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
        """Refuse what cannot be signed, at a hundredth of the cost of a signature."""
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


class OwnKey(NamedTuple):
    """A key, and what signs with it; None once it has expired."""

    public: TokenKey
    signer: Signer | None


class IssuerKeys:
    """The keys of all experiments.

    A key begins with its day, so that its age tells nothing of an hour. After its days it gets a successor, and stays
    valid for as many more. An expired key is shown for as long again without its private half, so that whoever checks
    tokens can tell old ones from forged ones.

    experiments, days: names of the experiments, and the days of a key.
    name, shown: the issuer's name, and the file that shows the public keys.
    """

    def __init__(
        self, store: IssuerStore, experiments: Sequence[str], days: int, name: str, shown: Path, clock: Clock
    ) -> None:
        self._store, self._experiments, self._seconds = store, experiments, days * DAY
        self._name, self._shown, self._clock = name, shown, clock
        self._keys: dict[str, list[OwnKey]] = {}
        self.rotate()

    def rotate(self) -> None:
        """Make the keys that are due, erase expired ones with who had their tokens, and show what there is."""
        rows, now = self._store.keys(), self._clock.now()
        kept = [_without_private(row, now) for row in rows if now < row.not_after + self._seconds]
        due = [name for name in self._experiments if not self._has_young(kept, name, now)]
        after = kept + [_drawn(name, now, self._seconds, kept) for name in due]
        if after != rows:
            self._store.replace_keys(after)
            for name in due:
                tell(_log, "key made", experiment=name)
        if after != rows or not self._keys:
            self._keys = {name: [_own(row) for row in after if row.experiment == name] for name in self._experiments}
        # Once an experiment has no keys, none of its tokens can ever count again.
        self._store.forget_shares({row.experiment for row in after})
        self._show()

    def _has_young(self, rows: list[KeyRow], name: str, now: float) -> bool:
        return any(row.experiment == name and now < row.not_before + self._seconds for row in rows)

    def _show(self) -> None:
        self._shown.parent.mkdir(parents=True, exist_ok=True)
        text = self.directory.encode().decode()
        if not self._shown.exists() or self._shown.read_text() != text:
            write_file(self._shown, text, 0o644)

    @property
    def directory(self) -> Directory:
        """The directory of public keys that everybody may see."""
        return Directory.of(self._name, {name: [key.public for key in keys] for name, keys in self._keys.items()})

    @property
    def newest(self) -> dict[str, TokenKey]:
        """The key of each experiment that devices ask for now."""
        return {name: keys[-1].public for name, keys in self._keys.items()}

    def signer(self, experiment: str, last_byte: int) -> Signer:
        """Return what signs for an experiment with the valid key whose id ends so."""
        if experiment not in self._keys:
            remedy = "check its spelling, or add it to PRIVATEER_EXPERIMENTS"
            raise NotFound("the issuer has no keys for this experiment", field="name", remedy=remedy)
        now = self._clock.now()
        for key in reversed(self._keys[experiment]):
            if key.signer and key.public.id[-1] == last_byte and key.public.is_valid(now):
                return key.signer
        raise TokenRequestRefused("no valid key has such an id", remedy="fetch the keys again, and draw a new token")


def _without_private(row: KeyRow, now: float) -> KeyRow:
    return row._replace(private=b"") if now >= row.not_after else row


def _drawn(experiment: str, now: float, seconds: int, others: list[KeyRow]) -> KeyRow:
    """Make a key whose id ends otherwise than those that are valid beside it: requests name its last byte alone."""
    begins = int(now) // DAY * DAY
    taken = {_public(row).id[-1] for row in others if row.experiment == experiment}
    while True:
        private = generate_private_key(EXPONENT, BITS)
        public = TokenKey.of(private.public_key(), begins, begins + 2 * seconds)
        if public.id[-1] not in taken:
            encoded = private.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
            return KeyRow(experiment, public.not_before, public.not_after, public.encoded, encoded)


def _public(row: KeyRow) -> TokenKey:
    return TokenKey(row.public, row.not_before, row.not_after)


def _own(row: KeyRow) -> OwnKey:
    private = load_der_private_key(row.private, None) if row.private else None
    return OwnKey(_public(row), Signer.of(private) if isinstance(private, RSAPrivateKey) else None)
