"""A server asks people for several messages, and says that they are fewer, or that they cost less than they do."""

import math
from typing import Any

import pytest

from privateer_client.participation import Participation
from privateer_core.errors import Malformed, SpecError, TermsRefused
from privateer_core.mechanisms.vectors.vector_symbol import VectorSymbol
from privateer_core.primitives.clipping import Ball
from privateer_core.privacy.record_verification import read_certificates
from privateer_core.privacy.terms_verification import Limits
from tests.support import publications
from tests.support.records import SPECS, record_of

SPEC = SPECS["messages"]


def each() -> float:
    """Local epsilon of one of three messages."""
    _, policy = publications.parts(SPEC)
    return float(policy["terms"]["mechanism"]["epsilon"])


def meets(limit: float = math.inf, mechanism: dict[str, Any] | None = None, **round_: Any) -> Participation:
    body = publications.published(SPEC, mechanism=mechanism, round_=round_)
    return Participation(body, "test", Limits(local_epsilon=limit))


def test_a_device_counts_all_messages_against_its_limit() -> None:
    """Planted: a limit that one of them is far below, and two are."""
    assert meets(3 * each()).terms.local_epsilon == 3 * each()
    with pytest.raises(TermsRefused, match="this device allows") as refused:
        meets(2.5 * each())
    assert refused.value.field == "local_epsilon"


@pytest.mark.parametrize("repeats", [-3, 0, 4, 17, 1 << 40, 2.5, math.nan, None, True, "3", 3 * [1]])
def test_other_numbers_of_messages_are_refused(repeats: Any) -> None:
    for told in ({}, {"messages": repeats} if repeats in (4, 17) else {}):
        with pytest.raises((TermsRefused, Malformed)):
            meets(mechanism={"repeats": repeats}, **told)


@pytest.mark.parametrize("told", [{"messages": 1}, {"messages": 2}, {"messages": 6}, {"messages": 3, "groups": 3}])
def test_rounds_of_other_messages_than_the_mechanism_are_refused(told: dict[str, int]) -> None:
    with pytest.raises(TermsRefused, match="disagree"):
        meets(**told)


def test_messages_whose_sum_breaks_the_promise_are_refused() -> None:
    """Each keeps it by itself: the device must compose them."""
    assert meets(mechanism={"repeats": 1}, messages=1).terms.true_delta < 0.1 * SPEC.privacy.delta
    with pytest.raises(TermsRefused, match="delta is"):
        meets(mechanism={"epsilon": 1.25 * each()})


def test_a_crowd_of_millions_costs_a_device_no_more_than_a_large_one() -> None:
    """Composing events of 90 million people would take it minutes."""
    one = VectorSymbol(Ball("l2", 1.0, 9), 2.0, 8, 2, 3, repeats=2)
    assert one.shuffled(90_000_000) == one.shuffled(20_000) != one.shuffled(19_900)


def test_records_of_rounds_of_other_sizes_hold_and_no_cheaper_ones_do() -> None:
    """The certificate covers what each round's messages cost together; with one round less it does not."""
    record = record_of("messages", 3)
    events = {(row["honest"], row["mechanism"]["epsilon"]) for row in record["rounds"]}
    assert len(events) > 1
    assert read_certificates(record)[""].experiment == "test"
    for change in ({"repeats": 2}, {"repeats": 1}, {"epsilon": each() / 2}):
        changed = record_of("messages", 3)
        changed["rounds"][0]["mechanism"] |= change
        with pytest.raises(SpecError):
            read_certificates(changed)
    record["certificate"] = record_of("messages", 1)["certificate"]
    with pytest.raises(SpecError, match="does not cover"):
        read_certificates(record)
