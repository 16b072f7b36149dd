"""The words of a finished test: its control, shares as ratios, directions, and hints on outcomes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privateer_lab as lab
from privateer_core.errors import SpecError
from privateer_lab.tables.data_column import sort_names
from tests.unit.lab.cli.test_command_line import run


def rows(*arms: Any, people: int = 3000) -> dict[str, Any]:
    """Return people with an arm each; later arms have the outcome more often."""
    rng = np.random.default_rng(2)
    places = rng.integers(0, len(arms), people)
    return {"arm": [arms[place] for place in places], "ill": (rng.random(people) < 0.2 + 0.1 * places).astype(int)}


@pytest.mark.parametrize("shares", [{"b": 2, "a": 1}, {"b": 200 / 3, "a": 100 / 3}, {"b": 2 / 3, "a": 1 / 3}])
def test_shares_may_be_ratios(shares: dict[str, float]) -> None:
    people = {"arm": ["a", "b", "b"] * 500, "ill": [0, 1, 1, 0, 0, 1] * 250}
    analysis = lab.analyze(people, reward="ill", shares=shares)
    assert "Counts fit the shares that were meant, as given (p 1): a 33.3%, b 66.7%." in analysis.assumed


def test_the_command_takes_ratios(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("arm,reward\n" + "a,0\nb,1\nb,1\na,0\nb,0\nb,1\n" * 100)
    code, out, err = run(capsys, "analyze", str(path), "--share", "a=1", "--share", "b=2")
    assert (code, err) == (0, "")
    assert "a 33.3%, b 66.7%" in out
    code, _, err = run(capsys, "analyze", str(path), "--share", "a=0.1", "--share", "b=2")
    assert (code, err.count("shares: must have a sum of 1, not 2.1")) == (2, 1)


@pytest.mark.parametrize("shares", [None, {"old": 1, "new": 1}, {"new": 1, "old": 1}])
def test_the_control_is_the_first_by_name_whether_or_not_shares_are_given(shares: dict[str, float] | None) -> None:
    analysis = lab.analyze(rows("new", "old"), reward="ill", shares=shares)
    assert analysis.spec.options == ("new", "old")
    assert "Others are compared with new, the first by name: --control names another." in analysis.assumed
    named = lab.analyze(rows("new", "old"), reward="ill", shares=shares, control="old")
    assert named.spec.options == ("old", "new")
    assert not any("the first by name" in note for note in named.assumed)


def test_arms_that_are_numbers_have_their_order() -> None:
    analysis = lab.analyze(rows(5, 20, 100, -1), reward="ill")
    assert analysis.spec.options == ("-1", "5", "20", "100")
    assert lab.spec_from(rows(5, 20, 100), arm="arm", reward="ill").spec.options == ("5", "20", "100")
    assert sort_names(["10 mg", "5 mg"]) == ["10 mg", "5 mg"]
    assert sort_names(["10", "007", "9"]) == ["007", "10", "9"]


def test_a_headline_says_how_an_outcome_that_is_better_lower_changes() -> None:
    people = {"arm": ["drug"] * 300 + ["placebo"] * 300, "ill": [1] * 36 + [0] * 264 + [1] * 90 + [0] * 210}
    analysis = lab.analyze(people, reward="ill", lower_is_better=True)
    sentence = analysis.result.conclusion.headline.sentence
    assert sentence.startswith("Keep drug: no other option is better, and placebo changes ill by +0.18 (+0.1")
    assert "placebo 0.18 higher (150%)" in analysis.assumed[0]
    analysis = lab.analyze(people, reward="ill", lower_is_better=True, control="placebo")
    assert analysis.result.conclusion.headline.sentence.startswith("Give everybody drug: ill changes by -0.18 (-0.2")
    assert analysis.answer.effects[0].value == pytest.approx(0.18, abs=1e-6)


def test_rules_agree_with_the_headline_if_segments_have_no_interval() -> None:
    """With six sites of 50 people an arm the effect is decided on all people together, and at no site."""
    outcomes = {"drug": [1] * 6 + [0] * 44, "placebo": [1] * 15 + [0] * 35}
    people = [(arm, site, ill) for site in "pqrstu" for arm, ills in outcomes.items() for ill in ills]
    arm, site, ill = zip(*people, strict=True)
    for control in outcomes:
        analysis = lab.analyze(
            {"arm": arm, "site": site, "ill": ill},
            reward="ill",
            segments=["site"],
            control=control,
            lower_is_better=True,
        )
        conclusion = analysis.result.conclusion
        assert conclusion.rules is not None
        assert [rule.arm for rule in conclusion.rules.rules] == [conclusion.headline.arm] == ["drug"]


@pytest.mark.parametrize(
    ("columns", "reward", "words"),
    [
        ({"futime": [3.5, 7.1, 2.2, 9.0], "fustat": [0, 1, 1, 0]}, "futime", "times that are cut short"),
        ({"time": [3, 7, 2, 9], "status": [0, 1, 1, 0]}, "time", "if it is the time of an event that status says"),
        ({"pain": [0, 1, 2, 1]}, "pain", "pain has the values 0, 1, 2 alone, and is averaged"),
        ({"pain": [0, 1, 1, 0]}, "pain", ""),
        ({"spend": [0, 10, 20, 10]}, "spend", ""),
        ({"time": [3.5, 7.1, 2.2, 9.0], "shop": [0, 1, 1, 0]}, "time", ""),
    ],
)
def test_outcomes_that_should_not_be_averaged_have_a_hint(
    columns: dict[str, list[Any]], reward: str, words: str
) -> None:
    people = {name: values * 200 for name, values in columns.items()} | {"arm": ["a"] * 400 + ["b"] * 400}
    hints = [note for note in lab.analyze(people, reward=reward).assumed if "averaged" in note]
    assert len(hints) == bool(words)
    assert all(words in hint for hint in hints)


def test_a_word_that_is_spelled_as_a_gap_may_count_as_one_of_the_others() -> None:
    people = {"arm": ["a", "b"] * 400, "improved": ["None", "Some", "Some", "Some"] * 200}
    with pytest.raises(SpecError, match=r"every row has the same reward.*by arm: a: 200 of 400, b: 0 of 400"):
        lab.analyze(people, reward="improved", yes="Some")
    analysis = lab.analyze(people, reward="improved", yes="Some", missing_as="low")
    assert analysis.answer.effects[0].value == pytest.approx(0.5, abs=1e-4)
