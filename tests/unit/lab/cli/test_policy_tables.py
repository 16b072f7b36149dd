"""``privateer answer --as``: policies without a map are tables, and results have confidence intervals."""

from typing import Any

import msgspec
import pytest

from privateer_core.answer import Answer
from privateer_core.answer.estimates import Estimate
from privateer_core.answer.facts import Among, Between, Condition
from privateer_core.answer.parts import DriftTest, FeatureSelection
from privateer_lab.cli.command_line import main
from privateer_lab.render.words import format_arm_shares, whole_percent
from privateer_server.rounds.loop import Schedule
from tests.support.phased import phased_spec
from tests.support.published_answers import PEOPLE, SENTENCE, document
from tests.support.specs import make_spec

ANSWER = Answer("ended", 100, 2, 0.999992, "3", estimates=(Estimate("3", 0.5, 0.25, 0.75),))
NOTHING = Answer("learning", 0, 0, 0.95)


def cells(text: str) -> list[list[str]]:
    """The cells of each line of a table."""
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines()]
    return [line for line in lines if line]


def run_view(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], view: str, answers: Any) -> str:
    for module in ("cli.ask", "services.rest"):
        monkeypatch.setattr(
            f"privateer_lab.{module}.request_json", lambda _, url, **__: answers(url.rpartition("/")[2])
        )
    with pytest.raises(SystemExit) as stop:
        main(["answer", "test", "--as", view])
    assert stop.value.code in (None, 0)
    return capsys.readouterr().out


def test_a_policy_without_bins_is_tables(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    spec = phased_spec({"recruitment.over_selection_factor": 2.0})
    step = Schedule(spec).open(3)
    view = msgspec.to_builtins(step.policy.view(spec))
    warned = document(msgspec.structs.replace(NOTHING, warnings=("reward.base_rate is far off",)))
    pages = {"answer": warned}
    text = run_view(monkeypatch, capsys, "policy", lambda page: pages.get(page, {"policy": view, "spec": {}}))
    assert "warning: reward.base_rate is far off" in text
    rows = cells(text)
    for row in (["people asked", "2"], ["places", "4"], ["active", "0, 1, 2, 3, 4, 5, 6, 7, ... (30 in all)"]):
        assert row in rows
    for action, plays in view["shows"]["plays"].items():
        assert [action, str(plays)] in rows


PAGES = {"privacy": {"certificate": {"claims": []}}}


def show(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer: Answer, view: str) -> str:
    pages, people = PAGES | {"answer": document(answer)}, msgspec.to_builtins(PEOPLE)
    return run_view(
        monkeypatch, capsys, view, lambda page: pages.get(page, {"name": "test", "status": "open", "people": people})
    )


@pytest.mark.parametrize("has", [True, False])
def test_effects_prints_the_findings_if_there_are_any(
    has: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = show(monkeypatch, capsys, ANSWER if has else NOTHING, "details")
    rows = cells(text)
    assert ("intervals of 99.9992% confidence" in text) is has
    assert (["3", "0.5", "0.25", "0.75"] in rows) is has
    assert SENTENCE in text


def test_show_says_the_headline_and_no_table_of_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = show(monkeypatch, capsys, ANSWER, "progress")
    assert SENTENCE in text
    assert not any(row[0] in ("answer", "conclusion") for row in cells(text))


@pytest.mark.parametrize(
    ("drift", "says"),
    [
        (None, None),
        (DriftTest(detected=False, evidence=4.5, false_alarm_rate=0.001), "do not contradict"),
        (DriftTest(detected=True, evidence=4.5, false_alarm_rate=0.001, since=6400), "after the first 6,400"),
    ],
)
def test_effects_say_whether_rounds_contradict_each_other(
    drift: DriftTest | None,
    says: str | None,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer = msgspec.structs.replace(ANSWER, parts=() if drift is None else (drift,))
    output = " ".join(show(monkeypatch, capsys, answer, "details").split())
    assert ("contradict" in output) is (says is not None)
    assert says is None or says in output
    assert ("warning" in output) is bool(drift and drift.detected)


@pytest.mark.parametrize("selection", [None, FeatureSelection(100, 8, ("b3", "b6"), {"b3": 1.0, "b6": 2.0})])
def test_effects_say_which_features_were_kept(
    selection: FeatureSelection | None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = msgspec.structs.replace(ANSWER, parts=() if selection is None else (selection,))
    output = " ".join(show(monkeypatch, capsys, answer, "details").split())
    assert ("kept of 8: b3, b6" in output) is (selection is not None)


def test_a_share_is_rounded_neither_to_zero_nor_to_one() -> None:
    percents = [whole_percent(share) for share in (0.0, 0.001, 0.5, 0.9999, 1.0)]
    assert percents == [
        "0%",
        "below 1%",
        "50%",
        "above 99%",
        "100%",
    ]
    assert format_arm_shares({"a": 0.9999, "b": 0.0001, "c": 0.0}) == "a above 99%, b below 1%"


def test_bins_of_levels_are_a_table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    features = {"country": {"levels": ["NL", "DE"]}, "hours": {"low": 0, "high": 80, "missing": True}}
    spec = make_spec({"context.features": features})
    view = Schedule(spec).open(0).policy.view(spec)
    parts: list[tuple[Condition, ...]] = [
        (),
        (Among("country", ("DE", "other")), Between("hours", 0.0, 40.0)),
        (Among("hours", (), missing=True),),
        (Between("hours", 40.0, 80.0, missing=True),),
    ]
    bins = tuple(msgspec.structs.replace(view.shows.bins[0], where=part) for part in parts)
    view = msgspec.structs.replace(view, shows=msgspec.structs.replace(view.shows, bins=bins))
    answers = {"policy": {"policy": msgspec.to_builtins(view)}, "test": {"spec": spec.model_dump(mode="json")}}
    answers["answer"] = document(NOTHING)
    rows = cells(run_view(monkeypatch, capsys, "policy", lambda page: answers[page]))
    conditions = ["all", "country: DE, other; hours from 0 to 40", "hours: missing", "hours from 40 to 80, or missing"]
    assert [row[0] for row in rows[-4:]] == conditions
    assert rows[-1][1] == "arm-0 33%, arm-1 33%, arm-2 33%"
