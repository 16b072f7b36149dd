"""``privateer answer --as``: policies are maps or tables, and results have confidence intervals."""

from typing import Any

import msgspec
import pytest

from privateer_core.answer import Answer
from privateer_core.answer.facts import Among, Between, Condition
from privateer_core.answer.policy_view import ArmsOfBin, BinShares
from privateer_lab.cli.command_line import main
from privateer_lab.render.terminal import draw_map
from privateer_lab.render.words import format_arm_shares, whole_percent
from privateer_server.rounds.schedule import Schedule
from tests.support.answers import document
from tests.support.phased import phased_spec
from tests.support.specs import make_spec

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


def test_a_share_is_rounded_neither_to_zero_nor_to_one() -> None:
    percents = [whole_percent(share) for share in (0.0, 0.001, 0.5, 0.9999, 1.0)]
    assert percents == ["0%", "below 1%", "50%", "above 99%", "100%"]
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


def shows(*bins: tuple[tuple[float, ...], tuple[float, ...], dict[str, float]]) -> BinShares:
    return BinShares(("x", "y")[: len(bins[0][0])], tuple(ArmsOfBin(low, high, (), arms) for low, high, arms in bins))


BINS = shows(
    ((0.0, 0.0), (0.5, 1.0), {"a": 1.0}),
    ((0.5, 0.0), (1.0, 0.5), {"a": 0.3, "b": 0.7}),
    ((0.5, 0.5), (1.0, 1.0), {"b": 1.0}),
)


def test_a_map_of_two_features_has_their_bins() -> None:
    lines = draw_map(BINS, ["a", "b"], width=4, height=2).plain.splitlines()
    assert lines[:2] == ["AABB", "AAbb"]
    assert lines[2].startswith("A = a, B = b")


def test_a_map_of_one_feature_has_its_bins() -> None:
    bins = shows(((0.0,), (0.5,), {"a": 1.0}), ((0.5,), (1.0,), {"b": 1.0}))
    assert draw_map(bins, ["a", "b"], width=4).plain.splitlines()[0] == "AABB"


def test_no_arm_leads_in_a_bin_without_estimates() -> None:
    bins = shows(((0.0,), (0.5,), {"a": 0.5, "b": 0.5}), ((0.5,), (1.0,), {"a": 0.0, "b": 1.0}))
    line, legend = draw_map(bins, ["a", "b"], width=4).plain.splitlines()
    assert line == "..BB"
    assert legend == "A = a, B = b; .: several have the same share, and none is ahead"
