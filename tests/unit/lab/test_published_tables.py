"""Published tables, and the words of a finished test."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import t as student

import privateer_lab as lab
from privateer_core.errors import SpecError
from privateer_lab.tables.data_column import sort_names
from tests.unit.lab.cli.test_command_line import run


class Counts(NamedTuple):
    """Numbers of people and of positive outcomes of the control and the other option, by segment or in total."""

    arms: tuple[str, str]
    cells: dict[str | None, tuple[tuple[int, int], tuple[int, int]]]


TABLES = {
    # Admissions to Berkeley in 1973: people and admitted ones, by department (Bickel, Hammel and O'Connell 1975).
    "berkeley": Counts(
        ("men", "women"),
        {
            "A": ((825, 512), (108, 89)),
            "C": ((325, 120), (593, 202)),
            "D": ((417, 138), (375, 131)),
            "E": ((191, 53), (393, 94)),
            "F": ((373, 22), (341, 24)),
        },
    ),
    # Deaths by breast cancer in 25 years (Miller et al. 2014).
    "mammogram": Counts(("control", "mammogram"), {None: ((44_910, 505), (44_925, 500))}),
    # Paralytic polio (Francis 1955).
    "polio": Counts(("placebo", "vaccine"), {None: ((201_229, 115), (200_745, 33))}),
    # Strokes or deaths within a year, with medical treatment and a stent (Derdeyn et al. 2014).
    "stent": Counts(("medical", "stent"), {None: ((227, 28), (224, 45))}),
}


def welch(cell: tuple[tuple[int, int], tuple[int, int]]) -> tuple[float, float]:
    """Return a difference of shares, and half of Welch's interval of 95 %."""
    (n_0, y_0), (n_1, y_1) = cell
    shares = np.array([y_0 / n_0, y_1 / n_1])
    errors = shares * (1 - shares) / (np.array([n_0, n_1]) - 1)
    freedom = errors.sum() ** 2 / (errors**2 / (np.array([n_0, n_1]) - 1)).sum()
    return float(shares[1] - shares[0]), float(student.ppf(0.975, freedom) * np.sqrt(errors.sum()))


def rows_of(counts: Counts) -> dict[str, NDArray[np.str_]]:
    """Return a row for each person."""
    columns: dict[str, list[NDArray[np.str_]]] = {"arm": [], "outcome": [], "segment": []}
    for segment, cell in counts.cells.items():
        for arm, (people, yes) in zip(counts.arms, cell, strict=True):
            columns["arm"].append(np.repeat(arm, people))
            columns["outcome"].append(np.where(np.arange(people) < yes, "yes", "no"))
            columns["segment"].append(np.repeat(segment or "", people))
    return {name: np.concatenate(parts) for name, parts in columns.items()}


@pytest.mark.parametrize("name", TABLES)
def test_effects_of_published_tables_are_those_of_a_textbook(name: str) -> None:
    """Widths are within 3 % of Welch's, estimates within 3 % of them. Swapped arms would be off by twice the effect."""
    counts = TABLES[name]
    rows = rows_of(counts)
    segments = ["segment"] if len(counts.cells) > 1 else []
    if not segments:
        del rows["segment"]
    effects = lab.analyze(rows, reward="outcome", control=counts.arms[0], segments=segments).answer.effects
    by_group = {effect.group and effect.group.removeprefix("segment="): effect for effect in effects}
    for segment, cell in counts.cells.items():
        value, radius = welch(cell)
        effect = by_group[segment]
        assert effect.value == pytest.approx(value, abs=0.03 * radius)
        assert effect.low is not None
        assert effect.high is not None
        assert (effect.high - effect.low) / (2 * radius) == pytest.approx(1.0, abs=0.03)
        assert not effect.is_decided or not effect.low <= 0 <= effect.high
    if segments:
        sizes = {name: sum(people for people, _ in cell) for name, cell in counts.cells.items()}
        average = sum(size * welch(counts.cells[name])[0] for name, size in sizes.items()) / sum(sizes.values())
        assert by_group[None].value == pytest.approx(average, abs=0.002)


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


def test_a_word_that_is_spelled_as_a_gap_may_count_as_one_of_the_others() -> None:
    people = {"arm": ["a", "b"] * 400, "improved": ["None", "Some", "Some", "Some"] * 200}
    with pytest.raises(SpecError, match=r"every row has the same reward.*by arm: a: 200 of 400, b: 0 of 400"):
        lab.analyze(people, reward="improved", yes="Some")
    analysis = lab.analyze(people, reward="improved", yes="Some", missing_as="low")
    assert analysis.answer.effects[0].value == pytest.approx(0.5, abs=1e-4)
