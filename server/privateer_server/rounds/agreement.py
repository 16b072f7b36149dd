"""Whether a server's store and its journal agree, and what a start does about it where they do not."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from privateer_core.codec import decode
from privateer_core.wire.publication import Round, decode_publication
from privateer_server.intake.opening import Opener
from privateer_server.rounds.closing import reason_to_give_up
from privateer_server.rounds.open_round import RoundFacts
from privateer_server.store.findings import StoreFindings
from privateer_server.store.journal import Journal
from privateer_server.store.records import ExperimentRecord, JournalEntry
from privateer_server.store.store import Store

_TRIES: Final = 10
"""A round may close while a journal and a store that servers use are read; it does not again and again."""


@dataclass(frozen=True)
class KeyFindings:
    """Whether a server has the keys of its open rounds, and no others."""

    rounds: int  # how many are open
    broken: int  # how many files hold no key, or not that of their name
    # lost, unread: the names of experiments whose open round has no key, or sums that its key does not open
    lost: list[str]
    unread: list[str]
    left: int  # how many keys of closed rounds are there


@dataclass(frozen=True)
class Agreement:
    """What a store and its journal say of the same experiments."""

    store: StoreFindings  # what the store finds by itself
    experiments: list[ExperimentRecord]  # those of the store
    published: dict[str, JournalEntry] = field(repr=False)  # what the journal says was published last, by experiment
    lost: list[str]  # the names of experiments that were published, and that the store does not know
    # the names of experiments that were deleted, and that an earlier copy of the store has brought back
    returned: list[str]
    logged: int  # how many publications are in the log
    is_forked: bool  # whether the two have different logs

    @cached_property
    def given_up(self) -> dict[str, str]:
        """Why a start gives open rounds up, by experiment."""
        open_now = [one for one in self.experiments if one.current.batch]
        reasons = {one.name: reason_to_give_up(one.current, self.published.get(one.name)) for one in open_now}
        return {name: reason for name, reason in reasons.items() if reason}

    @cached_property
    def open_rounds(self) -> dict[str, Round]:
        """The rounds that take reports, by experiment."""
        rounds = {one.name: decode_publication(one.current.publication).round for one in self.experiments}
        return {name: facts for name, facts in rounds.items() if facts.batch}

    @cached_property
    def public_keys(self) -> set[bytes]:
        """The public keys of open rounds, and of those that are on record and perhaps not yet in the store."""
        following = [decode_publication(entry.following.publication).round for entry in self.published.values()]
        return {one.public_key for one in [*self.open_rounds.values(), *following]}

    @cached_property
    def last_time(self) -> float:
        """When a round was published or an operator changed something last, in seconds since 1970; 0: never."""
        opened = [decode(one.current.facts, RoundFacts).opened for one in self.experiments]
        return max([self.store.last_change, *opened])

    @property
    def largest(self) -> int:
        """The bytes of the largest last round."""
        rounds = [one.current for one in self.experiments]
        return max((len(one.publication) + len(one.state) + len(one.total) for one in rounds), default=0)

    def examine_keys(
        self, openers: Mapping[bytes, Opener], broken: int = 0, before: Collection[str] = ()
    ) -> KeyFindings:
        """Compare open rounds with the keys that are there, by public key.

        before: the keys that were there before the data were read, hexadecimal: one that is only there now, or only was
            then, may be of a round that closed meanwhile.
        """
        wanted = {name: facts.public_key for name, facts in sorted(self.open_rounds.items())}
        records = {one.name: one for one in self.experiments}
        lost = [name for name, key in wanted.items() if key not in openers and key.hex() not in before]
        unread = [name for name, key in wanted.items() if key in openers and not _opens(openers[key], records[name])]
        left = sum(key not in self.public_keys and key.hex() in before for key in openers)
        return KeyFindings(len(wanted), broken, lost, unread, left)


def _opens(opener: Opener, record: ExperimentRecord) -> bool:
    """Whether all sums of the open round of an experiment open."""
    digest = record.current.digest
    return all(opener.reveal(sums, digest) is not None for sums in (record.current.total, *record.parts))


def compare(store: Store, journal: Journal) -> Agreement:
    """Compare a store with its journal, both of which servers may use meanwhile."""
    for _ in range(_TRIES):
        published, experiments = _published(journal), store.experiments()
        deleted, buried = set(store.deleted()), journal.buried().keys()
        logged, here = journal.leaves(0), store.leaves(0)
        if _published(journal) == published:
            break
    known, common = {one.name for one in experiments}, min(len(logged), len(here))
    return Agreement(
        store.examine(),
        experiments,
        published,
        lost=sorted(published.keys() - known - deleted),
        returned=sorted(buried & known),
        logged=max(len(logged), len(here)),
        is_forked=logged[:common] != here[:common],
    )


def _published(journal: Journal) -> dict[str, JournalEntry]:
    return {name: entry for name in journal.experiments() if (entry := journal.last(name))}
