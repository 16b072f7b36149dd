"""What a start mends: rounds whose closing was interrupted, whose key is lost, or that an old copy brought back."""

import logging

from privateer.clock import Clock
from privateer_server.closing import Closer
from privateer_server.data import Data
from privateer_server.rounds import OpenRound, beyond, missed_round, restore, restore_lost
from privateer_server.store import ExperimentRecord, RoundRecord
from privateer_server.store.journal import Entry

_log = logging.getLogger("privateer.server")


class Mender:
    """Brings the database to where every open round may go on.

    The journal knows the last publication of every experiment. If it has the round that follows the database's, the
    process died before the database had it, and it is published now, with the noise that was drawn then. If it knows
    neither, the database is an earlier copy: the round may have been released, so it is given up, and the experiment
    goes on with a version above all that may have been published. Nothing is ever released of a round given up.
    """

    def __init__(self, data: Data, closer: Closer, clock: Clock) -> None:
        self._journal, self._keys, self._closer, self._clock = data.journal, data.keys, closer, clock

    def mend(self, stored: ExperimentRecord) -> None:
        """See that the experiment's last round is open for good reason, or over."""
        last, plan, entry = stored.current, stored.plan, self._journal.last(stored.name)
        reason = reason_to_give_up(last, entry)
        if entry and entry.closed == last.digest:
            self._closer.commit(restore_lost(last), entry)
            last, plan = entry.following, plan.carried_out
        if not reason and last.batch and not restore(last, self._keys.find):
            reason = "its key or its sums are lost"
        # Where nobody is asked now, rounds may follow that were published before.
        ahead = bool(plan.hold) or (entry is not None and entry.following.version > last.version)
        if reason and (last.batch or ahead):
            _log.warning("experiment %s: round %d is given up, because %s", stored.name, last.version, reason)
            self._give_up(restore_lost(last, plan), entry)

    def _give_up(self, lost: OpenRound, entry: Entry | None) -> None:
        version = beyond(max(lost.round.version, entry.following.version if entry else 0))
        following = missed_round(lost, self._keys.make, self._clock.now(), version, again=True)
        self._closer.commit(lost, self._closer.enter(following, lost))


def reason_to_give_up(last: RoundRecord, entry: Entry | None) -> str:
    """Say why no round of this database may go on; nothing if it is the one that the journal was written with."""
    if entry is None:
        return "the journal does not know the experiment"
    is_current = entry.following.digest == last.digest
    # What a round had counted is in the database before the journal says that it has closed.
    is_closing = (entry.closed, entry.received, entry.taken) == (last.digest, last.received, last.taken)
    return "" if is_current or is_closing else "an earlier copy of the database was put back"
