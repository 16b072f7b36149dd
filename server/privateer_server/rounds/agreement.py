"""The comparison of a server's store with its journal, and the rounds that a start gives up if they disagree."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from privateer_core.codec import decode
from privateer_core.wire.publication import Round, decode_publication
from privateer_server.intake.decryption import Decryptor
from privateer_server.rounds.closing import give_up_reason
from privateer_server.rounds.open_round import RoundFacts
from privateer_server.store.findings import StoreFindings
from privateer_server.store.journal import Journal
from privateer_server.store.records import ExperimentRecord, JournalEntry
from privateer_server.store.store import Store

_MAX_TRIES: Final = 10
"""A round may close while the journal and the store of running servers are read, but not repeatedly."""


@dataclass(frozen=True)
class KeyFindings:
    """The result of a comparison of a server's keys with its open rounds."""

    rounds: int  # the number of open rounds
    n_broken: int  # the number of files without a key, or with the key of another name
    # lost, unread: the names of experiments whose open round has no key, or sums that its key does not open
    lost: list[str]
    unread: list[str]
    n_unerased: int  # the number of keys of closed rounds


@dataclass(frozen=True)
class Agreement:
    """The result of a comparison of a store with its journal."""

    store: StoreFindings  # the result of the store's own check
    experiments: list[ExperimentRecord]  # the experiments of the store
    published: dict[str, JournalEntry] = field(repr=False)  # the last publications in the journal, by experiment
    lost: list[str]  # the names of published experiments that the store lacks
    # the names of deleted experiments that an earlier copy of the store has brought back
    returned: list[str]
    logged: int  # the number of publications in the log
    is_forked: bool  # whether store and journal have different logs

    @cached_property
    def give_up_reasons(self) -> dict[str, str]:
        """The reasons why a start gives open rounds up, by experiment."""
        records = [record for record in self.experiments if record.current.batch_size]
        reasons = {record.name: give_up_reason(record.current, self.published.get(record.name)) for record in records}
        return {name: reason for name, reason in reasons.items() if reason}

    @cached_property
    def open_rounds(self) -> dict[str, Round]:
        """The rounds that take reports, by experiment."""
        rounds = {record.name: decode_publication(record.current.publication).round for record in self.experiments}
        return {name: facts for name, facts in rounds.items() if facts.batch_size}

    @cached_property
    def public_keys(self) -> set[bytes]:
        """The public keys of open rounds, and of rounds in the journal that are perhaps not yet in the store."""
        following = [decode_publication(entry.following.publication).round for entry in self.published.values()]
        return {published_round.public_key for published_round in [*self.open_rounds.values(), *following]}

    @cached_property
    def last_time(self) -> float:
        """The time of the last publication or operator's change, in seconds since 1970; 0: there is none."""
        opening_times = [decode(record.current.facts, RoundFacts).opened for record in self.experiments]
        return max([self.store.last_change, *opening_times])

    @property
    def max_round_bytes(self) -> int:
        """The bytes of the largest of all last rounds."""
        rounds = [stored.current for stored in self.experiments]
        return max((len(stored.publication) + len(stored.state) + len(stored.total) for stored in rounds), default=0)

    def examine_keys(
        self, keyring: Mapping[bytes, Decryptor], n_broken: int = 0, previous_keys: Collection[str] = ()
    ) -> KeyFindings:
        """Compare open rounds with the existing decryptors, by public key.

        previous_keys: the public keys before the data were read, hexadecimal: a key that existed only then, or exists
            only now, may be of a round that closed meanwhile.
        """
        keys = {name: facts.public_key for name, facts in sorted(self.open_rounds.items())}
        records = {record.name: record for record in self.experiments}
        without_key = [name for name, key in keys.items() if key not in keyring and key.hex() not in previous_keys]
        unread = [name for name, key in keys.items() if key in keyring and not _can_open(keyring[key], records[name])]
        n_unerased = sum(key not in self.public_keys and key.hex() in previous_keys for key in keyring)
        return KeyFindings(len(keys), n_broken, without_key, unread, n_unerased)


def _can_open(decryptor: Decryptor, record: ExperimentRecord) -> bool:
    digest = record.current.digest
    return all(decryptor.decrypt_sums(sums, digest) is not None for sums in (record.current.total, *record.parts))


def compare_store_and_journal(store: Store, journal: Journal) -> Agreement:
    """Compare a store with its journal, while servers may use both."""
    for _ in range(_MAX_TRIES):
        published, experiments = _read_last_entries(journal), store.experiments()
        deleted, buried = set(store.deleted_names()), journal.deletions().keys()
        journal_leaves, store_leaves = journal.leaves(0), store.leaves(0)
        if _read_last_entries(journal) == published:
            break
    names, n_common = {record.name for record in experiments}, min(len(journal_leaves), len(store_leaves))
    return Agreement(
        store.examine(),
        experiments,
        published,
        lost=sorted(published.keys() - names - deleted),
        returned=sorted(buried & names),
        logged=max(len(journal_leaves), len(store_leaves)),
        is_forked=journal_leaves[:n_common] != store_leaves[:n_common],
    )


def _read_last_entries(journal: Journal) -> dict[str, JournalEntry]:
    return {name: entry for name in journal.experiments() if (entry := journal.last_entry(name))}
