"""Closes rounds: the server learns from a round or gives it up, once, whenever the process dies.

At a start it recovers rounds whose closing was interrupted, whose key is lost, or that an old copy brought back.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from privateer_core.clock import Clock
from privateer_core.serving.logs import tell
from privateer_server.data import Data
from privateer_server.rounds.late_reports import EarlierPolicies
from privateer_server.rounds.open_round import (
    OpenRound,
    beyond,
    following_round,
    missed_round,
    record,
    restore,
    restore_lost,
    timed,
    with_sums,
)
from privateer_server.store.records import Behind, ExperimentRecord, JournalEntry, RoundRecord, RoundUpdate

_log = logging.getLogger("privateer.server")


class Closed(NamedTuple):
    """The outcome of a round."""

    opened: OpenRound  # the next round
    received: int  # people whose reports the closed one had
    change: RoundUpdate  # what the store has done


class Closer:
    """Ends rounds that take no more reports.

    One server at a time does that, which has the lease of the experiment. The key of the next round is on disk before
    anything names it. The journal has the next round, and in it the noise of the release, before the database has it;
    of two releases it takes the first, and nobody ever sees the other. The key of the closed round is destroyed after
    that. Whatever fails in between, `close` called again goes on from there, here or at another server; if the process
    dies, `Recovery` does.
    """

    def __init__(self, data: Data, clock: Clock) -> None:
        self._store, self._journal, self._keys, self._clock = data.store, data.journal, data.keys, clock
        self.earlier = EarlierPolicies(data.store)  # the policies published before

    def close(self, current: OpenRound) -> Closed | None:
        """Learn from a round that is taken, or give it up, and publish the next one.

        Returns
        -------
        None if another server closes the round, or has closed it.
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

        last: what the journal had when that was decided.

        Returns
        -------
        What is on record: another server may have been first.
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


class Recovery:
    """Brings the database to where every open round may go on.

    The journal knows the last publication of every experiment. If it has the round that follows the database's, the
    process died before the database had it, and it is published now, with the noise that was drawn then. If it knows
    neither, the database is an earlier copy: the round may have been released, so it is given up, and the experiment
    goes on with a version above all that may have been published. A round is given up as well if its shuffler heard
    that it takes no further batch, and the database does not know that: the batch is gone. Nothing is ever released of
    a round given up.
    """

    def __init__(self, data: Data, closer: Closer, clock: Clock) -> None:
        self._store, self._journal, self._keys = data.store, data.journal, data.keys
        self._closer, self._clock = closer, clock
        self.recovered = Counter(published=0, given_up=0)  # how many rounds were ``published`` and ``given_up``

    def recover(self, name: str) -> None:
        """See that the experiment's last round is open for good reason, or over."""
        entry, stored = self._read(name)
        if stored is None:
            return
        last, plan, sums = stored.current, stored.standing.plan, [stored.current.total, *stored.parts]
        reason = reason_to_give_up(last, entry)
        if entry and entry.closed == last.digest:
            self._closer.commit(restore_lost(last), entry)
            self.recovered["published"] += 1
            last, plan, sums = entry.following, plan.carried_out, [entry.following.total]
        if not reason and last.batch and not self._is_whole(last, sums):
            if self._journal.last(name) != entry:  # another server has closed the round since, and destroyed its key
                self.recover(name)
                return
            reason = "its key or its sums are lost"
        # Where nobody is asked now, rounds may follow that were published before.
        ahead = bool(plan.hold) or (entry is not None and entry.following.version > last.version)
        if reason and (last.batch or ahead):
            _log.warning("experiment %s: round %d is given up, because %s", name, last.version, reason)
            self._give_up(restore_lost(last, plan), entry)
            self.recovered["given_up"] += 1
        elif reason and entry:
            # Nobody was asked, so nothing can be released twice; what an operator wants next follows this round.
            self._journal.write(JournalEntry(name, b"", 0, False, last), entry)

    def _read(self, name: str) -> tuple[JournalEntry | None, ExperimentRecord | None]:
        """Return what journal and store had at the same moment: another server may just close a round."""
        while True:
            entry, stored = self._journal.last(name), self._store.experiment(name)
            if self._journal.last(name) == entry:
                return entry, stored

    def _is_whole(self, last: RoundRecord, sums: Sequence[bytes]) -> bool:
        blank = restore_lost(last)
        return with_sums(blank, sums, self._keys.find(blank.round.public_key)) is not None

    def _give_up(self, lost: OpenRound, entry: JournalEntry | None) -> None:
        version = beyond(max(lost.round.version, entry.following.version if entry else 0))
        following = missed_round(lost, self._keys.make, self._clock.now(), version, again=True)
        self._closer.commit(lost, self._closer.enter(following, entry, lost))


def reason_to_give_up(last: RoundRecord, entry: JournalEntry | None) -> str:
    """Say why no round of this database may go on; nothing if it is the one that the journal was written with."""
    if entry is None:
        return "the journal does not know the experiment"
    is_current = entry.following.digest == last.digest
    # Its shuffler has erased the reports, and gives no other batch for it.
    if is_current and entry.shut and not (last.taken or last.given_up):
        return "an earlier copy of the database was put back, which has no longer the round's last batch"
    # What a round had counted is in the database before the journal says that it has closed.
    is_closing = (entry.closed, entry.received, entry.taken) == (last.digest, last.received, last.taken)
    return "" if is_current or is_closing else "an earlier copy of the database was put back"
