"""What the server does with a report, stage by stage, in this process: it opens, adds, commits and learns."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_core.clock import SystemClock
from privateer_core.wire.envelope import Envelope, binding, decode_envelope, pieces
from privateer_lab.bench.sealed import bench_spec, seal_round
from privateer_server.data import Data, open_data
from privateer_server.intake.accumulator import Accumulator
from privateer_server.rounds.closing import Closer
from privateer_server.rounds.open_round import first_round, record
from privateer_server.settings import ServerSettings

_GROUP: Final = 900
"""Reports that the server commits at once under load."""
_NAME: Final = "bench"


def stage_seconds(people: int) -> dict[str, float]:
    """Return the processor time that each stage takes for the reports of a round of so many people, in seconds."""
    with tempfile.TemporaryDirectory(prefix="privateer-") as folder:
        data = open_data(ServerSettings(data=Path(folder), admin_token=bytes(32)))
        try:
            return _Stages(data, people).run()
        finally:
            data.close()


class _Stages:
    """One round of an experiment on a data folder, and the processor time that it took so far, by stage."""

    def __init__(self, data: Data, people: int) -> None:
        spec = bench_spec(_NAME, "server", people)
        self._data, self._people = data, people
        self._current = first_round(spec, data.keys.make())
        self._opener = data.keys.find(self._current.round.public_key)
        data.store.create(_NAME, self._current.schedule.encoded, record(self._current, self._opener))
        self._spent = dict.fromkeys(("open", "add", "commit", "learn"), 0.0)

    def run(self) -> dict[str, float]:
        """Take the reports of the whole round, in groups, and learn from it."""
        key = Ed25519PrivateKey.generate()
        for body in seal_round(self._current.publication, _NAME, self._people, _GROUP, key).bodies:
            self._take(decode_envelope(body))
        with self._timed("learn"):
            Closer(self._data, SystemClock()).close(self._current)
        return self._spent

    def _take(self, envelope: Envelope) -> None:
        facts, opener = self._current.round, self._opener
        assert opener is not None, "its key was just made"
        with self._timed("open"):
            sealed = pieces(envelope.sealed, facts.sealed_size)
            opened = opener.open(sealed, binding(envelope.header, facts.model))
        with self._timed("add"):
            with self._data.store.locked([_NAME]) as locked:
                seen = locked.seen(_NAME, opened)
            accumulator = Accumulator(self._current, seen, opener)
            accumulator.examine(opened)
            accumulator.take(envelope, opened)
            self._current, change = accumulator.close()
        with self._timed("commit"):
            self._data.store.commit([change])

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        started = time.process_time()
        yield
        self._spent[stage] += time.process_time() - started
