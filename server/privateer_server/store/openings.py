"""Openings of batches in shares: a round keeps them until it ends, and no nonce is in two of them."""

from collections.abc import Callable, Mapping, Sequence

from sqlalchemy import Connection, select

from privateer_core.errors import BatchRefused, RoundClosed
from privateer_core.serving.store.database import Database, insert
from privateer_core.wire.publication import NONCE_SIZE, split_bytes
from privateer_server.rounds.states import RoundState
from privateer_server.store.records import ExperimentState
from privateer_server.store.rounds import in_round
from privateer_server.store.schema import OPENINGS

LockStates = Callable[[Connection, Sequence[str]], Mapping[str, ExperimentState]]
"""Locks experiments against changes by other processes, and reads their states."""


class Openings:
    """The openings of open rounds, as their shufflers signed them."""

    def __init__(self, database: Database, lock_states: LockStates) -> None:
        self._database, self._lock_states = database, lock_states

    def record(self, experiment: str, version: int, digest: bytes, nonces: Sequence[bytes], reports: bytes) -> None:
        """Record an opening, durably, before it is answered; a repeated opening changes nothing.

        A nonce is verified once, with any share: `BatchRefused` for a nonce of another opening of the round.
        """
        row = {"experiment": experiment, "version": version, "digest": digest}
        is_in_round = in_round(OPENINGS, experiment, version)
        with self._database.transaction() as db:
            state = self._lock_states(db, [experiment]).get(experiment)
            if state is None or state.version != version or state.state is not RoundState.OPEN:
                raise RoundClosed("this round is over", remedy="nothing to do: what was sent is not used")
            if db.execute(select(OPENINGS.c.digest).where(is_in_round, OPENINGS.c.digest == digest)).first():
                return
            for old_nonces in db.execute(select(OPENINGS.c.nonces).where(is_in_round)).scalars():
                if not set(split_bytes(old_nonces, NONCE_SIZE)).isdisjoint(nonces):
                    detail = "a nonce of this opening was verified before, in another one"
                    raise BatchRefused(detail, remedy="nothing to do: a second answer would tell a vote")
            db.execute(insert(OPENINGS).values(row | {"nonces": b"".join(nonces), "reports": reports}))

    def find(self, experiment: str, version: int, digest: bytes) -> bytes | None:
        """Return the reports of a recorded opening."""
        query = select(OPENINGS.c.reports).where(in_round(OPENINGS, experiment, version), OPENINGS.c.digest == digest)
        with self._database.connection() as db:
            return db.execute(query).scalar_one_or_none()
