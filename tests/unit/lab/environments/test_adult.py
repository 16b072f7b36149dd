"""The UCI Adult census: its own format, and the figures that are known of it."""

import os
from pathlib import Path

import numpy as np
import pytest

from privateer_core.errors import SpecError
from privateer_lab.environments import environment_for
from privateer_lab.environments.files import ADDED_EFFECTS
from tests.support.specs import make_spec

ROW = (
    "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, {}, {}"
)
COLUMNS = {
    "age": {"low": 17, "high": 90},
    "education-num": {"low": 1, "high": 16},
    "hours": {"low": 1, "high": 99},
}
COMPONENTS = {f"component-{j}": {"low": 0, "high": 1} for j in (1, 2, 3)}


def adult(path: str, features: object = COLUMNS, **population: object):
    changes = {"experiment.arms": ["x", "y"], "context.features": features}
    return make_spec({**changes, "population": {"name": "adult", "path": path, **population}})


def write(directory: Path, *rows: str) -> str:
    path = directory / "adult.csv"
    path.write_text("\n".join(["|remark", *rows, ""]))
    return str(path)


def test_people_of_the_file(tmp_path):
    row = ROW.format("United-States", "<=50K")
    rows = (row, ROW.format("Cuba", ">50K.").replace("39", "41"), row.replace("40, U", "20, U").replace("13", "9"))
    path = write(tmp_path, *rows)
    people = environment_for(adult(path), 0)
    contexts = people.contexts(0, 3, np.random.default_rng(0))
    assert sorted(contexts[:, :3].tolist()) == [[39, 9, 20], [39, 13, 40], [41, 13, 40]]
    assert sorted(people.means(contexts).tolist()) == [[0.1, 1.0], [0.35, 0.0], [0.35, 0.0]]
    guessed = environment_for(adult(path, task="income"), 0)
    assert guessed.means(guessed.contexts(0, 3, np.random.default_rng(0))).sum(axis=0).tolist() == [2, 1]


def test_an_offer_adds_what_is_said_by_sex_and_hours(tmp_path):
    """Mean rewards stay within [0, 1]."""
    rng, rows = np.random.default_rng(3), []
    for sex in ("Female", "Male"):
        for hours in rng.integers(20, 60, 400).tolist():
            row = ROW.format("Cuba", rng.choice(["<=50K", ">50K"], p=[0.7, 0.3]))
            rows.append(row.replace("Male", sex).replace(" 40,", f" {hours},"))
    people = environment_for(adult(write(tmp_path, *rows), {"hours": COLUMNS["hours"]}, task="effects"), 0)
    contexts = people.contexts(0, 800, np.random.default_rng(0))
    means = people.means(contexts)
    assert 0 <= means.min() <= means.max() <= 1
    added = np.zeros((2, 3))
    cells = contexts[:, -1].astype(int) // 2
    for place in range(6):
        added[place // 3, place % 3] = (means[cells == place, 1] - means[cells == place, 0]).mean()
    assert added == pytest.approx(ADDED_EFFECTS)


def test_rows_that_cannot_be_used_are_named(tmp_path):
    good = ROW.format("Cuba", "<=50K")
    with pytest.raises(SpecError, match="row 3, column 'income'"):
        environment_for(adult(write(tmp_path, good, ROW.format("Cuba", "secret"))), 0)
    with pytest.raises(SpecError, match="row 2, column 'age'"):
        environment_for(adult(write(tmp_path, good.replace("39", "old"))), 0)
    with pytest.raises(SpecError, match="no row is left"):
        environment_for(adult(write(tmp_path, good, ROW.format("Cuba", ">50K")), cohort="target"), 0)
    with pytest.raises(SpecError, match="cannot read"):
        environment_for(adult(str(tmp_path / "none.csv")), 0)
    with pytest.raises(SpecError, match=r"experiment\.arms: .*has 2"):
        environment_for(make_spec({"population": {"name": "adult", "path": "x"}}), 0)


def files() -> str:
    first = Path(os.environ["PRIVATEER_ADULT"])
    return f"{first},{first.with_name('adult.test.gz')}"


@pytest.mark.data
@pytest.mark.parametrize(
    ("population", "count", "constant"),
    [
        ({}, 48_842, 0.2902),
        ({"cohort": "target", "task": "income"}, 41_292, 0.7470),
        ({"cohort": "source"}, 3930, None),
    ],
)
def test_sizes_and_the_best_constant(population, count, constant):
    """Paper 1, Table 1 has 41,292 people; that these are those born in the United States is our finding."""
    people = environment_for(adult(files(), **population), 0)
    contexts = people.contexts(0, count, np.random.default_rng(0))
    assert (people.contexts(count, 1, np.random.default_rng(0)) == contexts[:1]).all()
    assert len(np.unique(contexts, axis=0)) > count / 10
    if constant:
        assert people.means(contexts).mean(axis=0).max() == pytest.approx(constant, abs=1e-4)


@pytest.mark.data
@pytest.mark.parametrize(("features", "projected", "share"), [(COLUMNS, False, 0.784), (COMPONENTS, True, 0.803)])
def test_what_a_policy_of_64_cells_could_reach(features, projected, share):
    """The best arm of every cell of a 4 x 4 x 4 grid: above the constant's .747, so there is something to learn."""
    spec = adult(files(), features, task="income", cohort="target", projected=projected)
    people = environment_for(spec, 0)
    contexts = people.contexts(0, 41_292, np.random.default_rng(0))
    low, high = np.array([(feature.low, feature.high) for feature in spec.features.values()]).T
    scaled = np.clip((contexts[:, :3] - low) / (high - low), 0.0, 1.0)
    cells = np.minimum((scaled * 4).astype(int), 3) @ [16, 4, 1]
    rewards = np.zeros((64, 2))
    np.add.at(rewards, cells, people.means(contexts))
    assert rewards.max(axis=1).sum() / 41_292 == pytest.approx(share, abs=2e-3)


@pytest.mark.data
def test_one_hot_columns_are_as_many_as_the_paper_says():
    from privateer_lab.environments.files import ADULT_COLUMNS as NAMES
    from privateer_lab.environments.files import PROJECTION, Components
    from privateer_lab.tables.data_table import DataTable

    source = Components(PROJECTION, adult(files(), COMPONENTS), NAMES)
    DataTable(files(), header=NAMES, remark="|").fill(source.columns, 3, complete=NAMES, drop=True)
    assert source.width == 46
