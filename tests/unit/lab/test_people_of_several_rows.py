"""People or clusters with several rows: A/A tests are decided at their level if the column is named."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privateer_lab as lab
from privateer_core.errors import SpecError
from privateer_lab.analysis.clusters import linearize_ratios
from tests.unit.lab.cli.test_command_line import run

PEOPLE, VISITS = 240, 4


def trial(rng: np.random.Generator) -> dict[str, Any]:
    """Return a trial without an effect: four visits of each person, correlated outcomes, and arms by person."""
    rates = rng.beta(0.5, 0.5, PEOPLE)
    return {
        "patient_id": np.repeat(np.arange(PEOPLE), VISITS),
        "arm": np.repeat(rng.permutation(["a", "b"] * (PEOPLE // 2)), VISITS),
        "well": (rng.random(PEOPLE * VISITS) < np.repeat(rates, VISITS)).astype(int),
    }


def count_decided(tests: int, **arguments: Any) -> int:
    """Return the number of decided effects in this many permutations of a trial."""
    rng = np.random.default_rng(7)
    rows = trial(rng)
    count = 0
    for _ in range(tests):
        rows["arm"] = np.repeat(rng.permutation(["a", "b"] * (PEOPLE // 2)), VISITS)
        count += lab.analyze(rows, reward="well", **arguments).answer.effects[0].is_decided
    return count


@pytest.mark.parametrize("unit", ["person", "cluster"])
@pytest.mark.parametrize("tests", [40, pytest.param(200, marks=pytest.mark.nightly)])
def test_trials_without_an_effect_are_decided_as_seldom_as_their_level_says(tests: int, unit: str) -> None:
    """At a level of .05 a right test decides more than 6 of 40 once in 300 runs, and is beyond .01 to .10 of 200 so."""
    n_decided = count_decided(tests, **{unit: "patient_id"})
    assert n_decided <= 6 if tests == 40 else 0.01 <= n_decided / tests <= 0.10


@pytest.mark.parametrize("tests", [40, pytest.param(200, marks=pytest.mark.nightly)])
def test_rows_that_are_taken_for_people_decide_far_too_often(tests: int) -> None:
    """Planted: standard errors are .6 of the true ones, so that .25 are decided; of 40 fewer than 5 once in 60 runs."""
    assert count_decided(tests) / tests > 0.1


def test_a_column_of_people_that_repeats_within_arms_warns() -> None:
    rows = trial(np.random.default_rng(1))
    [warning] = lab.analyze(rows, reward="well").answer.warnings
    assert warning.startswith("patient_id repeats within arms")
    for unit in ("person", "cluster"):
        assert not lab.analyze(rows, reward="well", **{unit: "patient_id"}).answer.warnings
    numbered = {"arm": ["a"] * 300 + ["b"] * 300, "id": [*range(300), *range(300)], "well": [0, 1] * 300}
    assert not lab.analyze(numbered, reward="well").answer.warnings


def test_people_are_noticed_in_a_large_table_too() -> None:
    """Planted: of more than 100,000 rows only the columns were read that are named."""
    rng = np.random.default_rng(1)
    rows = {"user_id": np.repeat(np.arange(51_000), 2), "arm": np.repeat(rng.integers(0, 2, 51_000), 2)}
    analysis = lab.analyze(rows | {"note": ["x"] * 102_000, "reward": rng.integers(0, 2, 102_000)})
    assert any(warning.startswith("user_id repeats within arms") for warning in analysis.answer.warnings)


def test_a_cluster_of_one_row_changes_nothing() -> None:
    rng = np.random.default_rng(3)
    rows = {"arm": rng.choice(["a", "b"], 2000), "shop": np.arange(2000), "sold": rng.normal(5, 2, 2000)}
    [by_row] = lab.analyze(rows, reward="sold").answer.effects
    [by_shop] = lab.analyze(rows, reward="sold", cluster="shop").answer.effects
    assert (by_shop.low, by_shop.high) == pytest.approx((by_row.low, by_row.high), abs=1e-4)


def test_means_of_clusters_are_those_of_all_rows_and_errors_those_of_sums() -> None:
    """By hand: residuals summed by cluster and arm, over the arm's rows (Liang and Zeger 1986)."""
    rng = np.random.default_rng(4)
    sizes = rng.integers(1, 9, 400)
    shop = np.repeat(np.arange(400), sizes)
    arm = np.repeat(rng.permutation(np.arange(400) % 2), sizes)
    sold = rng.normal(5, 1, len(shop)) + np.repeat(rng.normal(0, 2, 400), sizes) + arm
    rows = {"arm": np.array(["a", "b"])[arm], "shop": shop, "sold": sold}
    [effect] = lab.analyze(rows, reward="sold", cluster="shop").answer.effects
    means = [sold[arm == a].mean() for a in (0, 1)]
    variance = sum(
        np.square(np.bincount(shop[arm == a], sold[arm == a] - means[a])).sum() / (arm == a).sum() ** 2 for a in (0, 1)
    )
    assert effect.value == pytest.approx(means[1] - means[0], abs=1e-4)
    assert (effect.high - effect.low) / 2 == pytest.approx(1.96 * np.sqrt(variance), rel=0.03)


def test_errors_of_clusters_in_both_arms_leave_out_what_these_have_in_common() -> None:
    """Half of each person's visits have either arm, so differences between people add no error to the effect."""
    rng = np.random.default_rng(5)
    person, arm = np.repeat(np.arange(300), 4), np.tile([0, 1, 1, 0], 300)
    score = np.repeat(rng.normal(0, 10, 300), 4) + rng.normal(0, 1, 1200) + 0.5 * arm
    rows = {"user": person, "arm": np.array(["a", "b"])[arm], "score": score}
    [effect] = lab.analyze(rows, reward="score", cluster="user").answer.effects
    assert effect.is_decided
    assert (effect.high - effect.low) / 2 == pytest.approx(1.96 / np.sqrt(300), rel=0.1)
    with pytest.raises(
        SpecError, match=r"^arm: 300 of 300 people by user have several options \(analyze with --cluster"
    ):
        lab.analyze(rows, reward="score", person="user")
    with pytest.raises(SpecError, match="has rows of one cluster in several of more than two arms"):
        lab.analyze({**rows, "arm": np.tile(["a", "b", "c"], 400)}, reward="score", cluster="user")


def test_a_ratio_varies_as_in_many_samples() -> None:
    """The delta method beside the spread of 400 samples: within a fifth of it, but for one run in 10,000."""
    rng, ratios, variances = np.random.default_rng(6), [], []
    for _ in range(400):
        views = rng.poisson(5, 300) + 1.0
        clicks = rng.binomial(views.astype(int), rng.beta(2, 8, 300))
        values = linearize_ratios(clicks, views, np.zeros(300, np.int64))
        assert values.mean() == pytest.approx(clicks.sum() / views.sum())
        ratios.append(values.mean())
        variances.append(values.var() / 300)
    assert np.mean(variances) / np.var(ratios) == pytest.approx(1, abs=0.2)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            {"cluster": "patient_id", "segments": ["arm2"]},
            "--cluster: is about sums over everybody, which arm2 would part",
        ),
        ({"cluster": "patient_id", "person": "arm2"}, "--cluster: is about sums over everybody, which arm2 would part"),
        ({"cluster": "patient_id", "epsilon": 1.0, "shares": {"a": 0.5, "b": 0.5}}, "--cluster: needs sums of rows"),
        ({"cluster": "arm"}, "--cluster arm: is the column of --arm too"),
    ],
)
def test_invalid_clusters_are_refused(arguments: dict[str, Any], words: str) -> None:
    rows = trial(np.random.default_rng(1))
    with pytest.raises(SpecError, match=f"^{words}"):
        lab.analyze(rows | {"arm2": rows["arm"]}, reward="well", **arguments)


def test_ratios_are_those_of_sums_by_person_too() -> None:
    """By hand: residuals clicks - R views, summed by person, over the arm's views."""
    rng = np.random.default_rng(9)
    person = np.repeat(np.arange(500), 3)
    new, views = np.repeat(rng.permutation([0, 1] * 250), 3), rng.poisson(4, 1500)
    clicks = rng.binomial(views, np.repeat(rng.beta(2, 6, 500), 3) * (1 + 0.2 * new))
    rows = {"user": person, "arm": np.array(["a", "b"])[new], "clicks": clicks, "views": views}
    analysis = lab.analyze(rows, reward="clicks", per="views", cluster="user")
    [effect] = analysis.answer.effects
    ratios = [clicks[new == option].sum() / views[new == option].sum() for option in (0, 1)]
    residuals = clicks - np.array(ratios)[new] * views
    variance = sum(
        np.square(np.bincount(person[new == option], residuals[new == option])).sum() / views[new == option].sum() ** 2
        for option in (0, 1)
    )
    assert effect.value == pytest.approx(ratios[1] - ratios[0], abs=1e-5)
    assert (effect.high - effect.low) / 2 == pytest.approx(1.96 * np.sqrt(variance), rel=0.03)
    assert any(note.startswith("Effects are differences of clicks per views") for note in analysis.assumed)
    for wrong, words in (
        (views - 1.0, "must be numbers of at least 0"),
        (views * (new == 0), "is 0 in all rows of an"),
    ):
        with pytest.raises(SpecError, match=words):
            lab.analyze({**rows, "views": wrong}, reward="clicks", per="views")


def test_with_a_promise_a_row_is_a_person_unless_people_are_named() -> None:
    rows, shares = trial(np.random.default_rng(1)), {"a": 0.5, "b": 0.5}
    analysis = lab.analyze(rows, reward="well", shares=shares, epsilon=4.0)
    assert any("who has several has it for each of them" in note for note in analysis.assumed)
    named = lab.analyze(rows, reward="well", shares=shares, epsilon=4.0, person="patient_id")
    assert not any("who has several" in note for note in named.assumed)
    assert "240 people" in named.rests


def test_the_command_takes_clusters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows, path = trial(np.random.default_rng(1)), tmp_path / "rows.csv"
    lines = zip(rows["patient_id"], rows["arm"], rows["well"], strict=True)
    path.write_text("patient_id,arm,well\n" + "".join(f"{p},{a},{w}\n" for p, a, w in lines))
    code, out, err = run(capsys, "analyze", str(path), "--reward", "well", "--cluster", "patient_id")
    assert (code, err) == (0, "")
    assert "960 rows are 240 clusters by patient_id: means are those of all rows' well" in out


def test_a_cluster_in_both_arms_counts_once() -> None:
    """Planted: pairs of a cluster and an arm were counted, 100 for 50."""
    rng = np.random.default_rng(9)
    rows = {"arm": ["a", "b"] * 500, "shop": np.repeat(np.arange(50), 20), "sold": rng.normal(5, 2, 1_000)}
    assert lab.analyze(rows, reward="sold", cluster="shop").rests == "It rests on 50 clusters."


def test_clusters_that_are_alike_have_no_error_of_their_own() -> None:
    """Planted: each cluster has as much in both arms, so that errors were 0 over 0, and bounds no numbers."""
    rows = {"arm": ["a", "b"] * 60, "one": [n // 2 for n in range(120)], "sold": [n // 2 % 3 for n in range(120)]}
    effect = lab.analyze(rows, reward="sold", cluster="one").answer.effects[0]
    assert not effect.is_decided
    whole = {"arm": ["a", "b"] * 60, "reward": [0, 1, 1, 0, 1, 1] * 20, "one": [1] * 120}
    with pytest.raises(SpecError, match="too few"):
        lab.analyze(whole, cluster="one")
