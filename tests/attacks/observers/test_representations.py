"""Representations of a service's objects, as tracebacks and logs print them, hide reports and tokens."""

from collections import Counter

import numpy as np
import pytest

from privateer_core.mechanisms.shared_votes import VotesTotal
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.vdaf.batch import Report
from privateer_server.intake.leader import JoinedBatch
from privateer_server.intake.spent_tokens import ReportTokens
from privateer_server.store.records import TokenRow

SECRET = b"a secret"


def spent_tokens() -> ReportTokens:
    tokens = ReportTokens(lambda _expires, _token: None)
    tokens.new_rows[SECRET] = TokenRow(0, SECRET, SECRET)
    return tokens


def joined_batch() -> JoinedBatch:
    cells = np.full((2, 1, 1), 7654)
    return JoinedBatch(1, VotesTotal(1, cells, cells[0], cells, 1), Counter())


@pytest.mark.parametrize(
    "subject",
    [
        spent_tokens(),
        joined_batch(),
        Report(b"", b"", SECRET),
        KeyedValues(np.zeros(1, np.uint32), np.array([7654]), np.array([0]), np.array([0.7654])),
    ],
    ids=lambda subject: type(subject).__name__,
)
def test_nothing_secret_is_printed(subject: object) -> None:
    printed = f"{subject} {subject!r} {[subject]}"
    assert "7654" not in printed
    assert SECRET.decode() not in printed
