"""Reports that can be recognised in a sum, and the answers to them."""

import os
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from privateer_core.algorithms import algorithm, parse_spec
from privateer_core.codec import decode
from privateer_core.mechanisms.cell_pairs import CellPairs
from privateer_core.mechanisms.central_sums import CentralSums
from privateer_core.mechanisms.mechanism import UNIT
from privateer_core.wire.batch import decode_batch
from privateer_core.wire.publication import decode_publication, split_bytes
from tests.support.sealing import body_of, plain_reports, seal

_DIGIT = 4
_DIGITS = 8
"""Powers of 4 that fit into a value: a digit tells how often the report was counted, up to 3 times."""


@dataclass(eq=False)
class Body:
    """What a sender sends, the same bytes each time.

    Attributes
    ----------
    marks
        What tells its reports in a sum; sealed bytes, if they go through the shuffler.
    accepted
        Over all answers, how many reports were accepted.
    acknowledged
        The most reports that an answer said were taken, then or before.
    is_settled
        Whether a last answer has come.
    restores
        How often a backup had been put back when the last acknowledgement came.
    """

    experiment: str
    version: int
    content: bytes
    marks: list[Any]
    token: bytes | None = None
    is_junk: bool = False
    accepted: int = 0
    acknowledged: int = 0
    is_settled: bool = False
    restores: int = 0
    answers: list[str] = field(default_factory=list)

    @property
    def key(self) -> tuple[str, int]:
        return self.experiment, self.version


def policy_of(publication: bytes) -> Any:
    """The policy in a publication."""
    published = decode_publication(publication)
    spec = parse_spec(msgspec.json.decode(published.spec))
    return decode(published.policy, algorithm(spec.algorithm.name).policy)


class Maker:
    """Makes bodies; no two reports are the same."""

    def __init__(self) -> None:
        self._used: Counter[tuple[str, int]] = Counter()
        self.plain: dict[bytes, bytes] = {}
        self._seed = 0

    def body(self, publication: bytes, people: int, token: bytes | None = None) -> Body | None:
        """Make a body of ``people`` reports, or of as many as a sum can distinguish; None if that is none."""
        facts = decode_publication(publication).round
        key = facts.experiment, facts.version
        if facts.endpoint == "shuffler":
            sealed = self._mixed(publication, people)
            return Body(*key, body_of(publication, sealed), list(sealed), token)
        mechanism = policy_of(publication).terms.mechanism
        first = self._used[key]
        marks = range(first, min(first + people, mechanism.layout.keys * _DIGITS))
        self._used[key] += len(marks)
        sealed = [seal(publication, os.urandom(16) + _row(mark, mechanism)) for mark in marks]
        return Body(*key, body_of(publication, sealed), list(marks), token) if sealed else None

    def junk(self, publication: bytes, people: int) -> Body:
        """A body that nothing opens."""
        facts = decode_publication(publication).round
        sealed = [os.urandom(facts.report_size) for _ in range(people)]
        return Body(facts.experiment, facts.version, body_of(publication, sealed), list(sealed), is_junk=True)

    def rows(self, sealed: list[bytes]) -> list[bytes]:
        """Return the contents of those sealed reports that this maker made."""
        return [self.plain[report] for report in sealed if report in self.plain]

    def _mixed(self, publication: bytes, people: int) -> list[bytes]:
        self._seed += 1
        rows = plain_reports(publication, people, self._seed)
        sealed = [seal(publication, os.urandom(16) + row) for row in rows]
        self.plain.update(zip(sealed, rows, strict=True))
        return sealed


def _row(mark: int, mechanism: CentralSums | CellPairs) -> bytes:
    digit, key = divmod(mark, mechanism.layout.keys)
    row = np.zeros(1, mechanism.message)
    row["key"], row["value"] = key, _DIGIT**digit
    if "slot" in mechanism.message.names:
        row["slot"] = int.from_bytes(os.urandom(4))
    return row.tobytes()


def _values(mechanism: CentralSums | CellPairs, total: Any) -> list[int]:
    """The sum of the values of each key."""
    if isinstance(mechanism, CellPairs):
        return [int(value) for value in total.cells[1].sum(axis=1)]
    doubled = (total.sums + UNIT * total.hits).sum(axis=1)
    assert not (doubled % 2).any(), "it is a sum of scores"
    return [int(value) // 2 for value in doubled]


def count_marks(mechanism: CentralSums | CellPairs, total: Any) -> Counter[int]:
    """How often each mark is in a sum."""
    counter: Counter[int] = Counter()
    for key, remainder in enumerate(_values(mechanism, total)):
        for digit in range(_DIGITS + 1):
            remainder, times = divmod(remainder, _DIGIT)
            counter[digit * mechanism.layout.keys + key] += times
        assert remainder == 0, "it is a sum of marks"
    return +counter


def tally(policy: Any, rows: list[bytes]) -> Any:
    """The exact sums of reports."""
    return policy.make_analyzer(policy).tally(policy.terms.mechanism, b"".join(rows))


def messages(batch: bytes, size: int) -> list[bytes]:
    """The sealed reports of a batch's body."""
    return split_bytes(decode_batch(batch).sealed, size)
