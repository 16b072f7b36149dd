"""People from the rows of a file, as CSV or Parquet."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

import privateer_lab as lab
from privateer_core.algorithms import parse_spec
from privateer_core.errors import SpecError
from privateer_core.policies.policy import Arms
from privateer_lab.environments import environment_for
from privateer_lab.environments.rows import ObservedRewards
from privateer_lab.tables.data_table import DataTable
from tests.support.specs import make_spec, tables

FEATURES = {"age": {"low": 18, "high": 78}, "plan": {"levels": ["free", "pro"], "missing": True}}
ROWS = [
    "age,plan,a,b,c,spent,likely",
    *(f"{20 + 10 * n},{'free' if n % 2 else ''},{n / 10},.5,1,{n},{n}" for n in range(5)),
]


def people(folder: Path, changes: dict | None = None, rows: list[str] | None = None, **keys: object):
    path = folder / "people.csv"
    path.write_text("\n".join(rows or ROWS), encoding="utf-8")
    spec = make_spec({"experiment.arms": ["a", "b", "c"], "context.features": FEATURES, **(changes or {})})
    return environment_for(spec, 0, {"name": "rows", "path": str(path), **keys})


def test_rows_come_with_replacement_and_yes_with_the_probability_of_the_options_column(tmp_path):
    """40,000 people: shares within .012, which is 4 deviations and more."""
    environment, rng = people(tmp_path), np.random.default_rng(0)
    contexts = environment.contexts(0, 40_000, rng)
    ages, counts = np.unique(contexts[:, 0], return_counts=True)
    assert ages.tolist() == [20, 30, 40, 50, 60]
    assert counts / 40_000 == pytest.approx([0.2] * 5, abs=0.012)
    assert np.isnan(contexts[:, 1]).mean() == pytest.approx(0.6, abs=0.012)
    means = environment.means(contexts)
    assert means[:, 0] == pytest.approx((contexts[:, 0] - 20) / 100)
    for arm, expected in enumerate((0.2, 0.5, 1.0)):
        rewards = environment.rewards(contexts, Arms(np.full(40_000, arm)), rng)
        assert set(rewards.tolist()) <= {0.0, 1.0}
        assert rewards.mean() == pytest.approx(expected, abs=0.012)


def test_an_algorithm_without_context_meets_the_same_people(tmp_path):
    (tmp_path / "people.csv").write_text("\n".join(ROWS), encoding="utf-8")
    sections = tables({"experiment.arms": ["a", "b", "c"]}) | {"algorithm": {"name": "bandit"}}
    del sections["context"]
    environment = environment_for(parse_spec(sections), 0, {"name": "rows", "path": str(tmp_path / "people.csv")})
    contexts = environment.contexts(0, 1000, np.random.default_rng(0))
    assert environment.means(contexts)[:, 1:].tolist() == [[0.5, 1.0]] * 1000


def test_numeric_rewards_equal_the_column_or_have_added_noise(tmp_path):
    money = {"reward.kind": "numeric", "reward.low": 0.0, "reward.high": 10.0}
    environment, rng = people(tmp_path, money), np.random.default_rng(0)
    contexts, arms = environment.contexts(0, 100, rng), Arms(np.zeros(100, np.int64))
    assert (environment.rewards(contexts, arms, rng) == environment.means(contexts)[:, 0]).all()
    noisy = people(tmp_path, money, noise=0.5).rewards(contexts, arms, rng) - environment.means(contexts)[:, 0]
    assert 0.3 < noisy.std() < 0.7


def test_numeric_rewards_may_be_drawn_among_observed_rewards(tmp_path):
    """Whatever may be expected, the mean is that, and no number is new: 40,000 draws, 4 standard errors."""
    rng = np.random.default_rng(0)
    expected = rng.uniform(1, 5, 2000)
    observed = np.where(rng.random(2000) < 0.3, expected * rng.exponential(1 / 0.3, 2000), 0.0)
    law = ObservedRewards(observed, expected)
    for mean in (2.0, 3.0, 4.0):
        rewards = law.draw(law.clip_means(np.full(40_000, mean)), rng)
        assert set(rewards.tolist()) <= set(observed.tolist())
        assert abs(rewards.mean() - mean) < 4 * rewards.std() / 200
        assert 0.6 < (rewards == 0).mean() < 0.8
    assert law.clip_means(np.array([-1.0]))[0] > 0
    money = {"reward.kind": "numeric", "reward.low": 0.0, "reward.high": 10.0}
    environment = people(tmp_path, money, observed={"got": "spent", "expected": "likely"})
    contexts = environment.contexts(0, 50, rng)
    assert set(environment.rewards(contexts, Arms(np.zeros(50, np.int64)), rng).tolist()) <= {0.0, 1.0, 2.0, 3.0, 4.0}


def test_columns_may_have_other_names_than_options(tmp_path):
    assert people(tmp_path, rewards=["c", "b", "a"]).means(np.array([[20.0, 0.0, 0.0]])).tolist() == [[1.0, 0.5, 0.0]]


def test_a_file_that_changes_is_read_again(tmp_path):
    before = people(tmp_path)
    spec = make_spec({"experiment.arms": ["a", "b", "c"], "context.features": FEATURES})
    population = {"name": "rows", "path": str(tmp_path / "people.csv")}
    assert environment_for(spec, 1, population) is before
    assert people(tmp_path, rows=[*ROWS, "78,pro,.1,.1,.1,1,1"]) is not before


@pytest.mark.parametrize(
    ("changes", "keys", "message"),
    [
        ({"experiment.arms": ["a", "b", "d"]}, {}, r"population.rewards: no column of the file is named 'd' \(name"),
        ({}, {"rewards": ["a", "b"]}, "population.rewards: must be 3 columns, one for each of experiment.arms"),
        (
            {},
            {"rewards": ["a", "b", "spent"]},
            r"column 'spent' has rewards outside reward.low = 0 and reward.high = 1",
        ),
        (
            {},
            {"observed": {"got": "x", "expected": "likely"}},
            "population.observed: no column of the file is named 'x'",
        ),
        ({}, {"noise": -1}, "population.noise: must be greater than or equal to 0"),
        (
            {"context.features": {"x": {"low": 0, "high": 1}}},
            {},
            "context.features.x: no column of the table has this name",
        ),
    ],
)
def test_tables_that_make_no_people_are_refused(tmp_path, changes, keys, message):
    with pytest.raises(SpecError, match=message):
        people(tmp_path, changes, **keys)


GARDEN = Path("examples/garden.csv")


def garden(path: Path, changes: dict[str, Any] | None = None) -> Any:
    return lab.spec("examples/garden-shuffle.toml", {"population.path": str(path), **(changes or {})})


def parquet_people(path: Path) -> Any:
    return environment_for(garden(path), 0).contexts(0, 600, np.random.default_rng(0))


def test_csv_and_parquet_give_the_same_people(tmp_path: Path) -> None:
    file = tmp_path / "garden.parquet"
    parquet.write_table(csv.read_csv(GARDEN), file)
    assert (parquet_people(file) == parquet_people(GARDEN)).all()
    assert lab.spec_from(file, label="grew").spec.features == lab.spec_from(GARDEN, label="grew").spec.features


def test_a_parquet_file_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "garden.parquet"
    table = csv.read_csv(GARDEN)
    sun = table["sun"].to_pylist()
    parquet.write_table(table.set_column(0, "sun", pa.array([None, *sun[1:]])), file)
    with pytest.raises(SpecError, match=r"row 1, column 'sun' of .* has no value"):
        parquet_people(file)
    parquet.write_table(table.set_column(0, "sun", pa.array([[1]] * len(table))), file)
    with pytest.raises(SpecError, match="no numbers or texts"):
        parquet_people(file)
    with pytest.raises(SpecError, match="has other columns than are expected"):
        DataTable(str(file), header=["sun", "moon"])
    file.write_bytes(b"no Parquet")
    with pytest.raises(SpecError, match=r"cannot read .*give the path of a CSV or Parquet file"):
        parquet_people(file)
