"""Outcomes that are missing or cannot be read: they count nowhere or as a public value, and arms that differ warn."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import fisher_exact

import privateer_lab as lab
from privateer_core.errors import SpecError
from privateer_lab.tables.arm_counts import describe_gaps
from privateer_lab.tables.data_column import DataColumn
from tests.unit.lab.cli.test_command_line import run

SHARES = {"gel": 0.5, "none": 0.5}
BOUNDS = (0.0, 10.0)


def pain(people: int = 6000) -> dict[str, Any]:
    """Return equal pain for all people with an outcome; half of the outcomes with gel are missing."""
    return {"arm": ["gel"] * people + ["none"] * people, "pain": [5, None] * (people // 2) + [5] * people}


def rests_on(analysis: lab.FinishedTest) -> int:
    """Return the number of rows that count, which noise of epsilon 4 moves by less than 30 in a run of millions."""
    match = re.search(r"It rests on (?:about )?([\d,]+)", analysis.rests)
    assert match
    return int(match[1].replace(",", ""))


@pytest.mark.parametrize(("missing_as", "value"), [(None, 0.0), ("low", -2.5), ("high", 2.5), (7, 1.0)])
@pytest.mark.parametrize("epsilon", [None, 4.0])
def test_a_gap_counts_nowhere_or_as_a_value_that_is_named(missing_as, value, epsilon):
    """Less pain is better: the effect is how much less there is with none than with gel."""
    rows = pain()
    if epsilon is None:
        rows["pain"][-1] = 6
    analysis = lab.analyze(
        rows, reward="pain", shares=SHARES, bounds=BOUNDS, epsilon=epsilon, lower_is_better=True, missing_as=missing_as
    )
    [effect] = analysis.answer.effects
    assert effect.value == pytest.approx(value, abs=0.1)
    assert effect.is_decided == (missing_as is not None)
    assert rests_on(analysis) == pytest.approx(9000 if missing_as is None else 12_000, abs=30)
    if missing_as is not None:
        assert f"Rows without pain count as {missing_as}." in analysis.assumed


def test_shares_of_gaps_that_differ_by_arm_warn_and_others_do_not() -> None:
    rows = {"arm": ["a", "b"] * 2000, "reward": [0, 1, 1, 0] * 1000}
    even = {**rows, "reward": [None if n % 10 < 2 else value for n, value in enumerate(rows["reward"])]}
    analysis = lab.analyze(even)
    assert not analysis.answer.warnings
    assert "That these shares differ by arm cannot be told from chance (p 1)." in analysis.assumed
    uneven = {**rows, "reward": [None if n % 20 in (0, 2, 5) else value for n, value in enumerate(rows["reward"])]}
    [warning, *_] = lab.analyze(uneven).answer.warnings
    assert warning.startswith("the share of rows without reward differs by arm (p below 1e-6)")


def test_the_warning_of_gaps_is_as_rare_as_its_level_says() -> None:
    """At a level of .01, 2,000 tables without a difference warn 5 to 40 times, but for one run in 100,000."""
    rng, warned = np.random.default_rng(3), 0
    arm = DataColumn("arm", ("a", "b", "c"), np.repeat([0, 1, 2], 200))
    for _ in range(2000):
        places = np.where(rng.random(600) < 0.2, -1, 0)
        warned += bool(describe_gaps(arm, DataColumn("reward", ("1",), places), None)[1])
    assert 5 <= warned <= 40


def test_gaps_are_counted_by_person_where_people_are_named() -> None:
    """Planted: ten visits of each of the 3 people who are lost in one arm look like 30 rows of chance."""
    rows = {"user": np.repeat(np.arange(300), 10), "arm": ["a"] * 1500 + ["b"] * 1500, "well": [0, 1] * 1500}
    rows["well"] = [None if user in (3, 50, 90) else y for user, y in zip(rows["user"], rows["well"], strict=True)]
    warnings = lab.analyze(rows, reward="well").answer.warnings
    assert any("the share of rows without well differs" in warning for warning in warnings)
    analysis = lab.analyze(rows | {"well": [*rows["well"][:-1], 2]}, reward="well", person="user")
    assert not any("without well" in warning for warning in analysis.answer.warnings)
    assert "Units by user without well, by arm: a: 3 of 150, b: 0 of 150." in analysis.assumed


@pytest.mark.parametrize("cell", ["ill", "", None, "inf", 1e308, "1e999"])
@pytest.mark.parametrize("missing_as", [None, "high"])
def test_with_a_promise_one_outcome_changes_no_other_row(cell: object, missing_as: str | None) -> None:
    """Notes of two tables that differ in a row are equal, and their effects differ by its weight and noise alone."""
    rows = {"arm": ["gel", "none"] * 2000, "pain": [0, 1, 1, 1] * 1000}
    other = {**rows, "pain": [cell, *rows["pain"][1:]]}
    first, second = (
        lab.analyze(each, reward="pain", shares=SHARES, epsilon=4.0, missing_as=missing_as) for each in (rows, other)
    )
    assert (first.spec, first.assumed) == (second.spec, second.assumed)
    assert second.answer.effects[0].value == pytest.approx(0.5, abs=0.02)


def test_a_reward_that_all_others_have_is_refused_with_the_gaps() -> None:
    error = "every row has the same reward.*Rows without pain, by arm: gel: 3,000 of 6,000, none: 0 of 6,000"
    with pytest.raises(SpecError, match=error):
        lab.analyze(pain(), reward="pain")


@pytest.mark.parametrize("epsilon", [None, 4.0])
def test_words_are_outcomes_by_the_value_that_is_yes(epsilon: float | None) -> None:
    words = {
        "arm": ["new", "old"] * 2000,
        "outcome": ["cured", "ill", "cured", "cured", "ill", "ill", "cured", "ill"] * 500,
    }
    shares = {"old": 1.0, "new": 1.0} if epsilon is None else {"old": 0.5, "new": 0.5}
    analysis = lab.analyze(
        words, reward="outcome", yes="cured", shares=shares if epsilon else None, control="old", epsilon=epsilon
    )
    [effect] = analysis.answer.effects
    assert effect.value == pytest.approx(0.5, abs=0.05)
    assert effect.is_decided
    assert "outcome is 1 where it is 'cured', and 0 where it is something else." in analysis.assumed


def test_with_a_promise_numbers_count_by_bounds_alone() -> None:
    """Planted: without bounds each amount above 1 counted as 1, so that amounts of 8 and 9 had no difference."""
    rows = {"arm": ["gel", "none"] * 3000, "spend": [8.0, 9.0] * 3000}
    analysis = lab.analyze(rows, reward="spend", shares=SHARES, epsilon=4.0)
    assert rests_on(analysis) <= 30
    assert not analysis.answer.effects[0].is_decided
    note = "Numbers other than 0 and 1 count nowhere either: give --bounds LOW:HIGH if spend is a number."
    assert note in analysis.assumed
    analysis = lab.analyze(rows, reward="spend", shares=SHARES, epsilon=4.0, bounds=BOUNDS)
    assert rests_on(analysis) == 6000
    assert analysis.answer.effects[0].value == pytest.approx(1.0, abs=0.1)


def test_rows_without_an_arm_are_not_counted() -> None:
    rows = {"arm": ["gel", "none", "", "other"] * 2000, "reward": [0, 1, 1, 1, 1, 0, 0, 0] * 1000}
    assert rests_on(lab.analyze(rows, shares=SHARES, epsilon=4.0)) == pytest.approx(4000, abs=30)
    complete = {"arm": ["gel", "none", "", None] * 2000, "reward": rows["reward"]}
    assert lab.analyze(complete).rests == "It rests on 4,000 of 8,000 rows."


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"missing_as": 11}, "--missing-as: must be a value of the reward"),
        ({"missing_as": "mean"}, "--missing-as: must be a value of the reward"),
        ({"missing_as": "nan"}, "--missing-as: must be a value of the reward"),
        ({"missing_as": 2, "bounds": None, "epsilon": 1.0, "shares": SHARES}, "--missing-as: must be a value"),
        ({"yes": "5"}, "--yes: makes outcomes 1 and 0"),
    ],
)
def test_rules_that_contradict_themselves_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=f"^{re.escape(words)}"):
        lab.analyze(pain(40), **{"reward": "pain", "bounds": BOUNDS, **changes})


def test_the_command_has_options_for_missing_outcomes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("arm,outcome\n" + "new,cured\nold,ill\nnew,NA\nold,cured\n" * 60)
    arguments = ("analyze", str(path), "--reward", "outcome", "--yes", "cured", "--missing-as", "low", "--json")
    code, out, err = run(capsys, *arguments)
    assert (code, err) == (0, "")
    assert '"rests": "It rests on 240 rows."' in out
    assert "Rows without outcome count as low." in out


def test_few_gaps_have_the_probability_of_drawn_tables() -> None:
    """Beside Fisher (1922), within .01; planted: Pearson's test of the first says .14, where the probability is .48."""
    for gaps, rows in (((0, 2), (11, 11)), ((0, 9), (2_000, 1_000)), ((1, 4), (150, 153))):
        arm = DataColumn("arm", ("a", "b"), np.repeat([0, 1], rows))
        places = np.concatenate([np.arange(n) < k for k, n in zip(gaps, rows, strict=True)]) * -1
        remarks, warnings = describe_gaps(arm, DataColumn("reward", ("1",), places), None)
        exact = fisher_exact([gaps, np.subtract(rows, gaps)]).pvalue
        match = re.search(r"\(p ([\d.e-]+)\)", " ".join([*remarks, *warnings]))
        assert float(match[1]) == pytest.approx(exact, abs=0.01)
