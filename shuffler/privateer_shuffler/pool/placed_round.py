"""A round in a separate file: each message has a random place, drawn on arrival."""

import sqlite3
from collections.abc import Callable, Sequence
from typing import ClassVar

from typing_extensions import override

from privateer_core.clock import Clock
from privateer_core.serving.store.database import DatabaseFacts
from privateer_shuffler.pool.pool import RoundProgress, StoredRound
from privateer_shuffler.pool.round_file import RoundStore
from privateer_shuffler.pool.spent_tokens import FiledTokens, RoundTokens
from privateer_shuffler.pool.uploads import PendingUpload, Portion, build_portions, select_accepted
from privateer_shuffler.shuffle import Groups, RandomBelow


class PlacedRound(StoredRound):
    """A round in a file.

    Reports are written from the event loop, which costs microseconds each; only waiting for the disk happens in a
    thread. There each statement would wait for the loop, which holds the interpreter's lock.

    store: the file. Reports that it holds already count as held.
    spent_tokens: spent upload tokens; None: reports come without tokens.
    below: source of randomness of the permutation, which only tests pass.
    """

    shared: ClassVar[bool] = False

    def __init__(
        self,
        store: RoundStore,
        spent_tokens: FiledTokens | None = None,
        below: Callable[[int], int] | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(store.label, RoundProgress(), clock)
        self._store, self._spent_tokens, self._below = store, spent_tokens, below or RandomBelow()
        self._is_broken = False
        self._read_places()

    def _read_places(self) -> None:
        round_, free, held_fingerprints = self.label.round, list[int](), set[bytes]()
        for place, sealed in self._store.iter_places():
            if sealed is None:
                free.append(place)
            else:
                held_fingerprints.update(self._store.fingerprints([sealed]))
        self._places = Groups(free, round_.batch_size, round_.messages_of_kind, round_.groups, self._below)
        self._tokens = RoundTokens(self._store, self._spent_tokens, self._below) if self._spent_tokens else None
        self._held_fingerprints = held_fingerprints
        self.state = self.advance_progress(len(held_fingerprints) // round_.messages, RoundProgress())

    @override
    async def add(self, group: Sequence[PendingUpload], closed: bool) -> int:
        if self._is_broken:
            raise sqlite3.OperationalError("what the file holds is not known")
        state = self.state or RoundProgress()
        hash_nonce = self._spent_tokens.hash if self._spent_tokens else None
        portions = build_portions(group, self.label.round.sealed_size, self._store.fingerprints, hash_nonce)
        capacity = 0 if closed or state.ended_at else self._places.capacity
        accepted = select_accepted(portions, capacity, self._is_known if capacity else self._is_held, self._is_spent)
        n_participants = sum(portion.n_participants for portion in accepted)
        if n_participants:
            await self._write_portions(accepted, n_participants)
            self._held_fingerprints.update(fingerprint for portion in accepted for fingerprint in portion.fingerprints)
            self.state = self.advance_progress(state.n_held + n_participants, state)
        return n_participants

    def _is_held(self, fingerprints: Sequence[bytes]) -> bool:
        return not self._held_fingerprints.isdisjoint(fingerprints)

    def _is_known(self, fingerprints: Sequence[bytes]) -> bool:
        """Whether any of these messages is held or was delivered. Not for a full round, whose file is in use."""
        return self._is_held(fingerprints) or self._store.has_delivered(fingerprints)

    def _is_spent(self, portion: Portion) -> bool:
        return self._spent_tokens is not None and self._spent_tokens.is_spent(portion.token, portion.expires)

    async def _write_portions(self, accepted: Sequence[Portion], n_participants: int) -> None:
        """Write messages and tokens into random places, or undo this if the disk fails."""
        places = self._places.draw(n_participants)
        messages = (message for portion in accepted for message in portion.messages)
        tokens = self._tokens.spend(accepted) if self._tokens else []
        try:
            self._store.write(zip(messages, places, strict=True))
            if tokens:
                self._store.write_tokens(tokens)
            await self.in_thread(self._store.commit)
        except sqlite3.Error:
            for place in places:  # the messages may come again, and get other places
                self._places.give_back(place)
            if self._tokens:
                self._tokens.undo_spend(tokens)
            try:
                await self.in_thread(self._store.rollback)
            except sqlite3.Error:
                self._is_broken = True  # only a restart reads the state of the file again
            raise

    @override
    async def refresh(self) -> None:
        if self.state:
            self.state = self.advance_progress(self.state.n_held, self.state)
        await self.in_thread(self._store.truncate_log)

    @override
    async def claim_delivery(self) -> bool:
        return True

    @override
    def read_batch(self) -> bytes:
        return self._store.read_batch()

    @override
    def find_closing(self) -> bytes | None:
        return self._store.find_closing()

    @override
    def store_closing(self, body: bytes) -> bytes:
        self._store.store_closing(body)
        return body

    @override
    def start_next_batch(self) -> None:
        self._store_tokens()
        self._store.start_next_batch()
        self._read_places()

    @override
    def erase(self) -> int:
        n_participants = self.state.n_held if self.state else 0
        self._store_tokens()
        self._store.erase()
        self._held_fingerprints, self.state = set(), None
        return n_participants

    def _store_tokens(self) -> None:
        """Move the round's tokens to the file of all rounds, before the round is erased."""
        if self._tokens:
            self._tokens.store()

    def examine(self) -> DatabaseFacts:
        """Read the whole file, and return the facts on its state."""
        return self._store.examine()

    @override
    def close(self) -> None:
        self._store.close()
        super().close()
