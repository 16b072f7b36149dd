"""What the server must not forget."""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

TRANSIENT: Final = (OSError, sqlite3.OperationalError)
"""What a store raises while a disk is full or slow: the same call may work later."""


PAUSED: Final = "paused"
STOPPED: Final = "stopped"


@dataclass(frozen=True)
class RoundRecord:
    """A published round.

    Attributes
    ----------
    version, batch, digest
        As published.
    seen
        People of the same cohort whose reports opened in earlier rounds.
    received
        Reports counted in ``total``.
    taken
        Whether the round takes no more reports; the last round of an experiment may be taken and not yet learned from.
    facts
        What the history and the privacy record say of the round (`privateer_server.rounds.RoundFacts`), encoded.
    publication
        The encoded publication, served as it is.
    state
        Learner state that made the policy, encoded; empty once the next round is published.
    total
        Sums of the reports, encoded and encrypted with the round's key (`privateer_server.opening.Opener.protect`);
        empty once the next round is published, in a backup, and of a round that asks nobody.
    """

    version: int
    batch: int
    seen: int
    received: int
    taken: bool
    digest: bytes
    facts: bytes
    publication: bytes = field(repr=False)
    state: bytes = field(repr=False)
    total: bytes = field(repr=False)


@dataclass(frozen=True)
class Plan:
    """What an operator wants of an experiment from its next publication on.

    Attributes
    ----------
    hold
        `PAUSED` or `STOPPED`: nobody is asked, from now on; empty: people are.
    spec
        The spec of the next publication, encoded; empty: it stays the same.
    due
        When the open round ends at the latest, in seconds since 1970; None: it waits for its people.
    seconds
        How long that was ahead when it was planned.
    """

    hold: str = ""
    spec: bytes = b""
    due: float | None = None
    seconds: float = 0.0

    @property
    def carried_out(self) -> "Plan":
        """What is left of it once the next publication is there."""
        return Plan(self.hold)


NO_PLAN: Final = Plan()


@dataclass(frozen=True)
class LogLine:
    """A change to an experiment, in its audit log.

    Attributes
    ----------
    at
        In seconds since 1970.
    action, detail
        What was done: the name of a command, and its arguments in words.
    who
        Whose request it was.
    version
        The version at that time.
    since
        The first version in which it holds; None as long as it waits for the open round to end.
    """

    at: float
    action: str
    detail: str
    who: str
    version: int
    since: int | None = None


@dataclass(frozen=True)
class Leaf:
    """A publication in the public log, where it stays when its experiment is deleted."""

    experiment: str
    version: int
    digest: bytes


@dataclass(frozen=True)
class ShufflerKey:
    """Which shuffler's batch a round took last: the id of its key, and the organisation whose key that was then."""

    shuffler: str
    organisation: str


@dataclass(frozen=True)
class ExperimentRecord:
    """An experiment with its last round and the ids of the reports in it.

    Attributes
    ----------
    spec
        What it was created from; its publications have the spec of their time.
    shuffler
        Id of the key of the shuffler that claimed it; empty if none did.
    accepted, refused
        Reports counted over all rounds, and turned away by reason.
    """

    name: str
    spec: bytes
    shuffler: str
    accepted: int
    refused: Mapping[str, int]
    current: RoundRecord
    report_ids: frozenset[bytes] = field(repr=False)
    plan: Plan = NO_PLAN


@dataclass(frozen=True)
class Change:
    """What one transaction does to an experiment.

    Attributes
    ----------
    version, received, taken, total
        The round and what becomes of it; ``total`` is None if it stays.
    report_ids
        Ids of the reports that the change counts and that may come again.
    refused
        Reports turned away by reason, to be added.
    answers
        The answers to a shuffler's batches, by the digests of these.
    following
        The next round, if the change closes this one.
    tokens
        Upload tokens that its reports came with: hashes of token and report, and when the token's key expires.
    closer
        Whose batch the change counts, if it counts one.
    """

    experiment: str
    version: int
    received: int
    taken: bool
    total: bytes | None = field(default=None, repr=False)
    report_ids: Sequence[bytes] = field(default=(), repr=False)
    refused: Mapping[str, int] = field(default_factory=dict)
    answers: Mapping[bytes, bytes] = field(default_factory=dict)
    following: RoundRecord | None = None
    tokens: Sequence[tuple[bytes, bytes, int]] = field(default=(), repr=False)
    closer: ShufflerKey | None = None
