"""From a round to the next: the server learns from it or gives it up, once, whenever the process dies."""

from privateer.clock import Clock
from privateer_server.data import Data
from privateer_server.earlier import EarlierPolicies
from privateer_server.rounds import OpenRound, following_round, missed_round, record, restore, timed
from privateer_server.store import Change
from privateer_server.store.journal import Entry


class Closer:
    """Ends rounds.

    The key of the next round is on disk before anything names it. The journal has the next round, and in it the noise
    of the release, before the database has it. The key of the closed round is destroyed after that. Whatever fails in
    between, `close` called again goes on from there; if the process dies, `privateer_server.mending` does.

    Attributes
    ----------
    earlier
        The policies published before.
    """

    def __init__(self, data: Data, clock: Clock) -> None:
        self._store, self._journal, self._keys, self._clock = data.store, data.journal, data.keys, clock
        self.earlier = EarlierPolicies(data.store)

    def close(self, current: OpenRound) -> tuple[OpenRound, Change]:
        """Learn from a round that is taken, or give it up; return the next one and the change that the store has.

        Raises
        ------
        Exception
            What keeps the journal or the store from writing, or the learner from learning. Nothing is published then.
        """
        entry = self._entry(current)
        if entry is None:
            entry = self.enter(self._following(current, self._clock.now()), current)
        opened = restore(entry.following, self._keys.find, current.plan.carried_out, current.schedule)
        assert opened is not None, "its key was made for it"
        return timed(opened, self._clock), self.commit(current, entry)

    def _following(self, current: OpenRound, now: float) -> OpenRound:
        if not current.taken:
            return missed_round(current, self._keys.make, now)
        return following_round(current, self._keys.make, now, self.earlier.decided(current, now))

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
        """Publish what is on record as the round after ``closed``, and destroy the closed round's key."""
        facts = closed.round
        change = Change(facts.experiment, facts.version, entry.received, entry.taken, following=entry.following)
        self._store.commit([change])
        self._keys.destroy(facts.public_key)
        return change
