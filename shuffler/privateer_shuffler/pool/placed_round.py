"""A round in a file of its own: each message has a random place there, drawn when it comes."""

import sqlite3
from collections.abc import Callable, Sequence
from typing import ClassVar

from typing_extensions import override

from privateer_core.clock import Clock
from privateer_core.serving.store.database import DatabaseFacts
from privateer_shuffler.pool.round import RoundState, StoredRound
from privateer_shuffler.pool.round_file import RoundStore
from privateer_shuffler.pool.spent_tokens import FiledTokens, RoundTokens
from privateer_shuffler.pool.uploads import Portion, WaitingUpload, decide, portions_of
from privateer_shuffler.shuffle import Groups, RandomBelow


class PlacedRound(StoredRound):
    """A round in a file.

    Reports are written from the event loop, which costs microseconds each; only waiting for the disk happens in a
    thread. There each statement would wait for the loop, which holds the interpreter's lock.

    store: the file. Reports that it holds already count as held.
    spent: the upload tokens that were spent; None: reports come without.
    below: source of randomness of the permutation. Only tests pass one.
    """

    shared: ClassVar[bool] = False

    def __init__(
        self,
        store: RoundStore,
        spent: FiledTokens | None = None,
        below: Callable[[int], int] | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(store.label, RoundState(), clock)
        self._store, self._spent, self._below = store, spent, below or RandomBelow()
        self._lost = False
        self._recover()

    def _recover(self) -> None:
        """Read what the file holds."""
        facts, free, held = self.label.round, list[int](), set[bytes]()
        for place, sealed in self._store.places():
            if sealed is None:
                free.append(place)
            else:
                held.update(self._store.fingerprints([sealed]))
        self._places = Groups(free, facts.batch, facts.messages_of_kind, facts.groups, self._below)
        self._tokens = RoundTokens(self._store, self._spent, self._below) if self._spent else None
        self._held = held
        self.state = self.after(len(held) // facts.messages, RoundState())

    @override
    async def add(self, group: Sequence[WaitingUpload], closed: bool) -> int:
        if self._lost:
            raise sqlite3.OperationalError("what the file holds is not known")
        state = self.state or RoundState()
        hashed = self._spent.hash if self._spent else None
        portions = portions_of(group, self.label.round.sealed_size, self._store.fingerprints, hashed)
        room = 0 if closed or state.ended_at else self._places.room
        taken = decide(portions, room, self._knows if room else self._holds, self._is_spent)
        people = sum(portion.people for portion in taken)
        if people:
            await self._write(taken, people)
            self._held.update(one for portion in taken for one in portion.fingerprints)
            self.state = self.after(state.held + people, state)
        return people

    def _holds(self, fingerprints: Sequence[bytes]) -> bool:
        return not self._held.isdisjoint(fingerprints)

    def _knows(self, fingerprints: Sequence[bytes]) -> bool:
        """Whether any of these messages is held or was delivered before. Another task uses a full round's file."""
        return self._holds(fingerprints) or self._store.has_delivered(fingerprints)

    def _is_spent(self, one: Portion) -> bool:
        return self._spent is not None and self._spent.has(one.token, one.expires)

    async def _write(self, taken: Sequence[Portion], people: int) -> None:
        """Put messages and tokens into places that are drawn for them, or undo it if the disk fails."""
        places = self._places.draw(people)
        messages = (message for portion in taken for message in portion.messages)
        tokens = self._tokens.place(taken) if self._tokens else []
        try:
            self._store.write(zip(messages, places, strict=True))
            if tokens:
                self._store.write_tokens(tokens)
            await self.in_thread(self._store.commit)
        except sqlite3.Error:
            for place in places:  # the messages may come again, and get other places
                self._places.give_back(place)
            if self._tokens:
                self._tokens.take_back(tokens)
            await self._undo()
            raise

    async def _undo(self) -> None:
        try:
            await self.in_thread(self._store.rollback)
        except sqlite3.Error:
            self._lost = True  # only a restart shows what the file holds

    @override
    async def look(self) -> None:
        if self.state:
            self.state = self.after(self.state.held, self.state)
        await self.in_thread(self._store.truncate_log)

    @override
    async def claim(self) -> bool:
        return True

    @override
    def batch(self) -> bytes:
        return self._store.batch()

    @override
    def renew(self) -> None:
        self._keep_tokens()
        self._store.renew()
        self._recover()

    @override
    def erase(self) -> int:
        people = self.state.held if self.state else 0
        self._keep_tokens()
        self._store.erase()
        self._held, self.state = set(), None
        return people

    def _keep_tokens(self) -> None:
        """Keep the round's tokens beyond its end, before anything is erased."""
        if self._tokens:
            self._tokens.keep()

    def examine(self) -> DatabaseFacts:
        """Read the whole file, and return how it is."""
        return self._store.examine()

    @override
    def close(self) -> None:
        self._store.close()
        super().close()
