"""Names of options and levels are kept, rows are joined by person, and suspicious columns have notes."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import ttest_ind

import privateer_lab as lab
from privateer_core.errors import SpecError
from privateer_lab.environments import environment_for
from privateer_lab.tables.data_column import parse_number
from privateer_lab.tables.data_table import DataTable
from tests.support.specs import make_spec

RATES = {"1.1": 0.2, "1.10": 0.4, "1.2": 0.2, "01": 0.3}


def versions(rename: Any = str, people: int = 4000) -> str:
    """Return rows of four options with numeric names; the second option is the best."""
    rng, names = np.random.default_rng(1), list(RATES)
    rows = [(name, int(rng.random() < RATES[name])) for name in (names[n % 4] for n in range(people))]
    return "version,bought\n" + "".join(f"{rename(name)},{bought}\n" for name, bought in rows)


@pytest.mark.parametrize("rename", [str, "v{}".format, "0{}".format, "{}0".format, "{} ".format])
def test_renaming_options_changes_no_answer(rename: Any, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(versions(rename))
    analysis = lab.analyze(path, arm="version", reward="bought", control=rename("1.1").strip())
    plain = tmp_path / "plain.csv"
    plain.write_text(versions("v{}".format))
    expected = lab.analyze(plain, arm="version", reward="bought", control="v1.1")
    values = {effect.arm: effect.value for effect in analysis.answer.effects}
    assert values == {rename(effect.arm[1:]).strip(): effect.value for effect in expected.answer.effects}
    assert analysis.answer.recommended == rename("1.10").strip()
    spec_draft = lab.spec_from(path, arm="version", reward="bought")
    assert set(spec_draft.spec.options) == {rename(name).strip() for name in RATES}


def test_levels_of_segments_and_features_stay_as_they_are(tmp_path: Path) -> None:
    rng, path = np.random.default_rng(0), tmp_path / "t.csv"
    zips = rng.choice(["01067", "1067", "1067.0"], 900)
    rows = zip(rng.choice(["a", "b"], 900), zips, rng.integers(0, 2, 900), strict=True)
    path.write_text("arm,zip,reward\n" + "".join(f"{a},{z},{r}\n" for a, z, r in rows))
    feature: Any = lab.spec_from(path, arm="arm", reward="reward").spec.features["zip"]
    segment: Any = lab.analyze(path, segments=["zip"]).spec.features["zip"]
    assert (set(feature.levels), len(segment.levels)) == (set(zips), 3)


def test_numbers_of_frames_have_their_shortest_spelling() -> None:
    frame = {
        "whole": np.array([1.0, 2.0]),
        "part": [1.10, 2.5],
        "kind": [True, False],
        "text": ["1.10", "01"],
        "mixed": [1, "b"],
    }
    rows = DataTable(frame).read()
    texts = {name: column.texts.tolist() for name, column in rows.columns.items()}
    assert texts == {
        "whole": ["1", "2"],
        "part": ["1.1", "2.5"],
        "kind": ["true", "false"],
        "text": ["1.10", "01"],
        "mixed": ["1", "b"],
    }
    assert DataTable(pa.table({"x": [0.1 + 0.2]})).read().column("x").numbers.tolist() == [0.1 + 0.2]


@pytest.mark.parametrize(
    ("text", "decimal", "number"),
    [
        ("$1,234.50", ".", 1234.5),
        ("-$5", ".", -5),
        ("1 234,50 €", ",", 1234.5),
        ("1.234.567,8", ",", 1234567.8),
        ("1.234", ",", 1234),
        ("0.25", ",", 0.25),
        ("1'000", ".", 1000),
        ("12 %", ".", 12),
        ("+5", ".", 5),
        ("1e3", ".", 1000),
        ("1,23,4", ".", None),
        ("12.03.2024", ",", None),
        ("1_000", ".", None),
        ("5 apples", ".", None),
        ("EUR", ".", None),
    ],
)
def test_texts_of_amounts_are_parsed(text: str, decimal: str, number: float | None) -> None:
    amount = parse_number(text, decimal)
    assert np.isnan(amount) if number is None else amount == number


def visits(mixed: int = 0) -> dict[str, Any]:
    """Return three visits of each of 400 people; ``mixed`` of them change their arm at the last visit."""
    rng = np.random.default_rng(5)
    arm = np.repeat(rng.choice(["a", "b"], 400), 3)
    arm[2 : 3 * mixed : 3] = np.where(arm[2 : 3 * mixed : 3] == "a", "b", "a")
    score = np.repeat(rng.normal(50, 10, 400), 3) + rng.normal(0, 1, 1200) + 3 * (arm == "b")
    return {"patient_id": np.repeat(np.arange(400), 3), "arm": arm, "score": score, "age": rng.integers(20, 80, 1200)}


def test_rows_of_a_person_count_once() -> None:
    """The interval is that of Welch's test of people's means; of rows it is three fifths as wide."""
    rows = visits()
    bounds = (0.0, 100.0)
    analysis = lab.analyze(rows, reward="score", person="patient_id", bounds=bounds)
    means, arms = rows["score"].reshape(400, 3).mean(axis=1), rows["arm"][::3]
    welch = ttest_ind(means[arms == "b"], means[arms == "a"], equal_var=False).confidence_interval(0.95)
    [effect] = analysis.answer.effects
    assert (effect.low, effect.high) == pytest.approx((welch.low, welch.high), abs=0.03)
    assert analysis.answer.people == 400
    note = "1,200 rows are 400 people by patient_id: each counts once, with the mean of their score."
    spec_draft = lab.spec_from(rows, arm="arm", reward="score", person="patient_id")
    assert note in spec_draft.notes
    assert note in analysis.assumed
    assert "patient_id" not in spec_draft.spec.features
    assert len(spec_draft.people.rows.rewards) == 400
    [by_row] = lab.analyze(rows, reward="score", bounds=bounds).answer.effects
    assert by_row.high - by_row.low < 0.65 * (effect.high - effect.low)


def test_people_of_several_arms_are_left_out_and_rows_that_repeat_people_are_noticed() -> None:
    rows = visits(mixed=7)
    spec_draft = lab.spec_from(rows, arm="arm", reward="score", person="patient_id")
    analysis = lab.analyze(rows, reward="score", person="patient_id")
    note = "7 people by patient_id have several values of arm, and are left out."
    assert note in spec_draft.notes
    assert note in analysis.assumed
    assert analysis.answer.people == 393
    hint = "Rows count as people, and patient_id has 400 values in 1,200 rows: if it says whose row it is, "
    for notes in (lab.spec_from(rows, arm="arm", reward="score").notes, lab.analyze(rows, reward="score").assumed):
        assert hint + "give --person patient_id." in notes


def test_with_a_promise_a_person_with_all_rows_moves_the_answer_once() -> None:
    rows, shares = visits(), {"a": 0.5, "b": 0.5}
    analysis = lab.analyze(rows, reward="score", person="patient_id", shares=shares, bounds=(0.0, 100.0), epsilon=4.0)
    assert analysis.spec.experiment.horizon == 400
    [effect] = analysis.answer.effects
    exact = lab.analyze(rows, reward="score", person="patient_id", bounds=(0.0, 100.0)).answer.effects[0]
    assert effect.value == pytest.approx(exact.value, abs=3.0)


def test_with_a_promise_missing_outcomes_have_no_effect() -> None:
    """Half of the outcomes of an arm are missing and all others are equal, so the effect is 0."""
    rows = {"arm": ["gel"] * 6000 + ["none"] * 6000, "pain": [5, None] * 3000 + [5] * 6000}
    analysis = lab.analyze(
        rows, reward="pain", shares={"none": 0.5, "gel": 0.5}, bounds=(0.0, 10.0), epsilon=4.0, lower_is_better=True
    )
    [effect] = analysis.answer.effects
    assert effect.value is None or abs(effect.value) < 0.5
    words = {"arm": ["new", "old"] * 50, "outcome": ["ill", "cured"] * 50}
    analysis = lab.analyze(words, reward="outcome", shares={"old": 0.5, "new": 0.5}, epsilon=1.0)
    assert not analysis.answer.effects[0].is_decided
    assert "whose outcome is no number and no yes or no, count nowhere" in " ".join(analysis.notes)


def test_evaluation_of_a_log_by_person_is_as_unsure_as_its_people() -> None:
    """Each row of 300 is there four times: with people the error is that of 300 rows, without half of it."""
    rng = np.random.default_rng(2)
    log = {"arm": rng.choice(["a", "b"], 300), "p": np.full(300, 0.5), "reward": rng.random(300)}
    four = {name: np.tile(values, 4) for name, values in log.items()} | {"user": np.tile(np.arange(300), 4)}
    single, people, rows = (lab.evaluate(log, "b"), lab.evaluate(four, "b", person="user"), lab.evaluate(four, "b"))
    assert people.ips.value == pytest.approx(single.ips.value)
    assert people.ips.error == pytest.approx(single.ips.error, rel=1e-6)
    assert rows.ips.error == pytest.approx(single.ips.error / 2, rel=0.01)
    assert people.snips.error == pytest.approx(single.snips.error, rel=1e-6)


def test_simulated_people_of_several_rows_are_one_each(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text("who,x1,a,b\n" + "".join(f"u{n // 2},{n / 40},{(n % 2) / 2},1\n" for n in range(40)))
    population = {"name": "rows", "path": str(path), "rewards": ["a", "b"], "person": "who"}
    spec = make_spec({"experiment.arms": ["a", "b"], "context.features": {"x1": {"low": 0, "high": 1}}})
    spec = spec.model_copy(update={"population": population})
    people = environment_for(spec, 0)
    contexts = people.contexts(0, 500, np.random.default_rng(0))
    assert len(np.unique(contexts[:, 0])) == 20
    assert (people.means(contexts) == [0.25, 1.0]).all()


def table(people: int = 600, **columns: Any) -> dict[str, Any]:
    rng = np.random.default_rng(7)
    return {"arm": rng.choice(["a", "b"], people), "won": rng.integers(0, 2, people), **columns}


def notes(**columns: Any) -> str:
    spec_draft = lab.spec_from(table(**columns), arm="arm", reward="won")
    return "\n".join((*spec_draft.notes, *spec_draft.confirm))


RNG = np.random.default_rng(9)
SMALL = RNG.integers(0, 9, 600)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.where(SMALL == 8, 999, SMALL), "rows have 999, 992 beyond all others: if that stands for no value, give"),
        (np.where(SMALL == 8, 666, SMALL), "rows have 666, 659 beyond all others"),
        (np.where(SMALL == 8, -99, SMALL), "rows have -99, 99 beyond all others"),
        (np.where(SMALL > 6, 991 + SMALL, SMALL), "rows have 998 and 999, 992 beyond all others"),
        (np.where(SMALL < 2, 0.37, SMALL % 2), "which have one number between: if that is a mean filled in"),
        (RNG.choice([-1, 0, 1], 600, p=[0.1, 0.85, 0.05]), "x has 3 whole numbers: if they are codes, list them"),
        ([f"{code:04d}" for code in SMALL], "x: its numbers begin with zeros, and count as codes."),
        (np.where(SMALL == 0, "refused", SMALL.astype(str)), "x: all values but 'refused' ("),
        (np.tile(["2024-01-05", "2024-02-05"], 300)[RNG.permutation(600)], "x is left out: its values are dates"),
        (RNG.choice(np.arange(100_000, 900_000), 600, replace=False), "x is left out: every row has a whole number of"),
    ],
)
def test_suspicious_columns_have_a_note(values: Any, words: str) -> None:
    assert words in notes(x=values)


def test_codes_do_not_decide_bounds() -> None:
    codes = table(x=np.where(SMALL == 8, 999, SMALL), y=np.where(SMALL == 8, 999, SMALL * 3.0))
    feature: Any = lab.spec_from(codes, arm="arm", reward="won").spec.features["x"]
    assert feature.high < 10
    spec_draft, analysis = lab.spec_from(codes, arm="arm", reward="y"), lab.analyze(codes, reward="y")
    assert analysis.spec.reward.high == 3 * SMALL[SMALL != 8].max() <= spec_draft.spec.reward.high < 30
    [note] = [message for message in analysis.assumed if "beyond all others" in message]
    assert note in spec_draft.notes
    assert "give --missing 999" in note
    marked = lab.analyze(codes, reward="y", missing=["999"])
    assert marked.answer.people == int((SMALL != 8).sum())


def test_no_digits_of_money_are_codes() -> None:
    money = np.append(np.exp(RNG.normal(3, 2, 598)), [9999.0, 99999.0])
    assert "beyond all others" not in notes(x=money)


@pytest.mark.parametrize(
    ("made_of", "names"),
    [
        (lambda y, z: {"log": np.log1p(y)}, {"log"}),
        (lambda y, z: {"food": z, "rest": y - z}, {"food", "rest"}),
        (lambda y, z: {"stage": np.where(y > np.median(y), "won", "lost"), "bought": y > 0}, set()),
        (lambda y, z: {"before": y + RNG.normal(0, y.std(), len(y))}, set()),
    ],
)
def test_columns_that_give_the_outcome_away_are_no_features(made_of: Any, names: set[str]) -> None:
    rng = np.random.default_rng(4)
    y, z = np.exp(rng.normal(size=600)), rng.random(600)
    frame = {"arm": rng.choice(["a", "b"], 600), "y": y, "age": rng.integers(18, 80, 600), **made_of(y, z)}
    spec_draft = lab.spec_from(frame, arm="arm", reward="y")
    left_out = {note.split(" is left out")[0] for note in spec_draft.notes if "it tells the outcome nearly" in note}
    assert left_out == names
    assert not names & set(spec_draft.spec.features)
    assert "age" in spec_draft.spec.features


def test_copies_of_rows_are_noticed_where_they_are_no_chance() -> None:
    rng = np.random.default_rng(4)
    frame = {"arm": rng.choice(["a", "b"], 600), "reward": rng.random(600) < 0.5, "age": rng.random(600)}
    doubled = {name: np.concatenate([values, values[:20]]) for name, values in frame.items()}
    note = "20 rows are exact copies of others: if they are the same people, leave the copies out."
    assert note in lab.analyze(doubled).assumed
    assert note in lab.spec_from(doubled, arm="arm", reward="reward").notes
    assert note not in lab.analyze(frame).assumed
    few_values = {"arm": frame["arm"], "reward": frame["reward"], "sex": rng.integers(0, 2, 600)}
    assert not any("copies" in message for message in lab.analyze(few_values).assumed)


def test_a_large_parquet_file_is_read_by_the_columns_that_are_named(tmp_path: Path) -> None:
    """Other columns are not read if the table has more rows than a sample, so a column of lists is accepted."""
    rows = 100_001
    frame = pa.table(
        {"arm": ["a", "b", "a"] * (rows // 3), "reward": [0, 1, 1] * (rows // 3), "x": [[1]] * (rows // 3 * 3)}
    )
    from pyarrow import parquet

    parquet.write_table(pa.concat_tables([frame, frame.slice(0, 3)]), tmp_path / "t.parquet")
    assert lab.analyze(tmp_path / "t.parquet").answer.people == rows // 3 * 3 + 3
    with pytest.raises(SpecError, match=r"column 'x' of .* has values that are no numbers or texts"):
        lab.spec_from(tmp_path / "t.parquet", arm="arm", reward="reward")
