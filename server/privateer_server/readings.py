"""From the store into memory: experiments as they are there, whoever put them there."""

from dataclasses import replace

import msgspec

from privateer_core.algorithms import parse_spec
from privateer_core.clock import Clock
from privateer_server.data import Data
from privateer_server.experiment import Experiment, Snapshot
from privateer_server.rounds import restore, timed
from privateer_server.schedule import Schedule
from privateer_server.store import Behind, ExperimentRecord, Standing


class Readings:
    """Reads experiments from the store, and what has become of them since."""

    def __init__(self, data: Data, clock: Clock) -> None:
        self._store, self._keys, self._clock = data.store, data.keys, clock

    def experiment(self, name: str) -> Experiment | None:
        """Return an experiment that this server did not know, if there is one of that name.

        Raises
        ------
        Behind
            If the key of its round is lost.
        """
        stored = self._store.experiment(name)
        return self.restored(stored) if stored else None

    def restored(self, stored: ExperimentRecord) -> Experiment:
        """Return the experiment of a record; raises what `experiment` does."""
        snapshot = self._snapshot(stored)
        experiment = Experiment(snapshot.current, parse_spec(msgspec.json.decode(stored.spec)))
        experiment.advance(snapshot)
        experiment.shuffler = stored.standing.shuffler
        return experiment

    def latest(self, name: str, known: Snapshot, standing: Standing) -> Snapshot:
        """Return what became of an experiment of which this much was known.

        Raises
        ------
        Behind
            If the store has gone back behind it, or the key of its round is lost.
        """
        current = known.current
        if standing.digest != current.digest:
            if standing.version <= current.round.version:
                raise Behind("an earlier copy of the database was put back: restart the server")
            stored = self._store.experiment(name)
            if stored is None:
                raise Behind("the experiment was deleted")
            self._keys.destroy(current.round.public_key)  # its round is over for good
            return self._snapshot(stored, current.schedule)
        if standing.plan != current.plan:
            current = timed(replace(current, plan=standing.plan), self._clock)
        return Snapshot(current.at(standing), known.before, standing.refused)

    def _snapshot(self, stored: ExperimentRecord, schedule: Schedule | None = None) -> Snapshot:
        current = restore(stored.current, self._keys.find, stored.standing.plan, schedule)
        if current is None:
            raise Behind("the key of the open round is lost: restart the server")
        before = stored.accepted - stored.current.received
        return Snapshot(timed(current, self._clock).at(stored.standing), before, stored.standing.refused)
