"""What the server asks of a store, a journal and a place for round keys, embedded or shared by servers."""

from collections.abc import Collection, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from privateer_server.intake.opening import Opener
from privateer_server.store.records import (
    Change,
    ExperimentRecord,
    ExperimentState,
    JournalEntry,
    Leaf,
    LogLine,
    Plan,
    PlanBefore,
    RoundRecord,
    ShufflerKey,
)


class Locked(Protocol):
    """Experiments that nobody else changes until `commit`, or until the context is left."""

    def standing(self, experiment: str) -> ExperimentState | None:
        """Return where an experiment stands; None if there is none of that name."""
        ...

    def seen(self, experiment: str, opened: Sequence[bytes]) -> Set[bytes]:
        """Return the ids of opened reports that are counted in the experiment's last round, and perhaps others."""
        ...

    def commit(self, changes: Sequence[Change]) -> None:
        """Apply all changes or none; they are durable when this returns.

        Raises
        ------
        Behind
            If a round that a change adds to takes no more reports, or not as many.
        """
        ...


class Store(Protocol):
    """Durable state. Every writing method is one transaction, durable when it returns.

    What raises one of `privateer_server.store.records.TRANSIENT` may have been done or not. The same call may work
    later.
    """

    def create(self, name: str, spec: bytes, first: RoundRecord, line: LogLine | None = None) -> None:
        """Add an experiment with its first round, and the first line of its log.

        Raises
        ------
        Behind
            If there is one of that name.
        """
        ...

    def plan(self, name: str, before: PlanBefore, plan: Plan, line: LogLine) -> None:
        """Keep what an operator wants of an experiment, with its line in the log.

        Raises
        ------
        Behind
            If the experiment's last round or plan is not that of ``before``, or the round takes no more reports.
        """
        ...

    def log(self, name: str) -> list[LogLine]:
        """Return the changes to an experiment in order, a deleted one included."""
        ...

    def delete(self, name: str, line: LogLine) -> None:
        """Erase an experiment but for its name and log; erasing it again changes nothing."""
        ...

    def deleted(self) -> list[str]:
        """Return the names of deleted experiments."""
        ...

    def locked(self, names: Sequence[str]) -> AbstractContextManager[Locked]:
        """Keep everybody else from changing experiments of these names, as long as the context lasts."""
        ...

    def commit(self, changes: Sequence[Change]) -> None:
        """Apply all changes or none, as `Locked.commit`; a round that is closed already stays as it is."""
        ...

    def lease(self, experiment: str) -> AbstractContextManager[bool]:
        """Close a round of an experiment while no other server does; false if another one has the lease.

        Whoever is slow may lose the lease, and two may close the round then: the journal takes one of their releases.
        """
        ...

    def claim(self, experiment: str, shuffler: str, signed_at: float) -> bool:
        """Note which shuffler brings the batches of an experiment; false if another has claimed it, or a release since.

        Parameters
        ----------
        signed_at
            When the shuffler signed the claim, in seconds since 1970.
        """
        ...

    def release(self, experiment: str, line: LogLine) -> None:
        """Note, also in the log, that no shuffler has claimed an experiment; claims signed until then are void."""
        ...

    def answer(self, experiment: str, version: int, digest: bytes) -> bytes | None:
        """Return the answer to a batch, if it was counted."""
        ...

    def standing(self, experiment: str) -> ExperimentState | None:
        """Return where an experiment stands; None if there is none of that name."""
        ...

    def standings(self) -> Mapping[str, ExperimentState]:
        """Return where all experiments stand, by name."""
        ...

    def experiment(self, name: str) -> ExperimentRecord | None:
        """Return an experiment, if there is one of that name."""
        ...

    def experiments(self) -> list[ExperimentRecord]:
        """Return all experiments, by name."""
        ...

    def sums(self, experiment: str, version: int) -> list[bytes]:
        """Return the sums that a round began with, and its parts."""
        ...

    def spent(self, token: bytes) -> bytes | None:
        """Return the hash of the report that a spent upload token came with, if it was spent."""
        ...

    def forget_tokens(self, now: float) -> None:
        """Forget spent upload tokens whose key has expired."""
        ...

    def publication(self, experiment: str, version: int) -> bytes | None:
        """Return the publication of a version, if there is one."""
        ...

    def rounds(self, experiment: str) -> list[RoundRecord]:
        """Return all rounds by version, without publication, state and total."""
        ...

    def closers(self, experiment: str) -> Mapping[int, ShufflerKey]:
        """Return whose batches the rounds of an experiment took last, by version."""
        ...

    def leaves(self, start: int) -> list[Leaf]:
        """Return the leaves of the public log from a place on; they are never changed, and none comes in between."""
        ...

    def place(self, experiment: str, version: int) -> int | None:
        """Return the place of a publication in the public log, if it is there."""
        ...

    def recall(self, leaves: Sequence[Leaf]) -> None:
        """Add leaves that an earlier copy of the database does not have."""
        ...

    def check(self) -> None:
        """Write a row, or raise what keeps the store from writing."""
        ...

    def tidy(self) -> None:
        """Erase what is left of earlier states of the data, as far as the store can."""
        ...

    def backup(self) -> bytes:
        """Return a copy of the database without the sums and the ids of reports, whose open rounds cannot go on.

        Raises
        ------
        Conflict
            If the store's own tools make its backups.
        """
        ...

    def close(self) -> None:
        """Let go of the database; nothing here is used again."""
        ...


class PublicationJournal(Protocol):
    """What was published last, outside the store and its backups: it never goes back, and shows when the store did."""

    def last(self, experiment: str) -> JournalEntry | None:
        """Return the last publication of an experiment, if there is one."""
        ...

    def experiments(self) -> list[str]:
        """Return the names of all experiments that were ever published, in alphabetical order."""
        ...

    def write(self, entry: JournalEntry, after: JournalEntry | None) -> JournalEntry:
        """Put a publication on record, if the last one still is ``after``; return the one that is on record then.

        The first of several writers wins, and the others publish what it has written. It is durable when this returns.

        Raises
        ------
        Behind
            If the experiment is deleted.
        """
        ...

    def shut(self, experiment: str, digest: bytes) -> None:
        """Put on record that a round takes no further batch, before its shuffler hears of that and erases its reports.

        It is durable when this returns. If another publication is the last one, nothing changes.
        """
        ...

    def bury(self, experiment: str, line: LogLine) -> None:
        """Put on record that an experiment is deleted, and erase its publication; durable when this returns."""
        ...

    def buried(self) -> dict[str, LogLine]:
        """Return the deleted experiments, with the lines of their deletion."""
        ...

    def signer(self, public_key: bytes) -> bytes:
        """Put the key that signs publications on record, unless there is one; return the one that is on record then."""
        ...

    def origin(self) -> str:
        """Return the name of the log of publications; empty: none has begun."""
        ...

    def leaves(self, start: int, most: int = -1) -> list[Leaf]:
        """Return the leaves of the log that a head may have been signed for, from a place on; at most so many."""
        ...

    def extend(self, origin: str, start: int, leaves: Sequence[Leaf]) -> None:
        """Put leaves on record before a head is signed for them, and the name of the log, if it has none yet.

        It is durable when this returns. What another server has put on record already stays as it is.

        Raises
        ------
        Behind
            If the log on record goes on otherwise, or does not go as far as ``start``.
        """
        ...

    def close(self) -> None:
        """Let go of the journal; nothing here is used again."""
        ...


class KeyStore(Protocol):
    """The private keys of open rounds, outside the store and its backups: made before a round, destroyed after it."""

    def make(self) -> bytes:
        """Return the public half of a new key, which is durable when this returns."""
        ...

    def find(self, public_key: bytes) -> Opener | None:
        """Return what opens reports sealed to this key; None if its private half is lost or damaged."""
        ...

    def destroy(self, public_key: bytes) -> None:
        """Forget a key and erase it; what cannot be erased now, `retry` erases later."""
        ...

    def retry(self) -> None:
        """Erase the keys that could not be erased."""
        ...

    @property
    def unerased(self) -> int:
        """Keys of closed rounds that could not be erased yet."""
        ...

    def keep(self, public_keys: Collection[bytes]) -> None:
        """Erase every key but these, and but those that another server may just have made."""
        ...


class Notifications(Protocol):
    """Says when another server has published or changed something."""

    def wait(self, seconds: float) -> None:
        """Return at the next notification, or after so many seconds."""
        ...

    def close(self) -> None:
        """Have `wait` return for good."""
        ...


Folders = Mapping[str, Path]
"""Folders whose disks a store can fill, by what they hold."""
