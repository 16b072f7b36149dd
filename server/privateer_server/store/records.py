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
    """A published round."""

    # version, batch, digest: as published
    version: int
    batch: int
    seen: int  # people of the same cohort whose reports opened in earlier rounds
    received: int  # people whose reports are counted
    # whether the round takes no more reports; the last round of an experiment may be taken and not yet learned from
    taken: bool
    digest: bytes
    # what the history and the privacy record say of the round (`privateer_server.rounds.open_round.RoundFacts`),
    # encoded
    facts: bytes
    publication: bytes = field(repr=False)  # the encoded publication, served as it is
    # learner state that made the policy, encoded; empty once the next round is published
    state: bytes = field(repr=False)
    # sums that the round began with, encoded and encrypted with its key
    # (`privateer_server.intake.opening.Opener.protect`); its reports are in parts beside them (`RoundUpdate`). Empty
    # once the next round is published, in a backup, and of a round that asks nobody.
    total: bytes = field(repr=False)
    given_up: bool = False  # whether the round takes no more reports, and nothing is learned from those that it has


@dataclass(frozen=True)
class JournalEntry:
    """The last publication of an experiment, as the journal has it."""

    experiment: str
    closed: bytes  # digest of the round that ended with it; empty at the experiment's first round
    # received, taken: people who had reported in that round, and whether it was learned from
    received: int
    taken: bool
    # the round that it opened. A curator's noise is in the state here: if the database does not have the round, since
    # the process died in between, this is the release that stands, and none is drawn again.
    following: RoundRecord
    # whether a shuffler heard that ``following`` takes no further batch. It has erased its reports then, and a database
    # that knows nothing of that is an earlier copy.
    shut: bool = False

    @property
    def without_digests(self) -> "JournalEntry":
        """What it is worth in a journal that may have gone back: it counts for versions alone."""
        return replace(self, closed=b"", following=replace(self.following, digest=b""))


@dataclass(frozen=True)
class Plan:
    """An operator's plan for an experiment from its next publication on."""

    hold: str = ""  # `PAUSED` or `STOPPED`: nobody is asked, from now on; empty: people are
    spec: bytes = b""  # the spec of the next publication, encoded; empty: it stays the same
    # when the open round ends at the latest, in seconds since 1970; None: it waits for its people
    due: float | None = None
    seconds: float = 0.0  # how long that was ahead when it was planned

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
    """A change to an experiment, in its audit log."""

    at: float  # in seconds since 1970
    # action, detail: what was done: the name of a command, and its arguments in words
    action: str
    detail: str
    who: str  # whose request it was
    version: int  # the version at that time
    since: int | None = None  # the first version in which it holds; None as long as it waits for the open round to end


@dataclass(frozen=True)
class ExperimentState:
    """The part of an experiment that changes while its last round is open; another server may have changed it."""

    # version, digest, received, taken, given_up: of the last round
    version: int
    digest: bytes
    received: int
    taken: bool
    given_up: bool
    plan: Plan  # what the operator wants of the next one
    shuffler: str  # id of the key of the shuffler that claimed the experiment; empty if none did
    # when the last claim was released, in seconds since 1970: claims that were signed before are void
    released_at: float
    refused: Mapping[str, int]  # reports turned away over all rounds, by reason


@dataclass(frozen=True)
class BackupRecord:
    """The last backups of a store."""

    begun: float = 0.0  # when one began that is not complete, in seconds since 1970; 0: there is none
    completed: float = 0.0  # when one was completed last
    # seconds, bytes: how long that took, and its size
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
    """An experiment with its last round."""

    name: str
    spec: bytes  # what it was created from; its publications have the spec of their time
    accepted: int  # reports counted over all rounds
    current: RoundRecord  # the last round
    # its parts: encoded sums, encrypted as the round's ``total``, to which they are to be added
    parts: Sequence[bytes] = field(repr=False)
    standing: ExperimentState  # what changes while the round is open


class TokenRow(NamedTuple):
    """An upload token that is spent."""

    expires: int  # when its key expires, in seconds since 1970
    # token, report: hashes of the token and of the report that it came with
    token: bytes
    report: bytes


@dataclass(frozen=True)
class RoundUpdate:
    """The effect of one transaction on an experiment: all numbers are added to what is there."""

    experiment: str
    version: int  # the round
    counted: int = 0  # people whose reports it counts
    # taken, given_up: whether the round takes no more reports from now on, and why
    taken: bool = False
    given_up: bool = False
    # part, total: the name of a part of the round's sums, and the whole part as it is now; None if it stays. One
    # process writes a part, so that processes count for one round at the same time.
    part: bytes = b""
    total: bytes | None = field(default=None, repr=False)
    # ids of the reports that the change counts and that may come again
    report_ids: Sequence[bytes] = field(default=(), repr=False)
    refused: Mapping[str, int] = field(default_factory=dict)  # reports turned away by reason
    # the answers to a shuffler's batches, by the digests of these
    answers: Mapping[bytes, bytes] = field(default_factory=dict)
    # the next round, if the change closes this one; ``taken`` then says whether this one was learned from
    following: RoundRecord | None = None
    tokens: Sequence[TokenRow] = field(default=(), repr=False)  # upload tokens that its reports came with
    closer: ShufflerKey | None = None  # whose batch the change counts, if it counts one
