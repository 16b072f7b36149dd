"""Upload tokens that were spent at any replica, kept as hashes with a key that the database does not have."""

import hashlib
from collections.abc import Collection, Mapping
from typing import Final

from privateer_core.clock import Clock, SystemClock
from privateer_core.serving.postgres.pool import Connection, rows, run
from privateer_core.serving.postgres.store_key import StoreKey
from privateer_shuffler.spent import GRACE_SECONDS

_HASH_BYTES: Final = 16
_PURPOSE: Final = b"privateer/spent-tokens/1"
_RECENT_MAX: Final = 1 << 17
_SPEND: Final = """
INSERT INTO spent SELECT * FROM unnest(%b::bytea[], %b::bigint[]) ON CONFLICT DO NOTHING RETURNING token
"""


class SharedSpent:
    """Tokens in the table ``spent``, in the transactions of the reports that they come with."""

    def __init__(self, store_key: StoreKey, clock: Clock | None = None) -> None:
        self._key, self._clock = store_key.derived(_PURPOSE), clock or SystemClock()
        self._recent: set[bytes] = set()

    def knows(self, nonce: bytes) -> bool:
        """Whether this replica has met a token that was spent: a flood of one costs the database nothing."""
        return self.hash(nonce) in self._recent

    def hash(self, nonce: bytes) -> bytes:
        """Return what is kept of a nonce."""
        return hashlib.blake2b(nonce, digest_size=_HASH_BYTES, key=self._key).digest()

    def known(self, db: Connection, tokens: Collection[bytes]) -> set[bytes]:
        """Return those of these tokens that were spent."""
        if not tokens:
            return set()
        return {token for (token,) in rows(db, "SELECT token FROM spent WHERE token = ANY(%b)", list(tokens))}

    def spend(self, db: Connection, tokens: Mapping[bytes, int]) -> set[bytes]:
        """Spend tokens, which expire at these times; return those that nobody else has spent meanwhile."""
        if not tokens:
            return set()
        ordered = sorted(tokens)  # so that two replicas do not wait for each other
        return {token for (token,) in rows(db, _SPEND, ordered, [tokens[token] for token in ordered])}

    def note(self, tokens: Collection[bytes]) -> None:
        """Remember that tokens are spent, once the database has it."""
        if len(self._recent) + len(tokens) > _RECENT_MAX:
            self._recent.clear()
        self._recent.update(tokens)

    def clean(self, db: Connection) -> None:
        """Forget tokens whose key has expired more than a day ago."""
        run(db, "DELETE FROM spent WHERE expires <= %s", int(self._clock.now() - GRACE_SECONDS))
