"""Recovery at a start: rounds whose closing was interrupted, whose key is lost, or that an old copy brought back."""

import logging
from collections import Counter
from collections.abc import Sequence

from privateer_core.clock import Clock
from privateer_server.data import Data
from privateer_server.rounds.closing import Closer
from privateer_server.rounds.open_round import OpenRound, beyond, missed_round, restore_lost, with_sums
from privateer_server.store.records import ExperimentRecord, JournalEntry, RoundRecord

_log = logging.getLogger("privateer.server")


class Recovery:
    """Brings the database to where every open round may go on.

    The journal knows the last publication of every experiment. If it has the round that follows the database's, the
    process died before the database had it, and it is published now, with the noise that was drawn then. If it knows
    neither, the database is an earlier copy: the round may have been released, so it is given up, and the experiment
    goes on with a version above all that may have been published. A round is given up as well if its shuffler heard
    that it takes no further batch, and the database does not know that: the batch is gone. Nothing is ever released of
    a round given up.

    Attributes
    ----------
    recovered
        How many rounds were ``published`` and ``given_up``.
    """

    def __init__(self, data: Data, closer: Closer, clock: Clock) -> None:
        self._store, self._journal, self._keys = data.store, data.journal, data.keys
        self._closer, self._clock = closer, clock
        self.recovered = Counter(published=0, given_up=0)

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
