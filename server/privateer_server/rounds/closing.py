"""Closing of rounds: the server learns from a round, or gives it up, exactly once, and publishes the next round.

At a start it recovers rounds whose closing was interrupted, whose key is lost, or that an old copy brought back.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from privateer_core.clock import Clock
from privateer_core.serving.logs import log_event
from privateer_server.data import Data
from privateer_server.rounds.earlier_policies import EarlierPolicies
from privateer_server.rounds.open_round import (
    OpenRound,
    add_stored_sums,
    build_round_record,
    first_unused_version,
    open_following_round,
    open_round_after_miss,
    restore_round,
    restore_without_sums,
    with_deadlines,
)
from privateer_server.rounds.states import RoundState
from privateer_server.store.records import ExperimentRecord, JournalEntry, OutdatedState, RoundRecord, RoundUpdate

_log = logging.getLogger("privateer.server")


class ClosedRound(NamedTuple):
    """The result of closing a round."""

    next_round: OpenRound  # the next round
    received: int  # participants whose reports the closed round had
    change: RoundUpdate  # the change that the store has applied


class RoundCloser:
    """Closes rounds that take no more reports: learns from each round, and publishes the next.

    Only the server with the lease of the experiment does that. The key of the next round is on disk before a record
    names it. The journal has the next round, and in it the noise of the release, before the database has it; of two
    releases it takes the first, and the other is never published. The key of the closed round is destroyed after that.
    After a failure at any step another call of `close_round` continues from there, here or at another server;
    after a death of the process `Recovery` continues.
    """

    def __init__(self, data: Data, clock: Clock) -> None:
        self._store, self._journal, self._keys, self._clock = data.store, data.journal, data.keys, clock
        self.earlier_policies = EarlierPolicies(data.store)  # the policies published before

    def close_round(self, current: OpenRound) -> ClosedRound | None:
        """Close a round: learn from it or give it up, and publish the next; None if another server does that."""
        with self._store.lease(current.round.experiment) as has_lease:
            ended = self._read_ended_round(current) if has_lease else None
            if ended is None:
                return None
            entry = self._read_or_write_entry(ended)
            plan = ended.plan.after_publication
            next_round = restore_round(entry.following, self._keys.find_decryptor, plan, ended.schedule)
            assert next_round is not None, "its key was made for it"
            change = self.commit(ended, entry)
        name, version = ended.round.experiment, ended.round.version
        if entry.taken:  # from now on the number of reports is public
            log_event(_log, "round closed", experiment=name, round=version, reports=entry.received)
        else:
            log_event(_log, "round given up", experiment=name, round=version)
        return ClosedRound(with_deadlines(next_round, self._clock), entry.received, change)

    def _read_or_write_entry(self, ended: OpenRound) -> JournalEntry:
        """Return the journal's entry of a round's end; without an entry, create the next round and write it."""
        # The journal is read before noise is drawn: an entry that another server writes meanwhile has precedence.
        last = self._journal.last_entry(ended.round.experiment)
        if last and last.closed == ended.digest:
            return last
        if last and last.following.digest != ended.digest:
            raise OutdatedState("the journal has another round as the last one")
        return self.record_publication(self._create_next_round(ended, self._clock.now()), last, ended)

    def _read_ended_round(self, current: OpenRound) -> OpenRound | None:
        """Return the round with the reports of all servers; None if it is open, or another round is the last."""
        name, facts = current.round.experiment, current.round
        stored_state = self._store.experiment_state(name)
        if stored_state is None or stored_state.digest != current.digest or stored_state.state is RoundState.OPEN:
            return None
        decryptor = self._keys.find_decryptor(facts.public_key)
        ended = add_stored_sums(current, self._store.sums(name, facts.version), decryptor)
        if ended is None:
            raise OutdatedState("the key or the sums of the round are lost: restart the server")
        return replace(ended.with_counts(stored_state), plan=stored_state.plan)

    def _create_next_round(self, current: OpenRound, now: float) -> OpenRound:
        """Create the next round, after a miss if this round was given up."""
        if current.state is RoundState.GIVEN_UP:
            return open_round_after_miss(current, self._keys.create_key, now)
        decisions = self.earlier_policies.find_decisions(current, now)
        return open_following_round(current, self._keys.create_key, now, decisions)

    def record_publication(
        self, following: OpenRound, last: JournalEntry | None, closed: OpenRound | None = None
    ) -> JournalEntry:
        """Record the next publication in the journal: the round after ``closed``, or the first of an experiment.

        ``last`` is the journal's entry before. Return the recorded entry, which another server may have written; the
        key of a round that is not recorded is destroyed.
        """
        public_key, name = following.round.public_key, following.round.experiment
        stored = build_round_record(following, self._keys.find_decryptor(public_key))
        ended_facts = (closed.digest, closed.received, closed.state is RoundState.CLOSED) if closed else (b"", 0, False)
        new_entry = JournalEntry(name, *ended_facts, stored)
        try:
            entry = self._journal.record_publication(new_entry, last)
        except BaseException:
            self._keys.destroy(public_key)
            raise
        if entry.following.digest != stored.digest:
            self._keys.destroy(public_key)
            if closed is None or entry.closed != closed.digest:
                raise OutdatedState("another server was first")
        return entry

    def commit(self, closed: OpenRound, entry: JournalEntry) -> RoundUpdate:
        """Store the recorded round after ``closed``, and destroy the closed round's key."""
        facts = closed.round
        state = RoundState.CLOSED if entry.taken else RoundState.GIVEN_UP
        change = RoundUpdate(facts.experiment, facts.version, state=state, following=entry.following)
        self._store.commit([change])
        self._keys.destroy(facts.public_key)
        return change


class Recovery:
    """The recovery of open rounds at a start.

    The journal has the last publication of every experiment. If it has the round that follows the database's, the
    process died before the database had it, and it is published now, with the noise that was drawn then. If it has
    neither, the database is an earlier copy: the round may have been released, so it is given up, and the experiment
    continues with a version above all that may have been published. A round is also given up if its shuffler was told
    that it takes no further batch, and the database does not have that: the batch is lost. No sums are ever released
    from a round given up.
    """

    def __init__(self, data: Data, closer: RoundCloser, clock: Clock) -> None:
        self._store, self._journal, self._keys = data.store, data.journal, data.keys
        self._closer, self._clock = closer, clock
        self.recovered = Counter(published=0, given_up=0)  # numbers of rounds ``published`` and ``given_up``

    def recover(self, name: str) -> None:
        """Publish an experiment's recorded next round, give up a lost round, or leave a valid round open."""
        entry, record = self._read(name)
        if record is None:
            return
        last, plan, sums = record.current, record.state.plan, [record.current.total, *record.parts]
        reason = give_up_reason(last, entry)
        if entry and entry.closed == last.digest:
            self._closer.commit(restore_without_sums(last), entry)
            self.recovered["published"] += 1
            last, plan, sums = entry.following, plan.after_publication, [entry.following.total]
        if not reason and last.batch_size and not self._is_whole(last, sums):
            # Another server may have closed the round since, and destroyed its key.
            if self._journal.last_entry(name) != entry:
                self.recover(name)
                return
            reason = "its key or its sums are lost"
        # If no participants are invited now, later rounds may have been published before.
        has_later_rounds = bool(plan.hold) or (entry is not None and entry.following.version > last.version)
        if reason and (last.batch_size or has_later_rounds):
            _log.warning("experiment %s: round %d is given up, because %s", name, last.version, reason)
            lost_round = restore_without_sums(last, plan)
            version = first_unused_version(max(last.version, entry.following.version if entry else 0))
            now = self._clock.now()
            next_round = open_round_after_miss(lost_round, self._keys.create_key, now, version, is_repeated=True)
            self._closer.commit(lost_round, self._closer.record_publication(next_round, entry, lost_round))
            self.recovered["given_up"] += 1
        elif reason and entry:
            # The round had no participants, so no sums can be released twice; the operator's plan follows this round.
            self._journal.record_publication(JournalEntry(name, b"", 0, False, last), entry)

    def _read(self, name: str) -> tuple[JournalEntry | None, ExperimentRecord | None]:
        while True:
            entry, record = self._journal.last_entry(name), self._store.experiment(name)
            if self._journal.last_entry(name) == entry:
                return entry, record

    def _is_whole(self, last: RoundRecord, sums: Sequence[bytes]) -> bool:
        blank = restore_without_sums(last)
        return add_stored_sums(blank, sums, self._keys.find_decryptor(blank.round.public_key)) is not None


def give_up_reason(last: RoundRecord, entry: JournalEntry | None) -> str:
    """Return the reason to give up the round of an earlier database copy; empty if it agrees with the journal."""
    if entry is None:
        return "the journal does not know the experiment"
    is_current = entry.following.digest == last.digest
    # The shuffler has erased the reports, and sends no other batch for the round.
    if is_current and entry.shut and last.round_state is RoundState.OPEN:
        return "an earlier copy of the database was put back, which has no longer the round's last batch"
    # A round's counted reports are in the database before its end is in the journal.
    is_closing = (entry.closed, entry.received, entry.taken) == (
        last.digest,
        last.received,
        last.round_state is RoundState.CLOSED,
    )
    return "" if is_current or is_closing else "an earlier copy of the database was put back"
