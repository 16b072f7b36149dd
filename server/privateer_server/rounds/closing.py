"""Closes rounds: the server learns from a round or gives it up, once, whenever the process dies."""

import logging
from dataclasses import replace
from typing import NamedTuple

from privateer_core.clock import Clock
from privateer_core.serving.logs import tell
from privateer_server.data import Data
from privateer_server.rounds.late_reports import EarlierPolicies
from privateer_server.rounds.open_round import (
    OpenRound,
    following_round,
    missed_round,
    record,
    restore,
    timed,
    with_sums,
)
from privateer_server.store.records import Behind, JournalEntry, RoundUpdate

_log = logging.getLogger("privateer.server")


class Closed(NamedTuple):
    """The outcome of a round.

    Attributes
    ----------
    opened
        The next round.
    received
        People whose reports the closed one had.
    change
        What the store has done.
    """

    opened: OpenRound
    received: int
    change: RoundUpdate


class Closer:
    """Ends rounds that take no more reports.

    One server at a time does that, which has the lease of the experiment. The key of the next round is on disk before
    anything names it. The journal has the next round, and in it the noise of the release, before the database has it;
    of two releases it takes the first, and nobody ever sees the other. The key of the closed round is destroyed after
    that. Whatever fails in between, `close` called again goes on from there, here or at another server; if the process
    dies, `privateer_server.rounds.recovery` does.

    Attributes
    ----------
    earlier
        The policies published before.
    """

    def __init__(self, data: Data, clock: Clock) -> None:
        self._store, self._journal, self._keys, self._clock = data.store, data.journal, data.keys, clock
        self.earlier = EarlierPolicies(data.store)

    def close(self, current: OpenRound) -> Closed | None:
        """Learn from a round that is taken, or give it up, and publish the next one.

        Returns
        -------
        None if another server closes the round, or has closed it.

        Raises
        ------
        Exception
            What keeps the journal or the store from writing, or the learner from learning. Nothing is published then.
        """
        with self._store.lease(current.round.experiment) as has_lease:
            ended = self._ended(current) if has_lease else None
            if ended is None:
                return None
            entry = self._on_record(ended)
            opened = restore(entry.following, self._keys.find, ended.plan.carried_out, ended.schedule)
            assert opened is not None, "its key was made for it"
            change = self.commit(ended, entry)
        name, version = ended.round.experiment, ended.round.version
        if entry.taken:  # from now on everybody may read how many have reported
            tell(_log, "round closed", experiment=name, round=version, reports=entry.received)
        else:
            tell(_log, "round given up", experiment=name, round=version)
        return Closed(timed(opened, self._clock), entry.received, change)

    def _on_record(self, ended: OpenRound) -> JournalEntry:
        """Return the entry of the round's end; it is drawn and written now, if there is none."""
        # Read before anything is drawn: what another server writes meanwhile stands.
        last = self._journal.last(ended.round.experiment)
        if last and last.closed == ended.digest:
            return last
        if last and last.following.digest != ended.digest:
            raise Behind("the journal has another round as the last one")
        return self.enter(self._following(ended, self._clock.now()), last, ended)

    def _ended(self, current: OpenRound) -> OpenRound | None:
        """Return the round with the reports of all servers; None if it is closed already, or is not to be closed."""
        name, facts = current.round.experiment, current.round
        standing = self._store.standing(name)
        if standing is None or standing.digest != current.digest or not (standing.taken or standing.given_up):
            return None
        ended = with_sums(current, self._store.sums(name, facts.version), self._keys.find(facts.public_key))
        if ended is None:
            raise Behind("the key or the sums of the round are lost: restart the server")
        return replace(ended.at(standing), plan=standing.plan)

    def _following(self, current: OpenRound, now: float) -> OpenRound:
        if not current.taken:
            return missed_round(current, self._keys.make, now)
        return following_round(current, self._keys.make, now, self.earlier.decided(current, now))

    def enter(self, following: OpenRound, last: JournalEntry | None, closed: OpenRound | None = None) -> JournalEntry:
        """Put on record what is about to be published: the round after ``closed``, or the first of an experiment.

        Parameters
        ----------
        last
            What the journal had when that was decided.

        Returns
        -------
        What is on record: another server may have been first.

        Raises
        ------
        Behind
            If another server has put on record what comes after something else.
        """
        public_key, name = following.round.public_key, following.round.experiment
        stored = record(following, self._keys.find(public_key))
        ended = (closed.digest, closed.received, closed.taken) if closed else (b"", 0, False)
        own = JournalEntry(name, *ended, stored)
        try:
            entry = self._journal.write(own, last)
        except BaseException:
            self._keys.destroy(public_key)
            raise
        if entry.following.digest != stored.digest:
            self._keys.destroy(public_key)
            if closed is None or entry.closed != closed.digest:
                raise Behind("another server was first")
        return entry

    def commit(self, closed: OpenRound, entry: JournalEntry) -> RoundUpdate:
        """Publish what is on record as the round after ``closed``, and destroy the closed round's key."""
        facts = closed.round
        change = RoundUpdate(facts.experiment, facts.version, taken=entry.taken, following=entry.following)
        self._store.commit([change])
        self._keys.destroy(facts.public_key)
        return change
