"""A finished test: its effects compared with Welch's test, the noise of a curator, and refused tables."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import ttest_ind

import privateer_lab as lab
from privateer_core.errors import PrivateerError, SpecError
from privateer_lab.analysis import one_look
from privateer_lab.simulation.scores import SeededNoise
from tests.unit.lab.cli.test_command_line import run

SHARES = {"old": 0.5, "new": 0.5}


def sales_log(people: int = 20_000, seed: int = 0) -> dict[str, Any]:
    """Return rows of a test in which the new option sells more on phones alone; a tenth has no country."""
    rng = np.random.default_rng(seed)
    arm, phone = rng.choice(["new", "old"], people), rng.random(people) < 0.5
    country = np.where(rng.random(people) < 0.1, None, rng.choice(["de", "fr"], people))
    rate = 0.2 + 0.1 * phone * (arm == "new")
    return {
        "arm": arm,
        "platform": np.where(phone, "phone", "desk"),
        "country": country,
        "age": rng.uniform(18, 80, people),
        "bought": rng.random(people) < rate,
    }


def width(analysis: lab.FinishedTest) -> float:
    [effect] = analysis.answer.effects
    return effect.high - effect.low


def test_the_interval_is_that_of_welch() -> None:
    rows = sales_log()
    [effect] = lab.analyze(rows, reward="bought", control="old").answer.effects
    new, old = (rows["bought"][rows["arm"] == name].astype(float) for name in ("new", "old"))
    welch = ttest_ind(new, old, equal_var=False).confidence_interval(0.95)
    assert (effect.low, effect.high) == pytest.approx((welch.low, welch.high), abs=2e-4)
    assert effect.value == pytest.approx(new.mean() - old.mean(), abs=1e-5)
    assert effect.is_decided


def test_numbers_have_the_interval_of_welch_and_a_curator_adds_a_fifth() -> None:
    rng = np.random.default_rng(4)
    arm = rng.choice(["new", "old"], 6000)
    rows = {"arm": arm, "score": rng.normal(900 + 6 * (arm == "new"), 70)}
    new, old = (rows["score"][arm == name] for name in ("new", "old"))
    welch = ttest_ind(new, old, equal_var=False).confidence_interval(0.95)
    [effect] = lab.analyze(rows, reward="score", control="old").answer.effects
    assert (effect.low, effect.high) == pytest.approx((welch.low, welch.high), rel=0.02)
    private = lab.analyze(rows, reward="score", shares=SHARES, bounds=(500.0, 1300.0), epsilon=1.0)
    assert 0.95 < width(private) / (welch.high - welch.low) < 1.4


def test_a_published_trial_of_rare_outcomes_is_as_its_authors_read_it() -> None:
    """Heart attacks with aspirin and a placebo: 104 of 11,037, 189 of 11,034 (Physicians' Health Study 1989)."""
    people, attacks = {"placebo": 11_034, "aspirin": 11_037}, {"placebo": 189, "aspirin": 104}
    rows = {
        "arm": np.repeat(list(people), list(people.values())),
        "attack": np.concatenate([np.arange(people[person]) < attacks[person] for person in people]).astype(float),
    }
    attacks_by_arm = {person: rows["attack"][rows["arm"] == person] for person in people}
    welch = ttest_ind(attacks_by_arm["placebo"], attacks_by_arm["aspirin"], equal_var=False).confidence_interval(0.95)
    shares = {"placebo": 0.5, "aspirin": 0.5}
    for epsilon, widest in ((None, 1.1), (1.0, 1.3)):
        analysis = lab.analyze(rows, reward="attack", shares=shares, epsilon=epsilon, lower_is_better=True)
        assert 0.98 < width(analysis) / (welch.high - welch.low) < widest
        assert analysis.answer.recommended == "aspirin"


def test_a_share_of_a_single_option_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("arm,reward\n" + "new,1\nold,0\n" * 50)
    code, _, err = run(capsys, "analyze", str(rows), "--share", "old=0.5")
    assert (code, err) == (2, "privateer: shares: has one option (give the share of each, the control's too)\n")


def test_effects_are_estimated_by_segment_and_on_average() -> None:
    analysis = lab.analyze(sales_log(), reward="bought", control="old", segments=["platform"])
    by_segment = {effect.group: effect for effect in analysis.answer.effects}
    assert by_segment["platform=phone"].is_decided
    assert not by_segment["platform=desk"].is_decided
    assert len(analysis.answer.effects) == 3


def test_other_values_are_no_part_of_a_requested_segment() -> None:
    """Planted: with two values, people of a third value counted in the second, named city=oslo/other."""
    rng = np.random.default_rng(4)
    rows = {"arm": rng.choice(["a", "b"], 6000), "city": rng.choice(["rome", "oslo", "bern"], 6000)}
    rows["reward"] = rng.random(6000) < 0.2 + 0.3 * ((rows["city"] == "bern") & (rows["arm"] == "b"))
    of_oslo = {name: values[rows["city"] != "bern"] for name, values in rows.items()}
    values = {}
    for table, names in ((rows, {"rome", "oslo", "other"}), (of_oslo, {"rome", "oslo"})):
        effects = lab.analyze(table, segments={"city": ["rome", "oslo"]}).answer.effects
        assert {effect.group for effect in effects} == {None, *(f"city={name}" for name in names)}
        values[len(table["arm"])] = {effect.group: effect.value for effect in effects}["city=oslo"]
    assert len({*values.values()}) == 1


def test_cuts_and_values_make_the_segments_that_are_given() -> None:
    segments: dict[str, Any] = {"age": [30, 50], "country": ["de", "other"]}
    rows = {name: values for name, values in sales_log().items() if name != "platform"}
    rows["country"] = np.where(rows["country"] == None, "xx", rows["country"])  # noqa: E711 - in every row
    analysis = lab.analyze(rows, reward="bought", control="old", segments=segments)
    assert len({effect.group for effect in analysis.answer.effects}) == 7
    assert analysis.answer.people == 20_000


def test_rows_without_a_value_are_a_segment() -> None:
    analysis = lab.analyze(sales_log(), reward="bought", control="old", segments=["country"])
    assert "country=missing" in {effect.group for effect in analysis.answer.effects}


def test_noise_is_fresh_and_has_the_variance_of_the_promise() -> None:
    """The spread of 150 answers has the variance of the noise, within .48 and 1.9 of it: a false alarm in 20,000 runs.

    Noise of half the size would have .25 of it.
    """
    rows = sales_log(2000)

    def value() -> float:
        [effect] = lab.analyze(rows, reward="bought", shares=SHARES, epsilon=0.5).answer.effects
        assert effect.value is not None
        return effect.value

    exact = lab.analyze(rows, reward="bought", shares=SHARES).answer.effects[0].value
    assert exact is not None
    estimates = np.array([value() for _ in range(150)])
    # A rate of f has noise of 2 (2/epsilon)^2 ((1-f)^2 + f^2) / n^2, at 1,000 people an arm and f of .22 about.
    expected = 2 * 2 * 4.0**2 * (0.78**2 + 0.22**2) / 1000**2
    assert len(set(estimates.tolist())) > 140  # six digits of each
    assert 0.48 * expected < np.mean(np.square(estimates - exact)) < 1.9 * expected


def test_with_a_promise_nothing_public_is_taken_from_the_rows() -> None:
    rows = sales_log(2000)
    with pytest.raises(SpecError, match="public"):
        lab.analyze(rows, reward="bought", epsilon=1.0)
    with pytest.raises(SpecError, match="public"):
        lab.analyze(rows, reward="bought", shares=SHARES, segments=["platform"], epsilon=1.0)


def test_two_tables_that_differ_in_a_row_have_the_same_experiment() -> None:
    """Values released beside noisy sums must not depend on a row: bounds, levels, cuts, shares, people."""
    rows = sales_log(2000)
    other = {name: values.copy() for name, values in rows.items()}
    other["arm"][0], other["bought"][0], other["age"][0] = "old", True, 140.0
    first, second = (
        lab.analyze(each, reward="bought", shares=SHARES, segments={"age": [30, 50]}, epsilon=1.0)
        for each in (rows, other)
    )
    assert first.spec == second.spec
    assert first.assumed == second.assumed


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("bought", 2.5),
        ("bought", "yes"),
        ("bought", float("nan")),
        ("arm", "blue"),
        ("arm", None),
        ("age", "old"),
        ("age", float("inf")),
        ("platform", None),
        ("platform", 7),
    ],
)
def test_one_row_is_never_refused_and_moves_the_answer_by_itself_alone(name, value, monkeypatch):
    """With the same noise, the answers of two tables that differ in a row differ by the weight of the row."""
    monkeypatch.setattr(one_look, "SecureNoise", lambda: SeededNoise(1))
    segments: dict[str, Any] = {"age": [30, 50], "platform": ["phone", "other"]}
    rows = sales_log(4000)
    other = {key: values.astype(object) for key, values in rows.items()}
    other[name][7] = value
    first, second = (
        lab.analyze(each, reward="bought", shares=SHARES, segments=segments, epsilon=2.0) for each in (rows, other)
    )
    assert (first.spec, first.assumed) == (second.spec, second.assumed)
    for before, after in zip(first.answer.effects, second.answer.effects, strict=True):
        if before.value is not None and after.value is not None:
            assert abs(before.value - after.value) < 0.02


def test_one_row_of_a_file_does_not_decide_how_the_others_are_read(tmp_path, monkeypatch):
    """Codes with leading zeros: a reader that guesses parses them as numbers unless a row has a letter."""
    monkeypatch.setattr(one_look, "SecureNoise", lambda: SeededNoise(1))
    rng, estimates = np.random.default_rng(2), []
    rows = [
        f"{rng.choice(['new', 'old'])},{rng.choice(['01067', '10115'])},{int(rng.random() < 0.3)}" for _ in range(3000)
    ]
    for last in ("new,01067,1", "new,x,1"):
        path = tmp_path / "rows.csv"
        path.write_text("\n".join(["arm,zip,bought", *rows, last]))
        analysis = lab.analyze(path, reward="bought", shares=SHARES, segments={"zip": ["01067", "other"]}, epsilon=2.0)
        estimates.append([effect.value for effect in analysis.answer.effects])
    assert np.allclose(*estimates, atol=0.02)


def test_uneven_arms_are_reported_unless_they_were_meant() -> None:
    rows = sales_log()
    is_kept = (rows["arm"] == "new") | (np.random.default_rng(1).random(20_000) < 0.5)
    uneven = {name: values[is_kept] for name, values in rows.items()}
    assert lab.analyze(uneven, reward="bought", shares=SHARES).answer.warnings
    assert not lab.analyze(uneven, reward="bought").answer.warnings
    assert not lab.analyze(uneven, reward="bought", shares={"old": 1 / 3, "new": 2 / 3}).answer.warnings


@pytest.mark.parametrize(
    ("changes", "arguments", "words"),
    [
        ({"arm": np.full(2000, "old")}, {}, "arm: every row has the same option"),
        ({}, {"control": "blue"}, "control: is not among the arms"),
        ({}, {"reward": "price"}, "price: no column has this name"),
        ({"bought": np.full(2000, "ill")}, {}, "bought: must be numbers, or yes and no"),
        ({"bought": np.full(2000, np.nan)}, {}, "arm and bought: has no row with a value"),
        ({"bought": np.full(2000, 7.0)}, {}, "bought: every row has the same reward"),
        ({"bought": np.full(2000, "yes")}, {}, "bought: every row has the same reward"),
        ({}, {"segments": "age"}, "segments: must be a list"),
        ({}, {"segments": ["age"]}, "age: has 2,000 values"),
        ({}, {"bounds": (1.0, 0.0)}, "reward: the range is empty"),
        ({}, {"shares": {"old": 0.5, "blue": 0.5}}, "arm: has 1 arms that shares do not name"),
        ({}, {"shares": {"old": 0.5, "new": 0.7}}, "shares: must have a sum of 1, not 1.2"),
        ({}, {"shares": {"old": 1.0, "new": 0.0}}, "shares: must be numbers above 0"),
        ({}, {"shares": SHARES, "epsilon": -1.0}, "privacy.epsilon"),
        ({"age": np.arange(2000) // 10}, {"segments": ["age"]}, "table: has 2,000 rows, too few"),
    ],
)
def test_unusable_columns_are_refused_by_name(changes: dict[str, Any], arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(PrivateerError, match=f"^{re.escape(words)}"):
        lab.analyze({**sales_log(2000), **changes}, **{"reward": "bought", **arguments})


def test_shares_of_arms_are_tested_against_the_planned_shares() -> None:
    """Planted: three in ten people where half were meant. With the shares that were meant there is no alarm."""
    rng = np.random.default_rng(8)
    rows = {"arm": np.where(rng.random(4000) < 0.3, "new", "old"), "reward": rng.random(4000) < 0.1}
    even, right = lab.analyze(rows), lab.analyze(rows, shares={"old": 0.7, "new": 0.3})
    wrong = lab.analyze(rows, shares={"old": 2, "new": 2})
    assert "People were not split evenly (p below 1e-6)" in even.assumed[-1]
    assert not any("sample ratio" in warning for warning in even.answer.warnings)
    assert "People were not split as meant, as given (p below 1e-6)" in wrong.assumed[-1]
    assert any("sample ratio" in warning for warning in wrong.answer.warnings)
    assert "Counts fit the shares that were meant, as given" in right.assumed[-1]
    assert not any("sample ratio" in warning for warning in right.answer.warnings)


def test_private_rows_do_not_say_how_many_got_each_arm() -> None:
    """Counts of arms would be released beside the noisy sums."""
    analysis = lab.analyze(sales_log(2000), reward="bought", shares=SHARES, epsilon=1.0)
    assert not any("People were" in note for note in analysis.assumed)


@pytest.mark.parametrize("yes_or_no", [True, False])
def test_lower_rewards_may_be_better(yes_or_no: bool) -> None:
    """A harm that the new arm halves: the effect says how much lower it is, and the new arm is recommended."""
    rng = np.random.default_rng(9)
    new = rng.random(6000) < 0.5
    harm = rng.random(6000) < 0.2 - 0.1 * new if yes_or_no else rng.normal(60 - 9 * new, 10)
    rows = {"arm": np.where(new, "new", "old"), "harm": harm}
    bounds = None if yes_or_no else (0.0, 120.0)
    analysis = lab.analyze(rows, reward="harm", control="old", lower_is_better=True, bounds=bounds)
    [effect] = analysis.answer.effects
    lower = harm[~new].mean() - harm[new].mean()
    assert effect.value == pytest.approx(lower, rel=1e-3)
    assert (effect.reason, analysis.answer.recommended) == ("decided better", "new")
    assert "A lower harm counts as better" in analysis.assumed[0]
    assert f"old: mean harm of about {harm[~new].mean():.3g}; new " in analysis.assumed[0]
    assert f"lower ({lower / harm[~new].mean():.0%})" in analysis.assumed[0]
    # Means of the turned rewards are nobody's.
    assert analysis.result.conclusion.headline.sentence.endswith("against old. That is decided.")
    assert (analysis.result.conclusion.baseline, analysis.result.conclusion.reward.sentence) == (
        None,
        "Effects say how much lower harm is.",
    )
    assert lab.analyze(rows, reward="harm", control="old").answer.recommended == "old"


def test_a_rule_for_everybody_is_as_sure_as_the_headline() -> None:
    """The last segment is empty and undecided; the effect on all people is decided."""
    rng = np.random.default_rng(9)
    new = rng.random(6000) < 0.5
    rows = {"arm": np.where(new, "new", "old"), "reward": rng.random(6000) < 0.1 + 0.1 * new}
    rows["place"] = np.where(rng.random(6000) < 0.5, "here", "there")
    conclusion = lab.analyze(rows, control="old", segments={"place": ["here", "there", "nowhere"]}).result.conclusion
    assert conclusion.rules is not None
    assert [(rule.arm, rule.confidence_label) for rule in conclusion.rules.rules] == [("new", "decided")]
    assert conclusion.headline.confidence_label == "decided"


@pytest.mark.parametrize("epsilon", [None, 1.0])
def test_the_words_are_true_of_rows_that_no_server_had(epsilon: float | None) -> None:
    """Planted: the planned people were asked, and the server sees records."""
    rows = {"arm": ["a", "b"] * 400, "reward": [0, 1, 1, 0] * 200}
    analysis = lab.analyze(rows, shares={"a": 0.5, "b": 0.5}, epsilon=epsilon)
    words = " ".join([*analysis.notes, analysis.result.conclusion.privacy.sentence])
    assert analysis.answer.stop_reason == "its rows"
    assert "Its rows are all that there is of it" in words
    assert not re.search("server|horizon|planned", words)
