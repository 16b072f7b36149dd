"""An observer of services that checks their promises after any faults."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import httpx
import numpy as np
import pytest

from privateer_core.wire.batch import decode_batch
from privateer_core.wire.publication import decode_publication, digest
from tests.faults.reports import Body, Maker, count_marks, messages, policy_of, tally

Key = tuple[str, int]


@dataclass(frozen=True)
class Release:
    """The sums of a round that a following publication tells of.

    Attributes
    ----------
    closed, following
        Digests of the publications of the round and of the next one.
    """

    key: Key
    closed: bytes
    following: bytes
    received: int
    total: Any


class Observer:
    """Notes what is published, delivered and released.

    Attributes
    ----------
    published
        Digests of what was seen by experiment and version.
    log
        The longest log that was seen.
    restores
        How often a backup was put back.
    batches
        Bodies of the batches that were on their way to a server, by experiment and version.
    """

    def __init__(self) -> None:
        self.published: dict[Key, set[bytes]] = defaultdict(set)
        self.bodies: dict[bytes, bytes] = {}
        self.log: list[dict[str, Any]] = []
        self.batches: dict[Key, list[bytes]] = defaultdict(list)
        self.restores = 0
        self._restores_at_publication: dict[Key, int] = {}
        self._releases: dict[bytes, Release] = {}

    def watch(self, patched: pytest.MonkeyPatch) -> None:
        """Note every release that is drawn; most of those that a death cuts off are never published."""
        from privateer_server.rounds import closing

        open_following_round = closing.open_following_round

        def open_and_note(closed: Any, *arguments: Any, **options: Any) -> Any:
            following = open_following_round(closed, *arguments, **options)
            if closed.received >= closed.min_reports:
                key = closed.round.experiment, closed.round.version
                self._releases[following.digest] = Release(
                    key, closed.digest, following.digest, closed.received, closed.total
                )
            return following

        patched.setattr(closing, "open_following_round", open_and_note)

    def note_publication(self, publication: bytes) -> None:
        """Note a publication that somebody was shown."""
        facts, name = decode_publication(publication).round, digest(publication)
        digests = self.published[facts.experiment, facts.version]
        digests.add(name)
        self._restores_at_publication.setdefault((facts.experiment, facts.version), self.restores)
        self.bodies[name] = publication
        assert len(digests) == 1, f"two publications of {facts.experiment} {facts.version} were shown"

    def note_log(self, head: str, entries: list[dict[str, Any]]) -> None:
        """Note a log that was shown, and check that it and the longest earlier log have a common beginning."""
        common = min(len(entries), len(self.log))
        assert entries[:common] == self.log[:common], "the log of publications was rewritten"
        self.log = max(self.log, entries, key=len)
        if head:
            size = int(head.splitlines()[1])
            assert size >= common, "the head of the log went back"
        places = Counter((entry["experiment"], entry["version"]) for entry in entries)
        assert max(places.values(), default=1) == 1, "a version is twice in the log"

    def note_batch(self, request: httpx.Request) -> None:
        """Note a batch on its way, whatever becomes of it."""
        if request.url.path == "/batches":
            header = decode_batch(request.read()).header
            bodies = self.batches[header.experiment, header.version]
            if request.content not in bodies:
                bodies.append(request.content)

    def releases(self) -> dict[Key, Release]:
        """The releases that are published, one at most for a round.

        Those of a round that was given up and went on elsewhere are not published.
        """
        published_digests = {bytes.fromhex(entry["digest"]) for entry in self.log} | set(self.bodies)
        releases: dict[Key, Release] = {}
        for release in self._releases.values():
            if release.following in published_digests:
                assert release.key not in releases, f"two releases of {release.key} are published"
                releases[release.key] = release
        return releases

    def check(self, sent_bodies: list[Body], maker: Maker, batch: dict[str, int]) -> None:
        """Check all that is known at the end."""
        releases = self.releases()
        by_round: dict[Key, list[Body]] = defaultdict(list)
        for body in sent_bodies:
            by_round[body.key].append(body)
        for key, release in releases.items():
            if key[0] == "plain":
                assert release.received == batch[key[0]], f"{key} closed with {release.received} people"
                self._check_plain(key, release, by_round[key])
            else:
                self._check_mixed(key, release, by_round[key], maker, batch[key[0]])
        for key, bodies in by_round.items():
            if key not in releases:
                for body in bodies:
                    if body.is_junk:
                        continue
                    # A round that was open when a backup was put back is given up, and says so.
                    may_be_lost = self._restores_at_publication[key] < self.restores or not body.acknowledged
                    assert may_be_lost, f"{body.acknowledged} acknowledged reports of {key} are lost: {body.answers}"

    def _check_plain(self, key: Key, release: Release, bodies: list[Body]) -> None:
        mechanism = policy_of(self._body(release.closed, key)).terms.mechanism
        counts = count_marks(mechanism, release.total)
        duplicates = [mark for mark, number in counts.items() if number > 1]
        assert not duplicates, f"reports {duplicates} of {key} are counted more than once"
        assert sum(counts.values()) == release.received == release.total.reports, f"{key} counted others than its sums"
        sent_marks = {mark for body in bodies for mark in body.marks}
        assert set(counts) <= sent_marks, f"{key} counted what nobody sent"
        for body in bodies:
            has = sum(mark in counts for mark in body.marks)
            self._check_body(key, body, has)
        tokens = Counter(body.token for body in bodies if body.token and any(mark in counts for mark in body.marks))
        assert max(tokens.values(), default=1) == 1, f"a token admitted two reports to {key}"

    def _check_body(self, key: Key, body: Body, has: int) -> None:
        # docs/operations/data.md: an earlier copy of an open round lacks what came after it, which a shuffler knows.
        was_open = self._restores_at_publication[key] < self.restores
        if body.restores < self.restores or (was_open and key in self.batches):
            return
        assert body.acknowledged <= has, (
            f"of {body.acknowledged} acknowledged reports of {key}, {has} are counted: {body.answers}"
        )
        assert body.accepted <= has, f"{body.accepted} reports of {key} were accepted, and {has} count: {body.answers}"

    def _check_mixed(self, key: Key, release: Release, bodies: list[Body], maker: Maker, batch: int) -> None:
        publication = self._body(release.closed, key)
        policy, size = policy_of(publication), decode_publication(publication).round.report_size
        delivered = [messages(batch_body, size) for batch_body in self.batches[key]]
        sizes = [len(reports) for reports in delivered]
        assert all(number == batch for number in sizes), f"batches of {key} have {sizes} reports"
        all_reports = [report for reports in delivered for report in reports]
        assert len(set(all_reports)) == len(all_reports), f"a report of {key} is in two batches"
        counted_reports = next(
            (rows for rows in _combine(delivered) if _equal(release.total, tally(policy, maker.rows(rows)))), None
        )
        assert counted_reports is not None, f"the sums of {key} are of no batches that were delivered"
        assert release.received == release.total.reports, f"{key} counted others than its sums"
        counted_set = set(counted_reports)
        for body in bodies:
            self._check_body(key, body, sum(mark in counted_set for mark in body.marks))

    def _body(self, name: bytes, key: Key) -> bytes:
        assert name in self.bodies, f"the publication of {key} was never shown"
        return self.bodies[name]


def _combine(batches: list[list[bytes]]) -> Iterator[list[bytes]]:
    """Yield the reports of each combination of batches, all first: a batch after the round's end is not counted."""
    for number in range(len(batches), 0, -1):
        for combination in combinations(batches, number):
            yield [report for batch in combination for report in batch]


def _equal(total: Any, expected: Any) -> bool:
    return total.reports == expected.reports and all(
        np.array_equal(getattr(total, name), getattr(expected, name)) for name in ("sums", "counts", "hits")
    )
