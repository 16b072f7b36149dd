"""Covariates of a finished test: the effect and interval of Lin's regression, refusals and warnings."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import privateer_lab as lab
from privateer_core.errors import SpecError
from tests.unit.lab.cli.test_command_line import run

Array = NDArray[np.float64]
STATSMODELS = (1.7, 0.14040757000349302)


def spending_log(people: int = 3000, effect: float = 0.4, seed: int = 2) -> dict[str, Any]:
    """Return people's spending before and after, on two platforms, with a quarter of the people in the new arm."""
    rng = np.random.default_rng(seed)
    new, before, phone = rng.random(people) < 0.25, rng.gamma(2.0, 5.0, people), rng.random(people) < 0.5
    after = 0.9 * before * (1 + 0.1 * new) + 2 * phone + rng.normal(0, 2, people) + effect * new
    return {
        "arm": np.where(new, "new", "old"),
        "before": before,
        "platform": np.where(phone, "phone", "desk"),
        "after": after,
    }


def lin(rows: dict[str, Any], columns: list[Array]) -> tuple[float, float]:
    """Return the effect by a regression with interactions, and its error by HC2.

    As ``statsmodels.api.OLS(after, design).fit(cov_type="HC2")`` has them: `test_the_oracle` has its numbers.
    """
    new, after = (rows["arm"] == "new").astype(float), rows["after"]
    centred = np.stack([column - column.mean() for column in columns], axis=1)
    design = np.column_stack([np.ones(len(new)), new, centred, centred * new[:, None]])
    inverse = np.linalg.inv(design.T @ design)
    slopes = inverse @ design.T @ after
    leverage = np.einsum("ij,jk,ik->i", design, inverse, design)
    squares = np.square(after - design @ slopes) / (1 - leverage)
    return float(slopes[1]), float(np.sqrt((inverse @ (design.T * squares) @ design @ inverse)[1, 1]))


def test_the_oracle_is_that_of_statsmodels() -> None:
    """Numbers of statsmodels 0.15.0: OLS(y, [1, t, x, t x], x centred).fit(cov_type="HC2"), params[1] and bse[1]."""
    rows = {"arm": np.array(["old", "new"] * 5), "after": np.array([3.0, 5, 4, 7, 2, 6, 5, 9, 4, 8])}
    before = np.array([1.0, 2, 3, 4, 0, 3, 4, 6, 2, 5])
    assert lin(rows, [before]) == pytest.approx(STATSMODELS, abs=1e-9)


def test_the_effect_and_its_interval_are_those_of_lin() -> None:
    rows = spending_log()
    value, error = lin(rows, [rows["before"], (rows["platform"] == "phone").astype(float)])
    analysis = lab.analyze(rows, reward="after", control="old", adjust=["before", "platform"])
    [effect] = analysis.answer.effects
    assert effect.value == pytest.approx(value, abs=2e-6)
    # Intervals have the two arms' residual variance together, or each arm's own: both are within a tenth of HC2's.
    assert (effect.high - effect.low) / 2 == pytest.approx(1.96 * error, rel=0.1)
    [plain] = analysis.unadjusted.effects
    difference = rows["after"][rows["arm"] == "new"].mean() - rows["after"][rows["arm"] == "old"].mean()
    assert plain.value == pytest.approx(difference, abs=2e-6)
    ratio = (effect.high - effect.low) / (plain.high - plain.low)
    assert ratio < 0.4
    [note] = [message for message in analysis.assumed if message.startswith("new: ")]
    assert f"The interval is {1 - ratio:.0%} narrower, as with {ratio**-2:.3g} times as many people." in note
    assert any(message.startswith("Columns of --adjust must have been measured before") for message in analysis.assumed)


def test_units_of_covariates_change_nothing() -> None:
    rows = spending_log()
    large = rows | {"before": rows["before"] * 1e14}
    plain, scaled = (
        lab.analyze(each, reward="after", control="old", adjust=["before", "platform"]).answer.effects[0]
        for each in (rows, large)
    )
    assert (plain.value, plain.low, plain.high) == pytest.approx((scaled.value, scaled.low, scaled.high), abs=2e-6)


def test_rewards_of_which_less_is_better_are_adjusted_too() -> None:
    rows = spending_log()
    [higher] = lab.analyze(rows, reward="after", control="old", adjust=["before"]).answer.effects
    analysis = lab.analyze(rows, reward="after", control="old", adjust=["before"], lower_is_better=True)
    [lower] = analysis.answer.effects
    assert (lower.value, lower.low, lower.high) == pytest.approx((-higher.value, -higher.high, -higher.low), abs=2e-6)
    assert analysis.answer.recommended == "old"


def test_yes_and_no_are_adjusted_by_gaps_and_segments_too() -> None:
    """Intervals are narrower in segments too, and effects there are what they are without the adjustment."""
    rng, rows = np.random.default_rng(5), spending_log()
    rows["bought"] = (rng.random(3000) < rows["before"] / (rows["before"] + 10) + 0.1 * (rows["arm"] == "new")).astype(
        int
    )
    rows["before"] = np.where(rng.random(3000) < 0.1, np.nan, rows["before"])
    analysis = lab.analyze(rows, reward="bought", control="old", adjust=["before"], segments=["platform"])
    plain = {effect.name: effect for effect in analysis.unadjusted.effects} if analysis.unadjusted else {}
    assert len(analysis.answer.effects) == len(plain) == 3
    for effect in analysis.answer.effects:
        assert (effect.high - effect.low) < 0.98 * (plain[effect.name].high - plain[effect.name].low)
        assert effect.value == pytest.approx(plain[effect.name].value, abs=0.03)


@pytest.mark.parametrize("tests", [40, pytest.param(400, marks=pytest.mark.nightly)])
def test_adjusted_trials_without_an_effect_are_decided_as_seldom_as_their_level_says(tests: int) -> None:
    """At a level of .05 a right test decides more than 6 of 40 once in 300 runs, or more than 36 of 400."""
    rng, rows, decided = np.random.default_rng(8), spending_log(600, 0.0), 0
    rows["after"] = rows["before"] + rng.normal(0, 1, 600)
    for _ in range(tests):
        rows["arm"] = rng.permutation(["new"] * 300 + ["old"] * 300)
        decided += lab.analyze(rows, reward="after", adjust=["before"]).answer.effects[0].is_decided
    assert decided <= (6 if tests == 40 else 36)


def test_a_covariate_that_an_arm_changed_warns() -> None:
    """Planted: a column measured afterwards hides the effect; a column from before has no warning."""
    rows = spending_log(effect=1.0)
    rows["visits"] = rows["after"] + np.random.default_rng(3).normal(0, 0.5, 3000)
    late = lab.analyze(rows, reward="after", control="old", adjust=["visits"])
    assert any(
        "what adjusts (visits) differs by arm more than by chance" in warning for warning in late.answer.warnings
    )
    assert not late.answer.effects[0].is_decided
    early = lab.analyze(rows, reward="after", control="old", adjust=["before"])
    assert not any("what adjusts" in warning for warning in early.answer.warnings)
    assert early.answer.effects[0].is_decided


def test_clusters_are_adjusted_by_the_columns_of_their_rows() -> None:
    """A covariate that explains all variance between clusters leaves the intervals of independent rows."""
    rng = np.random.default_rng(6)
    shop, size = np.repeat(np.arange(300), 5), np.repeat(rng.normal(0, 3, 300), 5)
    new = np.repeat(rng.permutation([0, 1] * 150), 5)
    rows = {"shop": shop, "size": size, "arm": np.array(["a", "b"])[new], "sold": size + rng.normal(0, 1, 1500) + new}
    [effect] = lab.analyze(rows, reward="sold", cluster="shop", adjust=["size"]).answer.effects
    assert (effect.high - effect.low) / 2 == pytest.approx(1.96 * np.sqrt(4 / 1500), rel=0.1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"adjust": ["before"], "epsilon": 1.0, "shares": {"old": 0.75, "new": 0.25}}, "--adjust: needs sums of rows"),
        ({"adjust": ["after"]}, "--adjust after: is the column of --reward too"),
        ({"adjust": "before"}, "adjust: must be a list of names of columns"),
        ({"adjust": ["size"]}, "size: no column has this name"),
        ({"adjust": ["user"]}, "--adjust user: has 3,000 levels"),
        ({"adjust": ["same"]}, "--adjust same: has the same value in all rows"),
    ],
)
def test_invalid_columns_of_adjust_are_refused(arguments: dict[str, Any], words: str) -> None:
    rows = spending_log() | {"user": [f"u{n}" for n in range(3000)], "same": np.ones(3000)}
    with pytest.raises(SpecError, match=f"^{words}"):
        lab.analyze(rows, reward="after", **arguments)


def test_an_arm_of_few_rows_is_not_adjusted_by_many_columns() -> None:
    rng = np.random.default_rng(1)
    rows = spending_log(120) | {f"x{n}": rng.random(120) for n in range(6)}
    with pytest.raises(SpecError, match=r"^--adjust: make 6 slopes, and an arm has \d+ rows: 10 for each are needed"):
        lab.analyze(rows, reward="after", adjust=[f"x{n}" for n in range(6)])


def test_the_command_has_an_option_to_adjust(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows, path = spending_log(1000), tmp_path / "rows.csv"
    lines = zip(rows["arm"], rows["before"], rows["platform"], rows["after"], strict=True)
    path.write_text("arm,before,platform,after\n" + "".join(f"{a},{b:.4f},{p},{c:.4f}\n" for a, b, p, c in lines))
    code, out, err = run(
        capsys, "analyze", str(path), "--reward", "after", "--adjust", "before", "--adjust", "platform"
    )
    assert (code, err) == (0, "")
    assert "adjusted by before, platform. The interval is" in out
