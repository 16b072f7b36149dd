"""Counts of participants add up, list unknown participants, and have the same words everywhere."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privateer_core.answer.people import HeldReports, People

CASES = json.loads((Path(__file__).parents[2] / "dashboard" / "people.json").read_text())
COUNTS = st.integers(0, 10**6)
ACCOUNTS = st.builds(
    People.from_parts,
    COUNTS,
    COUNTS,
    reports=st.builds(HeldReports, COUNTS, st.just(None), COUNTS),
    refused=st.dictionaries(st.sampled_from(["round-closed", "decryption-failed"]), COUNTS),
    out_of_reach=COUNTS,
    is_unknown=st.booleans(),
)


def total(people: People) -> int:
    parts = (people.counted, people.held.in_open_round, people.held.at_shuffler or 0, sum(people.refused.values()))
    return sum(parts) + people.not_asked + people.out_of_reach + people.unknown - people.replaced


@given(ACCOUNTS, COUNTS, COUNTS)
def test_counts_of_participants_add_up(people: People, n_at_shuffler: int, uncertainty: int) -> None:
    assert total(people) == people.planned
    new = people.with_shuffler(n_at_shuffler, uncertainty)
    assert total(new) == new.planned == people.planned
    assert (new.counted, new.out_of_reach, new.refused) == (people.counted, people.out_of_reach, people.refused)
    assert new.held.at_shuffler == min(n_at_shuffler, people.unknown)
    assert new.unknown <= uncertainty
    combined = people + new
    assert total(combined) == combined.planned == 2 * people.planned
    assert msgspec.json.decode(msgspec.json.encode(new), type=People) == new


@pytest.mark.parametrize(
    "lie",
    [
        {"counted": 5700},
        {"not_asked": -1, "counted": 3001},
        {"planned": 5701},
        {"replaced": 1},
        {"refused": {"": 0}},
        {"refused": {"a\x1b": 0}},
        {"held": HeldReports(needed=-1)},
    ],
)
def test_counts_that_do_not_add_up_are_refused(lie: dict[str, Any]) -> None:
    people = People(5700, 3000, not_asked=2000, out_of_reach=700)
    with pytest.raises(ValueError, match=r"must|may"):
        replace(people, **lie)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(
            msgspec.to_builtins(people) | {name: msgspec.to_builtins(count) for name, count in lie.items()}, People
        )


@pytest.mark.parametrize("case", CASES)
def test_the_words_are_those_of_the_dashboard(case: dict[str, Any]) -> None:
    """tests/dashboard reads the same cases."""
    assert msgspec.convert(case["people"], People).sentence == case["sentence"]


def test_counts_that_a_server_cannot_see_are_unknown_and_not_zero() -> None:
    server = People.from_parts(5700, 3000, reports=HeldReports(0, None, 1000), out_of_reach=700, is_unknown=True)
    assert (server.unknown, server.not_asked) == (1000, 1000)
    assert "1,000 not asked or at the shuffler (not known which)" in server.sentence
    assert "0 held" not in server.sentence
    assert "339 held at the shuffler; 1,661 not asked" in server.with_shuffler(339).sentence
