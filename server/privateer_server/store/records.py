"""Records of the store: experiments, rounds, plans and changes."""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

TRANSIENT: Final = (OSError, sqlite3.OperationalError)
"""What a store raises while a disk is full or slow: the same call may work later."""


class Behind(OSError):
    """Another server has changed what this one was about to change: it reads again, and the same call may work then."""


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
        People whose reports are counted.
    taken
        Whether the round takes no more reports; the last round of an experiment may be taken and not yet learned from.
    facts
        What the history and the privacy record say of the round (`privateer_server.rounds.open_round.RoundFacts`),
        encoded.
    publication
        The encoded publication, served as it is.
    state
        Learner state that made the policy, encoded; empty once the next round is published.
    total
        Sums that the round began with, encoded and encrypted with its key
        (`privateer_server.intake.opening.Opener.protect`); its reports are in parts beside them (`RoundUpdate`). Empty
        once the next round is published, in a backup, and of a round that asks nobody.
    given_up
        Whether the round takes no more reports, and nothing is learned from those that it has.
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
    given_up: bool = False


@dataclass(frozen=True)
class JournalEntry:
    """The last publication of an experiment, as the journal has it.

    Attributes
    ----------
    closed
        Digest of the round that ended with it; empty at the experiment's first round.
    received, taken
        People who had reported in that round, and whether it was learned from.
    following
        The round that it opened. A curator's noise is in the state here: if the database does not have the round, since
        the process died in between, this is the release that stands, and none is drawn again.
    shut
        Whether a shuffler heard that ``following`` takes no further batch. It has erased its reports then, and a
        database that knows nothing of that is an earlier copy.
    """

    experiment: str
    closed: bytes
    received: int
    taken: bool
    following: RoundRecord
    shut: bool = False

    @property
    def without_digests(self) -> "JournalEntry":
        """What it is worth in a journal that may have gone back: it counts for versions alone."""
        return replace(self, closed=b"", following=replace(self.following, digest=b""))


@dataclass(frozen=True)
class Plan:
    """An operator's plan for an experiment from its next publication on.

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
class PlanBefore:
    """The state that an operator's change was made for: the digest of the last round, and the plan so far."""

    digest: bytes
    plan: Plan


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
class ExperimentState:
    """The part of an experiment that changes while its last round is open; another server may have changed it.

    Attributes
    ----------
    version, digest, received, taken, given_up
        Of the last round.
    plan
        What the operator wants of the next one.
    shuffler
        Id of the key of the shuffler that claimed the experiment; empty if none did.
    released_at
        When the last claim was released, in seconds since 1970: claims that were signed before are void.
    refused
        Reports turned away over all rounds, by reason.
    """

    version: int
    digest: bytes
    received: int
    taken: bool
    given_up: bool
    plan: Plan
    shuffler: str
    released_at: float
    refused: Mapping[str, int]


@dataclass(frozen=True)
class BackupRecord:
    """The last backups of a store.

    Attributes
    ----------
    begun
        When one began that is not complete, in seconds since 1970; 0: there is none.
    completed
        When one was completed last.
    seconds, bytes
        How long that took, and its size.
    """

    begun: float = 0.0
    completed: float = 0.0
    seconds: float = 0.0
    bytes: int = 0

    @property
    def is_incomplete(self) -> bool:
        """Whether the last one was not completed, or is under way."""
        return self.begun > 0


@dataclass(frozen=True)
class Leaf:
    """A publication in the public log, where it stays when its experiment is deleted."""

    experiment: str
    version: int
    digest: bytes


@dataclass(frozen=True)
class ShufflerKey:
    """The shuffler whose batch a round took last: the id of its key, and the organisation whose key that was then."""

    shuffler: str
    organisation: str


@dataclass(frozen=True)
class ExperimentRecord:
    """An experiment with its last round.

    Attributes
    ----------
    spec
        What it was created from; its publications have the spec of their time.
    accepted
        Reports counted over all rounds.
    current
        The last round.
    parts
        Its parts: encoded sums, encrypted as the round's ``total``, to which they are to be added.
    standing
        What changes while the round is open.
    """

    name: str
    spec: bytes
    accepted: int
    current: RoundRecord
    parts: Sequence[bytes] = field(repr=False)
    standing: ExperimentState


class TokenRow(NamedTuple):
    """An upload token that is spent.

    Attributes
    ----------
    expires
        When its key expires, in seconds since 1970.
    token, report
        Hashes of the token and of the report that it came with.
    """

    expires: int
    token: bytes
    report: bytes


@dataclass(frozen=True)
class RoundUpdate:
    """The effect of one transaction on an experiment: all numbers are added to what is there.

    Attributes
    ----------
    version
        The round.
    counted
        People whose reports it counts.
    taken, given_up
        Whether the round takes no more reports from now on, and why.
    part, total
        The name of a part of the round's sums, and the whole part as it is now; None if it stays. One process writes a
        part, so that processes count for one round at the same time.
    report_ids
        Ids of the reports that the change counts and that may come again.
    refused
        Reports turned away by reason.
    answers
        The answers to a shuffler's batches, by the digests of these.
    following
        The next round, if the change closes this one; ``taken`` then says whether this one was learned from.
    tokens
        Upload tokens that its reports came with.
    closer
        Whose batch the change counts, if it counts one.
    """

    experiment: str
    version: int
    counted: int = 0
    taken: bool = False
    given_up: bool = False
    part: bytes = b""
    total: bytes | None = field(default=None, repr=False)
    report_ids: Sequence[bytes] = field(default=(), repr=False)
    refused: Mapping[str, int] = field(default_factory=dict)
    answers: Mapping[bytes, bytes] = field(default_factory=dict)
    following: RoundRecord | None = None
    tokens: Sequence[TokenRow] = field(default=(), repr=False)
    closer: ShufflerKey | None = None
