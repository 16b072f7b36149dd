"""``privateer policy`` and ``show``: what is no map is printed as tables, results with their intervals."""

import json
from typing import Any

import pytest

from privateer_lab import rest
from privateer_lab.bin_map import chosen_by
from privateer_lab.cli import main
from privateer_lab.output import print_tables, whole_percent
from privateer_server.rounds.loop import Schedule
from tests.support.phased import phased_spec
from tests.support.specs import make_spec

RESULT = {
    "estimates": [{"name": "3", "value": 0.5, "low": 0.25, "high": 0.75}],
    "confidence": 0.999992,
    "recommended": "3",
    "stopped": True,
}


def cells(text: str) -> list[list[str]]:
    """The cells of each line of a table."""
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines()]
    return [line for line in lines if line]


def shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str, answers: Any) -> str:
    monkeypatch.setattr("privateer_lab.commands.experiments.ask", lambda _, url: answers(url.rpartition("/")[2]))
    with pytest.raises(SystemExit) as stop:
        main([command, "test"])
    assert stop.value.code in (None, 0)
    return capsys.readouterr().out


def test_a_policy_without_bins_is_tables(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    spec = phased_spec({"asking.reserve": 2.0})
    step = Schedule(spec).open(3)
    described = json.loads(json.dumps(step.policy.describe(spec)))
    rows = cells(shown(monkeypatch, capsys, "policy", lambda _: {"policy": described, "spec": {}}))
    for row in (["clients", "2"], ["places", "4"], ["active", "0, 1, 2, 3, 4, 5, 6, 7, ... (30 in all)"]):
        assert row in rows
    for action, plays in described["plays"].items():
        assert [action, str(plays)] in rows


@pytest.mark.parametrize("has", [True, False])
def test_show_prints_the_result_if_there_is_one(
    has: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def answers(page: str) -> dict[str, Any]:
        if page == "result" and not has:
            raise rest.NotThere("no result")
        pages = {"result": {"result": RESULT}, "privacy": {"certificate": {"claims": []}}}
        return pages.get(page, {"name": "test", "status": "open"})

    text = shown(monkeypatch, capsys, "show", answers)
    rows = cells(text)
    assert ("intervals of 99.9992% confidence" in text) is has
    assert not any(row[0] == "result" for row in rows)
    assert (["3", "0.5", "0.25", "0.75"] in rows) is ("It names 3. " in text) is has


@pytest.mark.parametrize(
    ("found", "says"),
    [(None, None), ({"found": False}, "do not contradict"), ({"found": True, "since": 6400}, "after the first 6,400")],
)
def test_show_says_whether_rounds_contradict_each_other(
    found: dict[str, Any] | None, says: str | None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = found and {"evidence": 4.5, "false_alarm_rate": 0.001, **found}
    pages = {
        "result": {"result": RESULT},
        "privacy": {"certificate": {"claims": []}},
        "state": {"state": {"contradiction": known}},
    }
    said = " ".join(shown(monkeypatch, capsys, "show", lambda page: pages.get(page, {"name": "test"})).split())
    assert ("contradict" in said) is (says is not None)
    assert says is None or says in said
    assert ("warning" in said) is bool(found and found["found"])


@pytest.mark.parametrize("words", [None, "kept of 8: b3, b6"])
def test_show_says_which_features_were_kept(
    words: str | None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = {
        "result": {"result": RESULT},
        "privacy": {"certificate": {"claims": []}},
        "state": {"state": {"screening": {"words": words}} if words else {}},
    }
    said = " ".join(shown(monkeypatch, capsys, "show", lambda page: pages.get(page, {"name": "test"})).split())
    assert ("kept of" in said) is (words is not None)
    assert words is None or words in said


def test_parts_of_a_document_are_tables(capsys: pytest.CaptureFixture[str]) -> None:
    print_tables("all", {"a": 1, "b": [{"x": 2, "y": 0.5}], "c": {"d": {"e": []}}})
    assert {("a", "1"), ("2", "0.5"), ("e", "")} <= {tuple(row) for row in cells(capsys.readouterr().out)}


def test_a_share_that_is_not_all_is_never_rounded_to_all_nor_one_that_is_something_to_nothing() -> None:
    said = [whole_percent(share) for share in (0.0, 0.001, 0.5, 0.9999, 1.0)]
    assert said == [
        "0%",
        "below 1%",
        "50%",
        "above 99%",
        "100%",
    ]
    assert chosen_by({"a": 0.9999, "b": 0.0001, "c": 0.0}) == "a above 99%, b below 1%"


def test_bins_of_levels_are_a_table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    features = {"country": {"levels": ["NL", "DE"]}, "hours": {"low": 0, "high": 80, "missing": True}}
    spec = make_spec({"context.features": features})
    policy = Schedule(spec).open(0).policy
    described = json.loads(json.dumps(policy.describe(spec)))
    parts: list[dict[str, Any]] = [
        {},
        {"country": ["DE", "other"], "hours": [0.0, 40.0]},
        {"hours": None},
        {"hours": [40.0, 80.0, None]},
    ]
    described["bins"] = [described["bins"][0] | {"where": where} for where in parts]
    answers = {"policy": {"policy": described}, "test": {"spec": spec.model_dump(mode="json")}}
    rows = cells(shown(monkeypatch, capsys, "policy", lambda page: answers[page]))
    said = ["all", "country: DE, other; hours from 0 to 40", "hours: missing", "hours from 40 to 80, or missing"]
    assert [row[0] for row in rows[-4:]] == said
    assert rows[-1][1] == "arm-0 33%, arm-1 33%, arm-2 33%"
