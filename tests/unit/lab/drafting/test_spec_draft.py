"""Specs drafted from data: the feature for each column, its notes, and rare values, which do not appear."""

import json
import random
from pathlib import Path

import numpy as np
import pytest

from privateer_core.errors import SpecError
from privateer_core.spec.categories import Boolean, Categorical
from privateer_core.spec.features import Numeric, Ranked
from privateer_lab.drafting.spec_draft import draft
from privateer_lab.environments import environment_for
from tests.unit.lab.cli.test_command_line import run

GARDEN = Path(__file__).parents[4] / "examples" / "garden.csv"


def columns(people: int = 2000) -> dict[str, list[object]]:
    rng = random.Random(0)
    rows = range(people)
    return {
        "id": [f"person-{row}" for row in rows],
        "country": [rng.choices(["NL", "DE", "FR", "Monaco"], [50, 30, 19.9, 0.1])[0] for _ in rows],
        "hours": [None if rng.random() < 0.2 else round(rng.gauss(38, 6), 1) for _ in rows],
        "income": [rng.lognormvariate(9, 2) for _ in rows],
        "premium": [rng.random() < 0.5 for _ in rows],
        "clicks": [rng.choice([0, 1]) for _ in rows],
        "region": [rng.choice([1, 2, 3]) for _ in rows],
        "same": ["x" for _ in rows],
        "empty": [float("nan") for _ in rows],
    }


def test_columns_become_features_of_their_kind():
    spec_draft = draft(columns(), arms=["a", "b"], name="offers")
    spec = spec_draft.spec
    assert spec.name == "offers"
    assert spec.options == ("a", "b")
    features = spec.features
    assert list(features) == ["country", "hours", "income", "premium", "clicks", "region"]
    assert features["country"] == Categorical(levels=("NL", "DE", "FR"))
    assert features["hours"].missing
    assert isinstance(features["hours"], Numeric)
    assert isinstance(features["premium"], Boolean)
    assert isinstance(features["clicks"], Boolean)
    confirmations = " ".join(spec_draft.confirm)
    assert all(name in confirmations for name in ("country", "hours", "income", "region"))
    assert "premium" not in confirmations
    notes = " ".join(spec_draft.notes)
    assert "id is left out" in notes
    assert "same is left out: every row has the same value" in notes
    assert "empty is left out: it has no values" in notes
    assert "region has 3 whole numbers" in notes


@pytest.mark.parametrize(
    ("name", "first", "last", "turn"),
    [
        ("hour", 0, 23, (0, 24)),
        ("Hour_of_day", 1, 24, (0, 24)),
        ("weekday", 0, 6, (0, 7)),
        ("dow", 1, 7, (1, 8)),
        ("month", 1, 12, (1, 13)),
        ("Month", 0, 11, (0, 12)),
        ("month", 0, 12, None),
        ("hour", 1, 12, None),
        ("hours", 0, 23, None),
        ("day_of_week", 0, 7, None),
        ("rank", 0, 23, None),
    ],
)
def test_hours_and_weekdays_are_cyclic_by_their_names(name, first, last, turn):
    data = columns()
    data[name] = [first + n % (last - first + 1) for n in range(2000)]
    spec_draft = draft(data, arms=["a", "b"], name="offers")
    feature = spec_draft.spec.features[name]
    assert (isinstance(feature, Numeric) and feature.cyclic) == (turn is not None)
    if isinstance(feature, Numeric) and turn:
        assert (feature.low, feature.high) == turn
        assert not any(message.startswith(f"{name}:") for message in spec_draft.confirm), "bounds identify no row"


def test_redundant_columns_are_left_out() -> None:
    data = columns()
    data["land"] = [{"NL": "Netherlands", "DE": "Germany"}.get(country, country) for country in data["country"]]
    data["wage"] = list(data["income"])
    data["screen"] = [random.Random(row).choice(["new", "old"]) for row in range(2000)]
    data["is_new"] = [screen == "new" for screen in data["screen"]]
    data["bought"] = [row % 7 == 0 for row in range(2000)]
    spec_draft = draft(data, arm="screen", reward="bought")
    assert list(spec_draft.spec.features) == ["country", "hours", "income", "premium", "clicks", "region"]
    notes = " ".join(spec_draft.notes)
    assert "land is left out: it says what country says." in notes
    assert "wage is left out: it says what income says." in notes
    assert "is_new is left out: it says which option a row has, as screen does" in notes
    # Two numbers of which every row has another one are not the same.
    data["rank"] = [income**0.5 for income in data["income"]]
    assert "rank" in draft(data, arm="screen", reward="bought").spec.features


def test_rare_values_and_extremes_do_not_appear_in_the_spec():
    data = columns()
    data["hours"][7] = 987.654
    spec_draft = draft(data)
    assert "Monaco" not in str(spec_draft) + " ".join(spec_draft.confirm + spec_draft.notes)
    assert "person-" not in str(spec_draft)
    hours = spec_draft.spec.features["hours"]
    assert isinstance(hours, Numeric)
    assert hours.high < 100
    observed = np.array([value for value in data["hours"] if value is not None])
    assert np.mean((observed >= hours.low) & (observed <= hours.high)) > 0.97


def test_declared_bounds_need_no_confirmation():
    spec_draft = draft(columns(), bounds={"hours": (0, 80)})
    assert spec_draft.spec.features["hours"] == Numeric(low=0, high=80, missing=True)
    assert not [message for message in spec_draft.confirm if message.startswith("hours")]


def test_crowded_numbers_have_cut_points():
    features = draft(columns()).spec.features
    assert isinstance(features["income"], Ranked)
    assert isinstance(features["hours"], Numeric)


def test_a_spec_has_at_most_twenty_features():
    columns = {f"x{j}": [i * j % 211 + 0.5 for i in range(200)] for j in range(1, 24)}
    spec_draft = draft(columns)
    assert len(spec_draft.spec.features) == 20
    assert sum("left out: a spec has at most 20 features" in note for note in spec_draft.notes) == 3


def test_names_that_toml_has_to_quote():
    spec_draft = draft({'pay "gross", €': [1.0, 2.0, 3.5], "a.b": [True, False, None]})
    assert list(spec_draft.spec.features) == ['pay "gross", €', "a.b"]


class Series(list):
    """The methods that columns of pandas and polars share."""

    def tolist(self):
        return list(self)


class Frame:
    def __init__(self, data):
        self._data, self.columns = data, list(data)

    def __getitem__(self, name):
        return Series(self._data[name])


def test_data_frames_and_arrow_tables_are_alike():
    pa = pytest.importorskip("pyarrow")
    data = columns(300)
    expected = str(draft(data))
    assert str(draft(Frame(data))) == expected
    assert str(draft(pa.table(data))) == expected


MANY = {"age": list(range(300)), "won": [0, 1] * 150}
LOG = {
    "age": list(range(20, 60)) * 5,
    "shown": ["new", "old"] * 100,
    "won": [1, 0, 0, 1, 0] * 40,
    "same": [1] * 200,
    "words": ["yes please", "no"] * 100,
    "empty": [None] * 200,
}


@pytest.mark.parametrize(
    ("table", "keys", "message"),
    [
        (5, {}, "table: no columns"),
        ({}, {}, "table: no columns"),
        ({"x": ["a", "a"]}, {}, "table: no column makes a feature"),
        ({"x": []}, {}, "table: has no rows"),
        ({"x": [1, 2], "y": [1]}, {}, "table: its columns must have one length"),
        ({"x": [1, 2]}, {"label": "y"}, "y: no column has this name"),
        ({"x": [1, 2], "y": [1, 1]}, {"label": "y"}, "y: must have 2 to 256"),
        (LOG, {"arm": "shown", "reward": "wrong"}, r"wrong: no column has this name \(choose from age, shown, won"),
        (LOG, {"arm": "same", "reward": "won"}, "same: every row has the same option"),
        (MANY, {"arm": "age", "reward": "won"}, "age: has 300 different values, and an experiment at most 256"),
        (LOG, {"arm": "shown", "reward": "same"}, "same: every row has the same reward"),
        (LOG, {"arm": "shown", "reward": "words"}, r"words: must be numbers, or yes and no.*\(make it 1 and 0"),
        (LOG, {"arm": "shown", "reward": "shown"}, "--reward shown: is the column of --arm too"),
        (LOG, {"arm": "shown", "reward": "empty"}, "empty: has no row with a value"),
        (LOG, {"arm": "shown", "reward": "won", "segments": ["nothing"]}, "nothing: no column has this name"),
        ({"x": ["a", "b"]}, {"arm": "x"}, "table: no column makes a feature"),
        ({"x": [1, 2]}, {"bounds": {"z": (0, 1)}}, "z: no column has this name"),
        ({"x": [1, 2]}, {"name": "Has Spaces"}, "experiment.name"),
    ],
)
def test_data_that_make_no_spec_are_named(table, keys, message):
    with pytest.raises(SpecError, match=message):
        draft(table, **keys)


def run_spec_from(capsys, *arguments):
    return run(capsys, "spec-from", *arguments)


@pytest.mark.usefixtures("without_choice")
def test_the_command_prints_a_spec_that_simulates(tmp_path, capsys, monkeypatch):
    out = tmp_path / "garden.toml"
    code, printed, messages = run_spec_from(capsys, GARDEN, "--label", "grew", "--bounds", "sun=0:12", "--out", out)
    assert (code, printed) == (0, "")
    assert "Everybody may read a spec" in messages
    assert "sun" not in messages
    assert out.read_text().count("from the data: confirm") >= 2, "the options and the rain"
    from privateer_lab.cli.input_files import load_spec

    spec = load_spec(out, [])
    assert spec.options == ("beans", "ferns", "melons")
    contexts = environment_for(spec, 0).contexts(0, 600, np.random.default_rng(0))
    assert contexts.shape == (600, 5)
    monkeypatch.chdir(tmp_path)
    assert run_spec_from(capsys, GARDEN, "--label", "grew", "--bounds", "sun=0:12")[1].startswith("[experiment]")
    assert json.loads(run_spec_from(capsys, GARDEN, "--json")[1])["confirm"]


@pytest.mark.parametrize("bounds", ["sun", "sun=1", "sun=2:1", "=0:1", "sun=0:x", "sun=nan:1"])
def test_malformed_bounds_are_refused(bounds, capsys):
    code, _, error = run_spec_from(capsys, GARDEN, "--bounds", bounds)
    assert code == 2
    assert "--bounds: cannot read it (write column=low:high, low below high" in error


def outcomes() -> dict[str, list[object]]:
    """Return a log with scores from 0 to 1, amounts spent, and purchases."""
    rng = np.random.default_rng(1)
    amounts = np.where(rng.random(2_000) < 0.3, np.exp(3 + rng.normal(size=2_000)), 0.0)
    score = np.clip(rng.normal(0.5, 0.1, 2_000), 0, 1)
    age = rng.integers(18, 90, 2_000)
    return {"age": [*age.tolist()], "spent": [*amounts], "score": [*score], "bought": [*(amounts > 0).astype(float)]}


def test_numeric_rewards_have_bounds_with_their_source():
    spec_draft = draft(outcomes(), arms=["a", "b"], reward="spent", ignore=["score", "bought"])
    reward, amounts = spec_draft.spec.reward, np.array(outcomes()["spent"])
    assert (reward.kind, reward.low) == ("numeric", 0.0)
    inside = np.clip(amounts, reward.low, reward.high)
    assert reward.base_rate == pytest.approx(inside.mean(), rel=0.05)
    assert reward.standard_deviation == pytest.approx(inside.std(), rel=0.05)
    assert any(
        "spent: low, high, base_rate, standard_deviation of [reward] are from the data" in message
        for message in spec_draft.confirm
    )
    clipped = f"{(amounts > reward.high).sum():,} of {len(amounts):,} rows are clipped"
    assert any(clipped in note for note in spec_draft.notes)
    bounded = draft(outcomes(), arms=["a", "b"], reward="spent", bounds={"spent": (0, 50)}, ignore=["score", "bought"])
    assert (bounded.spec.reward.kind, bounded.spec.reward.high) == ("numeric", 50.0)
    assert any("(as given)" in note for note in bounded.notes)
    assert not any("low" in message for message in bounded.confirm if message.startswith("spent"))


def test_scores_within_0_and_1_are_numeric_and_yes_or_no_is_not():
    score = draft(outcomes(), arms=["a", "b"], reward="score", ignore=["spent", "bought"]).spec.reward
    assert (score.kind, score.low, score.high) == ("numeric", 0.0, 1.0)
    assert score.standard_deviation == pytest.approx(0.1, rel=0.06)
    bought = draft(outcomes(), arms=["a", "b"], reward="bought", ignore=["spent", "score"]).spec.reward
    assert (bought.kind, bought.low, bought.high) == ("binary", 0.0, 1.0)


def test_a_level_of_few_rows_has_to_be_confirmed() -> None:
    towns = ["Ams"] * 60 + ["Bru"] * 50 + ["Tiny"] * 4
    confirm = draft({"town": towns, "age": list(range(18, 75)) * 2}).confirm
    assert "town: the names of its 3 levels are from the data; 1 of them has fewer than 10 rows" in confirm[0]
    large = draft({"town": towns * 2, "age": list(range(18, 75)) * 4})
    assert "Tiny" not in large.text


def test_classes_of_a_label_are_said_to_be_from_the_data() -> None:
    table = {"age": list(range(18, 75)) * 2, "grew": ["Mrs Smith"] + ["bean", "pea"] * 56 + ["pea"]}
    spec_draft = draft(table, label="grew")
    assert "Mrs Smith" in spec_draft.text
    assert spec_draft.confirm[0] == "grew: the names of the 3 options are from the data"


@pytest.mark.usefixtures("short_search")
def test_rows_without_a_class_are_left_out_of_the_people(tmp_path: Path) -> None:
    path = tmp_path / "plants.csv"
    rows = [f"{row % 40},{'' if row % 5 == 0 else 'pea' if row % 40 < 20 else 'bean'}" for row in range(500)]
    path.write_text("\n".join(["age,grew", *rows]))
    spec_draft = draft(path, label="grew", seen_from=tmp_path)
    assert "100 rows without grew are left out." in spec_draft.notes
    assert spec_draft.spec.options == ("bean", "pea")
    assert spec_draft.spec.learning.experiment.horizon == 400
    assert spec_draft.choice, "rows without a class refused all runs"


def test_bounds_of_texts_are_refused(capsys):
    code, printed, error = run_spec_from(capsys, GARDEN, "--bounds", "soil=0:1")
    assert (code, printed) == (2, "")
    assert error == "privateer: --bounds soil: has values that are not numbers (give no bounds of it)\n"


def test_the_data_are_not_replaced(tmp_path, capsys):
    log = tmp_path / "log.csv"
    log.write_bytes(GARDEN.read_bytes())
    people = tmp_path / "spec.people.parquet"
    for data, out in ((log, log), (people, tmp_path / "spec.toml")):
        code, _, error = run_spec_from(capsys, data, "--out", out)
        assert code == 2
        assert "--out: would replace the data" in error
    assert log.read_bytes() == GARDEN.read_bytes()
    code, _, error = run_spec_from(capsys, log, "--out", tmp_path / "none" / "spec.toml")
    assert code == 2
    assert "--out: there is no folder" in error


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        ((), ["--arm COLUMN", "--reward COLUMN"]),
        (("--arm", "shown"), ["--reward COLUMN"]),
        (("--reward", "bought"), ["--arm COLUMN"]),
        (("--arm", "shown", "--reward", "bought"), []),
    ],
)
def test_missing_columns_of_a_log_are_named(options, missing, tmp_path, capsys):
    table = outcomes() | {"shown": ["old", "new"] * 1_000}
    log = tmp_path / "log.csv"
    rows = [",".join(map(str, row)) for row in zip(*table.values(), strict=True)]
    log.write_text("\n".join([",".join(table), *rows]))
    error = run_spec_from(capsys, log, *options)[2]
    assert [way for way in ("--arm COLUMN", "--reward COLUMN") if way in error] == missing


def test_a_file_that_no_spec_names_is_the_table(tmp_path, capsys):
    (tmp_path / "empty.csv").touch()
    assert run_spec_from(capsys, tmp_path / "empty.csv")[2].startswith("privateer: table: ")


def test_a_small_log_may_have_a_shuffler_and_its_first_round_is_the_smallest_batch():
    """Planted: a thirtieth of the people, which is below any batch, as where devices keep the promise alone."""
    rng = np.random.default_rng(0)
    log = {"x": rng.random(2_000), "arm": rng.integers(0, 3, 2_000), "won": rng.integers(0, 2, 2_000)}
    shuffled = draft(log, arm="arm", reward="won", model="shuffle").spec.model_dump()
    local = draft(log, arm="arm", reward="won", model="local").spec.model_dump()
    assert shuffled["experiment"]["round_size"] == shuffled["privacy"]["min_batch"]
    assert local["experiment"]["round_size"] < shuffled["privacy"]["min_batch"]
    with pytest.raises(SpecError, match=r"300 people are too few: .* at least 1,000 \(privacy\.min_batch\)"):
        draft({name: values[:300] for name, values in log.items()}, arm="arm", reward="won", model="shuffle")


@pytest.mark.parametrize(("epsilon", "min_batch", "n_batches"), [(1.0, "1,000", 2), (2.0, "300", 6)])
def test_a_draft_with_a_shuffler_says_in_which_crowd_a_report_hides(epsilon, min_batch, n_batches):
    """Planted: fewer than 5,000 people under a shuffler that was asked for, and no word of the crowd."""
    rng = np.random.default_rng(0)
    log = {"x": rng.random(2_000), "arm": rng.integers(0, 3, 2_000), "won": rng.integers(0, 2, 2_000)}
    notes = draft(log, arm="arm", reward="won", model="shuffle", epsilon=epsilon).notes
    (note,) = [note for note in notes if "hides" in note]
    assert f"at least {min_batch} " in note
    assert f"2,000 people fill {n_batches} batches" in note
