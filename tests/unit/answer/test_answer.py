"""Answers, their parts, their export, and the people that they count."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privateer_core.answer import ESTIMATES_MAX, Answer
from privateer_core.answer.conclusion import SIZE_MAX, decode_answer, encode_answer
from privateer_core.answer.estimates import Effect, Estimate
from privateer_core.answer.export import read_export
from privateer_core.answer.facts import Among, Between, Bin, Fact, Table
from privateer_core.answer.parts import (
    BinMeans,
    EffectPath,
    EffectsOverTime,
    Figures,
    GuardrailEffects,
    MeansOfBin,
    Recommendation,
    Recommendations,
)
from privateer_core.answer.people import HeldReports, People
from privateer_core.answer.policy_view import (
    ArmsOfBin,
    ArmsOfGroup,
    BinShares,
    Coefficients,
    GroupShares,
    PlayCounts,
    Point,
    PolicyView,
    PublicDraw,
    leading_option,
)
from privateer_core.errors import Malformed, SpecError
from tests.documents import exports, vectors, wire

FOUND = Answer(
    stage="ended",
    people=20,
    rounds=2,
    confidence=0.95,
    recommended="short",
    estimates=(Estimate("short", 0.5, 0.25, 1.0), Estimate("long", 0.0, -1.0, 0.0)),
)
BARE = Answer(stage="learning", people=0, rounds=0, confidence=0.5)
WHERE = (Between("age", 18.0, 30.0, missing=True), Among("country", ("de", 3, True)))
PARTS = (
    Recommendations((Recommendation("young", "short", "ahead, and not decided"),)),
    BinMeans(("age",), (MeansOfBin((0.0,), (0.5,), WHERE, (Estimate("short", 0.5, 0.4, 0.6),)),), 0.95),
    EffectsOverTime((10, 20), (EffectPath("short", None, (None, 0.1), (None, 0.0), (None, 0.2)),)),
    GuardrailEffects("refund", (Effect("short", "young", None, None, None, "decided at an earlier look"),)),
    Figures("what it rests on", (Fact("looks", 3, "count"), Fact("method", ""))),
    Table.of("points", {"coordinate": "words", "centre": "number"}, (("x", 0.5),)),
    Point({"x": 0.5}, average={"x": 0.25}),
)


@pytest.mark.parametrize("answer", [FOUND, BARE, msgspec.structs.replace(FOUND, parts=PARTS)])
def test_an_answer_survives_encoding(answer: Answer) -> None:
    assert decode_answer(encode_answer(answer)) == answer
    assert msgspec.json.decode(msgspec.json.encode(answer), type=Answer) == answer


def test_before_the_first_report_an_answer_says_nothing() -> None:
    assert not BARE.says_something
    assert not BARE.is_over
    assert FOUND.says_something
    assert FOUND.is_over


def test_parts_are_found_by_their_type() -> None:
    answer = msgspec.structs.replace(FOUND, parts=PARTS)
    assert answer.first_of(Recommendations) == PARTS[0]
    assert answer.first_of(PolicyView) is None
    assert answer.all_of(Figures) == [PARTS[4]]


WRONG: dict[str, dict[str, Any]] = {
    "no interval": {"estimates": [{"name": "a", "value": 1.0}]},
    "out of its interval": {"estimates": [{"name": "a", "value": 1.0, "low": 2.0, "high": 3.0}]},
    "nan": {"estimates": [{"name": "a", "value": math.nan, "low": 0.0, "high": 3.0}]},
    "infinite": {"estimates": [{"name": "a", "value": 1.0, "low": -math.inf, "high": 3.0}]},
    "an interval of infinite ends": {"estimates": [{"name": "a", "value": math.inf, "low": 0.0, "high": math.inf}]},
    "a text for a number": {"estimates": [{"name": "a", "value": "1", "low": 0.0, "high": 3.0}]},
    "a name that steers a terminal": {"estimates": [{"name": "\x1b[2J", "value": 1.0, "low": 0.0, "high": 3.0}]},
    "an empty name": {"estimates": [{"name": "", "value": 1.0, "low": 0.0, "high": 3.0}]},
    "a long name": {"estimates": [{"name": "a" * 257, "value": 1.0, "low": 0.0, "high": 3.0}]},
    "a name twice": {"estimates": [{"name": "a", "value": 1.0, "low": 0.0, "high": 3.0}] * 2},
    "too many": {
        "estimates": [{"name": str(i), "value": 1.0, "low": 0.0, "high": 3.0} for i in range(ESTIMATES_MAX + 1)]
    },
    "too sure": {"confidence": 1.5},
    "not sure of being sure": {"confidence": math.nan},
    "a recommendation of two lines": {"recommended": "a\nb"},
    "neither over nor not": {"stage": True},
    "a stage of its own": {"stage": "tired"},
    "a warning that steers a terminal": {"warnings": ["\x1b[2J"]},
    "a part of no kind": {"parts": [{"title": "a"}]},
    "a part of a kind of its own": {"parts": [{"kind": "song", "title": "a"}]},
    "an effect without end": {"gain": {"arm": "a", "value": math.inf, "low": None, "high": None}},
    "more": {"surprise": 1},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_malformed_answer_is_refused(wrong: str) -> None:
    document = msgspec.to_builtins(FOUND) | WRONG[wrong]
    with pytest.raises(Malformed) as refused:
        decode_answer(msgspec.msgpack.encode(document))
    assert refused.value.remedy
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(document, Answer)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc0",
        encode_answer(FOUND)[:-1],
        encode_answer(FOUND) + b"\x00",
        b"\x91" * 100_000,
        bytes(SIZE_MAX + 1),
        encode_answer(BARE).replace(b"confidence", b"confid\xff\xffce"),
    ],
)
def test_bytes_that_are_no_answer_are_refused(body: bytes) -> None:
    with pytest.raises(Malformed):
        decode_answer(body)


@pytest.mark.parametrize(
    ("value", "ends", "at_bound"),
    [(0.5, (0.4, 0.6), False), (0.95, (0.85, 1.0), False), (1.0, (0.9, 1.0), False), (1.03, (0.93, 1.0), True)],
)
def test_an_estimate_is_never_beyond_the_bounds(value: float, ends: tuple[float, float], at_bound: bool) -> None:
    estimate = Estimate.within("a", value, 0.1, (0.0, 1.0))
    assert (estimate.low, estimate.high) == pytest.approx(ends)
    assert estimate.value == min(value, 1.0)
    assert estimate.at_bound is at_bound


POLICIES = (
    BinShares(("age", "age is missing"), (ArmsOfBin((0.0, 0.0), (0.5, 1.0), WHERE, {"a": 0.25, "b": 0.75}),)),
    GroupShares((ArmsOfGroup("everybody", {"a": 1.0}),)),
    Coefficients("logistic", "log odds", {"age": 0.5}, {"a": {"1": 0.25}}),
    PlayCounts({"3": 7}, ("3", "4"), 100, PublicDraw(5, 0, 100)),
    Point({"x": 0.5}, nearest=0.1, farthest=0.2),
)


@pytest.mark.parametrize("shows", POLICIES)
def test_a_policy_view_survives_encoding(shows: Any) -> None:
    view = PolicyView("one", 3, shows, (Fact("explores", value=True, kind="yes or no"),))
    assert msgspec.json.decode(msgspec.json.encode(view), type=PolicyView) == view


@pytest.mark.parametrize(
    "wrong",
    [
        {"shows": {"kind": "song"}},
        {"shows": {"kind": "groups", "groups": [{"name": "all", "arms": {"a": 1.5}}]}},
        {"shows": {"kind": "groups", "groups": [{"name": "all", "arms": {"\x1b[2J": 0.5}}]}},
        {"shows": {"kind": "bins", "columns": ["x"], "bins": [{"lower": [], "upper": [], "where": [], "arms": {}}]}},
        {"shows": {"kind": "bins", "columns": [], "bins": [{"lower": [0], "upper": [], "where": [], "arms": {}}]}},
        {"facts": [{"name": "x", "value": "\x1b[2J"}]},
        {"algorithm": "a\nb"},
    ],
)
def test_a_malformed_policy_is_refused(wrong: dict[str, Any]) -> None:
    view = msgspec.to_builtins(PolicyView("one", 3, POLICIES[1])) | wrong
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(view, PolicyView)


def test_the_leading_option_is_unique_or_none() -> None:
    assert leading_option({"a": 0.5, "b": 0.25, "c": 0.25}) == "a"
    assert leading_option({"a": 0.3333, "b": 0.3333, "c": 0.3333}) is None


def test_a_bin_has_two_corners_of_one_length() -> None:
    with pytest.raises(ValueError, match="corners"):
        Bin((0.0,), (1.0, 1.0), ())


def test_a_reason_is_one_of_a_closed_set() -> None:
    document = msgspec.to_builtins(
        msgspec.structs.replace(BARE, effects=(Effect("b", None, 0.1, 0.0, 0.2, "its interval holds 0"),))
    )
    assert decode_answer(msgspec.msgpack.encode(document)).effects[0].is_decided is False
    document["effects"][0]["reason"] = "it seems so"
    with pytest.raises(Malformed):
        decode_answer(msgspec.msgpack.encode(document))


_, SPEC, PUBLICATION = vectors.cases()[0]
DOCUMENT = exports.decode_export(exports.build_export(SPEC, PUBLICATION))


def test_an_export_survives_being_written_by_another_program() -> None:
    document = json.loads(json.dumps(DOCUMENT, indent=4, sort_keys=True))
    assert read_export(document, "FILE").publication_bytes == PUBLICATION


def test_the_vectors_hold_refused_exports() -> None:
    for case in json.loads((wire.FEW / "exports.json").read_text())["refused"]:
        if case["refused"] is None or "contradict" in case["refused"]:
            continue
        with pytest.raises(SpecError) as caught:
            read_export(case["document"], "FILE")
        assert caught.value.detail.startswith(case["refused"])
        assert caught.value.remedy


def leaf_paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every leaf of a document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    paths = [leaf_path for key, item in items for leaf_path in leaf_paths(item, (*path, key))]
    return paths or [path]


LEAVES = leaf_paths(DOCUMENT)


@given(st.sampled_from(LEAVES), st.sampled_from([None, 7, "x", 0.5, True, [], {}]))
def test_a_change_anywhere_is_found(path: tuple[Any, ...], value: Any) -> None:
    changed = json.loads(json.dumps(DOCUMENT))
    at = changed
    for key in path[:-1]:
        at = at[key]
    if at[path[-1]] == value and type(at[path[-1]]) is type(value):
        return
    at[path[-1]] = value
    with pytest.raises(SpecError, match=r"damaged|not an export"):
        read_export(changed, "FILE")


@pytest.mark.parametrize("document", [None, [], "text", {}, {"format": 7}, {"format": "privateer/export/x"}])
def test_a_document_that_is_no_export_is_refused(document: Any) -> None:
    with pytest.raises(SpecError, match="is not an export"):
        read_export(document, "FILE")


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
def test_sentences_on_people_equal_those_of_the_dashboard(case: dict[str, Any]) -> None:
    """tests/dashboard reads the same cases."""
    assert msgspec.convert(case["people"], People).sentence == case["sentence"]


def test_counts_that_a_server_cannot_see_are_unknown_and_not_zero() -> None:
    server = People.from_parts(5700, 3000, reports=HeldReports(0, None, 1000), out_of_reach=700, is_unknown=True)
    assert (server.unknown, server.not_asked) == (1000, 1000)
    assert "1,000 not asked or at the shuffler (not known which)" in server.sentence
    assert "0 held" not in server.sentence
    assert "339 held at the shuffler; 1,661 not asked" in server.with_shuffler(339).sentence
