"""Upload tokens that were spent at any replica, kept as hashes with a key that the database does not have."""

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection

from privateer_core.clock import Clock, SystemClock
from privateer_core.errors import PrivateerError, RoundClosed
from privateer_core.serving.store.postgres import ConnectionPool, row, rows, run
from privateer_core.serving.store.store_key import StoreKey
from privateer_core.wire.envelope import pieces
from privateer_shuffler.pool.protocol import Label, PoolReceipt, WaitingUpload, duplicate, waiting
from privateer_shuffler.pool.spent_tokens import GRACE_SECONDS

_HASH_BYTES: Final = 16
_PURPOSE: Final = b"privateer/spent-tokens/1"
_RECENT_MAX: Final = 1 << 17
_SPEND: Final = """
INSERT INTO spent SELECT * FROM unnest(%b::bytea[], %b::bigint[]) ON CONFLICT DO NOTHING RETURNING token
"""
_STATE: Final = "SELECT batch, held, ended_at FROM rounds WHERE id = %s"
_KNOWN: Final = "SELECT fingerprint FROM fingerprints WHERE fingerprint = ANY(%b)"
"""Each round has fingerprints of its own, so that the round needs no naming."""
_BY_INDEX: Final = "SELECT set_config('enable_seqscan', 'off', true)"
"""Until a table is analyzed PostgreSQL takes it for small, and reads all of it: that took 200 times as long."""
_SET: Final = "UPDATE rounds SET batch = %s, held = %s, ended_at = %s WHERE id = %s"


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


@dataclass
class PersonsMessages:
    """One person's messages, and why they are not held, if they are not.

    Attributes
    ----------
    token
        What is kept of the upload token; empty: there is none.
    """

    request: WaitingUpload
    messages: list[bytes]
    fingerprints: list[bytes]
    token: bytes = b""
    refusal: PrivateerError | None = None


def keyed_hash(message: bytes, key: bytes) -> bytes:
    """Return a hash of a message that nobody computes without the key."""
    return hashlib.blake2b(message, digest_size=_HASH_BYTES, key=key).digest()


def people_of(
    group: Sequence[WaitingUpload], size: int, key: bytes, spent: SharedSpent | None
) -> Iterator[PersonsMessages]:
    """Yield the people of requests; ``size`` is that of a message, and ``key`` is for fingerprints."""
    for request in group:
        token = spent.hash(request.admission.nonce) if request.admission and spent else b""
        for report in request.sealed:
            messages = pieces(report, size)
            yield PersonsMessages(request, messages, [keyed_hash(one, key) for one in messages], token)


def decide(people: Sequence[PersonsMessages], known: Collection[bytes], spent: Collection[bytes], room: int) -> None:
    """Refuse duplicates, those for whom there is no room, and those whose tokens were spent, in this order."""
    held, used = set(known), set(spent)
    for person in people:
        if len(set(person.fingerprints)) < len(person.messages) or not held.isdisjoint(person.fingerprints):
            person.refusal = duplicate()
        elif not room:
            person.refusal = waiting()
        elif person.token in used or (person.request.admission and person.request.admission.is_spent):
            refuse_spent(person)  # where this replica has seen it spent, nobody has looked at its signature
        else:
            room -= 1
            held.update(person.fingerprints)
            used |= {person.token} - {b""}


def refuse_spent(person: PersonsMessages) -> None:
    """Refuse a report whose token was spent."""
    assert person.request.admission, "it has a token"
    person.refusal = person.request.admission.spent()


def receipts(group: Sequence[WaitingUpload], people: Sequence[PersonsMessages]) -> list[PoolReceipt]:
    """Return the answer to each request."""
    refusals: list[list[PrivateerError]] = [[] for _ in group]
    places = {id(request): at for at, request in enumerate(group)}
    for person in people:
        if person.refusal:
            refusals[places[id(person.request)]].append(person.refusal)
    return [PoolReceipt.of(len(request.sealed), refusal) for request, refusal in zip(group, refusals, strict=True)]


class RoundState(NamedTuple):
    """How a round is.

    Attributes
    ----------
    batch
        How many batches of it were delivered before this one.
    held
        People whose reports are held.
    ended_at
        When it took its last report, in seconds since 1970; 0: it takes more.
    """

    batch: int
    held: int
    ended_at: float


class SharedRound:
    """A round in the database. All methods wait for it, so they are for threads.

    Parameters
    ----------
    number
        Its row.
    secret
        From which all keys of the round are derived.
    spent
        The upload tokens that were spent; None: reports come without.
    """

    def __init__(
        self, pool: ConnectionPool, number: int, label: Label, secret: bytes, spent: SharedSpent | None
    ) -> None:
        self._pool, self._number, self._spent, self.label = pool, number, spent, label
        self._key = StoreKey(secret)
        self._fingerprint_key = self._key.derived(b"fingerprint")

    def state(self) -> RoundState | None:
        """Return how the round is; None: it is over."""
        with self._pool.connection() as db:
            return _state(row(db, _STATE, self._number))

    def add(self, group: Sequence[WaitingUpload], now: float) -> tuple[list[PoolReceipt], RoundState | None]:
        """Take people's reports in one transaction, which is durable when this returns, or takes nothing."""
        facts = self.label.round
        people = list(people_of(group, facts.sealed_size, self._fingerprint_key, self._spent))
        with self._pool.transaction() as db:
            state = _state(row(db, f"{_STATE} FOR UPDATE", self._number))
            if state is None:
                for person in people:
                    person.refusal = RoundClosed("this version takes no further batch", remedy="nothing to do")
            else:
                state = self._take(db, people, state, now)
        if self._spent:
            self._spent.note([person.token for person in people if person.token and not person.refusal])
        return receipts(group, people), state

    def _take(self, db: Connection, people: list[PersonsMessages], state: RoundState, now: float) -> RoundState:
        asked = [fingerprint for person in people for fingerprint in person.fingerprints]
        run(db, _BY_INDEX)
        known = {one for (one,) in rows(db, _KNOWN, asked)}
        spent = self._spent.known(db, [one.token for one in people if one.token]) if self._spent else set[bytes]()
        decide(people, known, spent, 0 if state.ended_at else self.label.round.batch - state.held)
        if self._spent:
            paying = {one.token: one for one in people if one.token and not one.refusal}
            expiring = {token: one.request.admission.expires for token, one in paying.items() if one.request.admission}
            for token in expiring.keys() - self._spent.spend(db, expiring):
                refuse_spent(paying[token])
        taken = [person for person in people if not person.refusal]
        return self._write(db, taken, state, now) if taken else state

    def _write(self, db: Connection, taken: list[PersonsMessages], state: RoundState, now: float) -> RoundState:
        piece = b"".join(message for person in taken for message in person.messages)
        run(db, "INSERT INTO pieces VALUES (%s, %b)", self._number, self._key.wrapped(piece, self._about(state.batch)))
        fingerprints = sorted(fingerprint for person in taken for fingerprint in person.fingerprints)
        run(db, "INSERT INTO fingerprints SELECT unnest(%b::bytea[]), %s", fingerprints, self._number)
        held = state.held + len(taken)
        after = RoundState(state.batch, held, now if self.label.round.is_due(now, held) else 0.0)
        run(db, _SET, *after, self._number)
        return after

    def end(self, now: float) -> RoundState | None:
        """Take no more reports if the round may close by its deadline. Return how it is; None: it is over."""
        state = self.state()
        if not state or state.ended_at or not self.label.round.is_due(now, state.held):
            return state
        with self._pool.transaction() as db:
            run(db, "UPDATE rounds SET ended_at = %s WHERE id = %s AND ended_at = 0", now, self._number)
        return self.state()

    def batch(self, state: RoundState) -> bytes:
        """Return the messages that are held, permuted within their kind: the same bytes whoever asks.

        Raises
        ------
        OSError
            If the database does not answer; or if somebody has changed it, and it has other people than were taken, or
            fewer than were promised.
        """
        with self._pool.connection() as db:
            found = [sealed for (sealed,) in rows(db, "SELECT piece FROM pieces WHERE round = %s", self._number)]
        facts, order = self.label.round, self._key.derived(b"order" + state.batch.to_bytes(8))
        kinds: list[list[bytes]] = [[] for _ in range(facts.groups)]
        for wrapped in found:
            piece = self._key.unwrapped(wrapped, self._about(state.batch)) or b""
            for index, message in enumerate(pieces(piece, facts.sealed_size)):
                kinds[index // facts.messages_of_kind % len(kinds)].append(message)
        people = len(set().union(*kinds)) / facts.messages
        if people != state.held or people < facts.fewest:
            raise OSError("the database has not the people that were taken")
        return b"".join(message for kind in kinds for message in sorted(kind, key=lambda one: keyed_hash(one, order)))

    def renew(self, batch: int) -> None:
        """Make room for another batch; fingerprints of the delivered one stay. It may be done again."""
        with self._pool.transaction() as db:
            state = _state(row(db, f"{_STATE} FOR UPDATE", self._number))
            if state and state.batch == batch:
                run(db, "DELETE FROM pieces WHERE round = %s", self._number)
                run(db, _SET, batch + 1, 0, 0.0, self._number)
        self._vacuum()

    def erase(self, even_ended: bool) -> int:
        """Erase the round, unless another replica delivers it; of how many people."""
        with self._pool.transaction() as db:
            state = _state(row(db, f"{_STATE} FOR UPDATE", self._number))
            if state is None or (state.ended_at and not even_ended):
                return 0
            run(db, "DELETE FROM rounds WHERE id = %s", self._number)
            run(db, "DELETE FROM pieces WHERE round = %s", self._number)
            run(db, "DELETE FROM fingerprints WHERE round = %s", self._number)
            if self._spent:
                self._spent.clean(db)
        self._vacuum()
        return state.held

    def _vacuum(self) -> None:
        """Have the database let go of deleted rows now, if it can; it does so later in any case."""
        with suppress(OSError), self._pool.connection() as db:
            db.exec_driver_sql("VACUUM (SKIP_LOCKED) rounds, pieces, fingerprints")

    def _about(self, batch: int) -> bytes:
        return self.label.digest + batch.to_bytes(8)


def _state(found: tuple[Any, ...] | None) -> RoundState | None:
    return RoundState(*found) if found else None
