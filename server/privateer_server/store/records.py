"""Records of the store: experiments, rounds, plans and changes."""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from privateer_core.experiment_status import Status
from privateer_server.rounds.states import RoundState

TRANSIENT_ERRORS: Final = (OSError, sqlite3.OperationalError)
"""Errors of a store while a disk is full or slow: the same call may work later."""


class OutdatedState(OSError):
    """The error of a change to a state that another server has changed: after another read the call may work."""


PAUSED: Final = Status.PAUSED.value
STOPPED: Final = Status.STOPPED.value


@dataclass(frozen=True)
class RoundRecord:
    """A published round."""

    # version, batch_size, digest: as published
    version: int
    batch_size: int
    seen: int  # participants of the same cohort whose reports were decrypted in earlier rounds
    received: int  # participants whose reports are counted
    # of the last round; earlier rounds are ``CLOSED`` if they were learned from, else ``GIVEN_UP``
    round_state: RoundState
    digest: bytes
    # facts of the round for the history and the privacy record (`privateer_server.rounds.open_round.RoundFacts`),
    # encoded
    facts: bytes
    publication: bytes = field(repr=False)  # the encoded publication, served as it is
    # learner state that made the policy, encoded; empty once the next round is published
    state: bytes = field(repr=False)
    # sums that the round began with, encoded and encrypted with its key
    # (`privateer_server.intake.decryption.Decryptor.encrypt_sums`); its reports are in parts (`RoundUpdate`). Empty
    # once the next round is published, in a backup, and in a round without participants.
    total: bytes = field(repr=False)


@dataclass(frozen=True)
class JournalEntry:
    """The last publication of an experiment, as stored in the journal."""

    experiment: str
    closed: bytes  # digest of the round that ended with it; empty at the experiment's first round
    # received, taken: participants who had reported in that round, and whether it was learned from
    received: int
    taken: bool
    # the round that it opened. A curator's noise is in the state here: if the database does not have the round, since
    # the process died in between, this is the release that stands, and none is drawn again.
    following: RoundRecord
    # whether a shuffler was told that ``following`` takes no further batch. It has erased its reports then, and a
    # database without that fact is an earlier copy.
    shut: bool = False


@dataclass(frozen=True)
class Plan:
    """An operator's plan for an experiment from its next publication on."""

    hold: str = ""  # `PAUSED` or `STOPPED`: no participants are invited from now on; empty: participants are invited
    spec: bytes = b""  # the spec of the next publication, encoded; empty: it stays the same
    # when the open round ends at the latest, in seconds since 1970; None: it waits for its participants
    due: float | None = None
    seconds: float = 0.0  # seconds until then at the time of planning

    @property
    def after_publication(self) -> "Plan":
        """The plan that remains after the next publication."""
        return Plan(self.hold)


NO_PLAN: Final = Plan()


@dataclass(frozen=True)
class PlanBasis:
    """The state that an operator's change was made for: the digest of the last round, and the plan so far."""

    digest: bytes
    plan: Plan


@dataclass(frozen=True)
class LogLine:
    """A change to an experiment, in its audit log."""

    at: float  # in seconds since 1970
    # action, detail: the name of a command, and its arguments in words
    action: str
    detail: str
    who: str  # the name of the requesting operator
    version: int  # the version at that time
    since: int | None = None  # the first version with the change; None as long as it waits for the open round to end


@dataclass(frozen=True)
class ExperimentState:
    """The part of an experiment that changes while its last round is open; another server may have changed it."""

    # version, digest, received, state: of the last round
    version: int
    digest: bytes
    received: int
    state: RoundState
    plan: Plan  # the operator's plan for the next round
    shuffler: str  # id of the key of the shuffler that claimed the experiment; empty without a claim
    # when the last claim was released, in seconds since 1970: claims that were signed before are void
    released_at: float
    refused: Mapping[str, int]  # reports turned away over all rounds, by reason


@dataclass(frozen=True)
class BackupRecord:
    """The last backups of a store."""

    begun: float = 0.0  # when an incomplete backup began, in seconds since 1970; 0: there is no incomplete backup
    completed: float = 0.0  # when a backup was completed last
    # seconds, bytes: the duration and size of that backup
    seconds: float = 0.0
    bytes: int = 0

    @property
    def is_incomplete(self) -> bool:
        """Whether the last backup was not completed, or is under way."""
        return self.begun > 0


@dataclass(frozen=True)
class Leaf:
    """A publication in the public log, where it stays when its experiment is deleted."""

    experiment: str
    version: int
    digest: bytes


@dataclass(frozen=True)
class ShufflerKey:
    """The shuffler whose batch a round took last: the id of its key, and the organisation of the key at that time."""

    shuffler: str
    organisation: str


@dataclass(frozen=True)
class ExperimentRecord:
    """An experiment with its last round."""

    name: str
    spec: bytes  # the spec at its creation; its publications have the spec of their time
    accepted: int  # reports counted over all rounds
    current: RoundRecord  # the last round
    # encoded partial sums, encrypted like the round's ``total``, to which they are added
    parts: Sequence[bytes] = field(repr=False)
    state: ExperimentState  # the part that changes while the round is open


class TokenRow(NamedTuple):
    """A spent upload token."""

    expires: int  # when its key expires, in seconds since 1970
    # token, report: hashes of the token and of its report
    token: bytes
    report: bytes


@dataclass(frozen=True)
class RoundUpdate:
    """The effect of one transaction on an experiment: all numbers are added to the stored numbers."""

    experiment: str
    version: int  # the round
    counted: int = 0  # participants whose reports it counts
    state: RoundState = RoundState.OPEN  # that of the round from now on
    # part, total: the name of a partial sum of the round, and its current value; None if unchanged. Each process
    # writes a part of its own, so that processes can count for the same round concurrently.
    part: bytes = b""
    total: bytes | None = field(default=None, repr=False)
    # ids of the reports that the change counts and that may come again
    report_ids: Sequence[bytes] = field(default=(), repr=False)
    refused: Mapping[str, int] = field(default_factory=dict)  # reports turned away by reason
    # the answers to a shuffler's batches, by the digests of these
    answers: Mapping[bytes, bytes] = field(default_factory=dict)
    # the next round, if the change closes this round; ``state`` then says whether this round was learned from
    following: RoundRecord | None = None
    tokens: Sequence[TokenRow] = field(default=(), repr=False)  # upload tokens of its reports
    shuffler_key: ShufflerKey | None = None  # the shuffler of the batch that the change counts, if any
