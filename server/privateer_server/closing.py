"""From a round to the next: learned from or given up, once, whenever the process dies."""

from privateer.clock import Clock
from privateer_server.round_keys import RoundKeys
from privateer_server.rounds import OpenRound, following_round, record, restore, round_after_none, timed
from privateer_server.store import Change, Store
from privateer_server.store.journal import Entry, Journal


class Closer:
    """Ends rounds.

    The key of the next round is on disk before anything names it. The journal has the next round, and in it the noise
    of the release, before the database has it. The key of the closed round is destroyed after that. Whatever fails in
    between, `close` called again goes on from there; if the process dies, `privateer_server.mending` does.
    """

    def __init__(self, store: Store, journal: Journal, keys: RoundKeys, clock: Clock) -> None:
        self._store, self._journal, self._keys, self._clock = store, journal, keys, clock

    def close(self, current: OpenRound) -> tuple[OpenRound, Change]:
        """The round after one that is taken, or is given up if it is not; and what the store was told.

        Raises
        ------
        Exception
            What keeps the journal or the store from writing, or the learner from learning. Nothing is published then.
        """
        entry = self._entry(current)
        if entry is None:
            following = following_round if current.taken else round_after_none
            entry = self.enter(following(current, self._keys.make, self._clock.now()), current)
        opened = self.opened(current, entry)
        return opened, self.commit(current, entry)

    def is_on_record(self, current: OpenRound) -> bool:
        """Whether the journal has the round's end, so that nothing can be added to it any more."""
        return self._entry(current) is not None

    def _entry(self, current: OpenRound) -> Entry | None:
        entry = self._journal.last(current.round.experiment)
        return entry if entry and entry.closed == current.digest else None

    def enter(self, following: OpenRound, closed: OpenRound | None = None) -> Entry:
        """Put on record what is about to be published: the round after ``closed``, or the first of an experiment."""
        public_key = following.round.public_key
        stored = record(following, self._keys.find(public_key))
        ended = (closed.digest, closed.received, closed.taken) if closed else (b"", 0, False)
        entry = Entry(following.round.experiment, *ended, stored)
        try:
            self._journal.write(entry)
        except BaseException:
            self._keys.destroy(public_key)
            raise
        return entry

    def commit(self, closed: OpenRound, entry: Entry) -> Change:
        """Publish what is on record as the round after ``closed``, whose key is then destroyed."""
        facts = closed.round
        change = Change(facts.experiment, facts.version, entry.received, entry.taken, following=entry.following)
        self._store.commit([change])
        self._keys.destroy(facts.public_key)
        return change

    def opened(self, closed: OpenRound, entry: Entry) -> OpenRound:
        """The round on record, with its deadline in this process's time."""
        following = restore(closed.spec, entry.following, self._keys.find)
        assert following is not None, "its key was made for it"
        return timed(following, self._clock)
