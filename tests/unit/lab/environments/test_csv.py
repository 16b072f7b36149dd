"""A CSV file as people; an error in it names row, column and remedy, but not the value."""

import gzip
import os
import re
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from privateer_core.algorithms import parse_spec
from privateer_core.errors import SpecError
from privateer_core.policies.policy import Arms
from privateer_core.spec.context import encode_features
from privateer_lab.environments import environment_for
from privateer_lab.tables import data_table, table_files
from privateer_lab.tables.data_column import Numbers
from privateer_lab.tables.data_table import available_memory
from tests.support.specs import make_spec, tables

GOOD = """age,job,hours,kind
31,cook,40,a
45,nurse,38,b
27,cook,20,c
60,"clerk, senior",35,a
"""
FEATURES = {"age": {"low": 0, "high": 100}, "hours": {"low": 0, "high": 60}}
SPEC = {
    "experiment.arms": ["a", "b", "c"],
    "context.features": FEATURES,
    "population.name": "csv",
    "population.label": "kind",
    "population.ignore": ["job"],
}


def write(directory: Path, text: str, name: str = "people.csv") -> str:
    path = directory / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def people(path: str, seed: int = 0, **changes: object):
    dotted = {name.replace("__", "."): value for name, value in changes.items()}
    return environment_for(make_spec({**SPEC, "population.path": path, **dotted}), seed)


def everybody(population, count: int = 4):
    return population.contexts(0, count, np.random.default_rng(0))


def test_each_row_takes_part_once_before_any_repeats(tmp_path):
    path = write(tmp_path, GOOD)
    population = people(path)
    first = everybody(population)
    assert sorted(first[:, :2].tolist()) == [[27, 20], [31, 40], [45, 38], [60, 35]]
    assert (everybody(population, 8) == np.concatenate([first, first])).all()
    assert (population.contexts(3, 3, np.random.default_rng(0)) == first[[3, 0, 1]]).all()
    orders = {tuple(everybody(people(path, seed))[:, 0]) for seed in range(20)}
    assert len(orders) > 5


def test_the_arm_of_the_right_class_has_reward_1(tmp_path):
    population = people(write(tmp_path, GOOD))
    contexts = everybody(population)
    right = {31: 0, 45: 1, 27: 2, 60: 0}
    expected = [np.eye(3)[right[int(age)]].tolist() for age in contexts[:, 0]]
    assert population.means(contexts).tolist() == expected
    rewards = population.rewards(contexts, Arms(np.zeros(4, dtype=np.int64)), np.random.default_rng(0))
    assert rewards.tolist() == [float(right[int(age)] == 0) for age in contexts[:, 0]]


def test_rewards_by_class_and_arm(tmp_path):
    population = people(
        write(tmp_path, GOOD),
        experiment__arms=["x", "y"],
        population__classes=["b", "a", "c"],
        population__rewards=[[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]],
    )
    contexts = everybody(population)
    rows = {31: [0.3, 0.4], 45: [0.1, 0.2], 27: [0.5, 0.6], 60: [0.3, 0.4]}
    assert population.means(contexts).tolist() == [rows[int(age)] for age in contexts[:, 0]]


def test_an_algorithm_without_context_meets_the_same_people(tmp_path):
    sections = tables({**SPEC, "population.path": write(tmp_path, GOOD), "population.ignore": ["*"]})
    del sections["context"]
    population = environment_for(parse_spec(sections | {"algorithm": {"name": "bandit"}}), 0)
    assert population.contexts(0, 4, np.random.default_rng(0)).shape == (4, 1)
    assert population.means(everybody(population)).sum(axis=0).tolist() == [2, 1, 1]


def test_a_category_is_a_feature_of_0_and_1(tmp_path):
    features = {"job=cook": {"low": 0, "high": 1}, "age": FEATURES["age"], "job=clerk, senior": {"low": 0, "high": 1}}
    population = people(write(tmp_path, GOOD), context__features=features, population__ignore=["hours"])
    assert sorted(everybody(population)[:, :3].tolist()) == [[0, 45, 0], [0, 60, 1], [1, 27, 0], [1, 31, 0]]


def test_files_one_after_the_other_and_gzipped(tmp_path):
    first = write(tmp_path, GOOD)
    second = tmp_path / "more.csv.gz"
    second.write_bytes(gzip.compress(("\ufeff" + GOOD.replace("60", "61")).encode()))
    contexts = everybody(people(f"{first}, {second}"), 8)
    assert sorted(contexts[:, 0].tolist()) == [27, 27, 31, 31, 45, 45, 60, 61]


def test_rows_without_a_value_can_be_left_out(tmp_path):
    path = write(tmp_path, GOOD + "50,,?,a\n51,cook,40,\n52,cook, NA ,b\n53,,1,b\n")
    ages = everybody(people(path, population__missing="drop"), 5)[:, 0]
    assert sorted(ages.tolist()) == [27, 31, 45, 53, 60]


SECRET = "secret77"
BAD = {
    "missing": (GOOD + "50,cook,,a\n", {}, r"row 6, column 'hours' .* has no value .*population\.missing"),
    "missing label": (GOOD + "50,cook,40,?\n", {}, r"row 6, column 'kind' .* has no value"),
    "text": (GOOD.replace("38", SECRET), {}, r"row 3, column 'hours' .* is not a number .*column=value"),
    "infinite": (GOOD.replace("38", "inf"), {}, r"row 3, column 'hours' .* is not a number"),
    "underscore": (GOOD.replace("38", "3_8"), {}, r"row 3, column 'hours' .* is not a number"),
    "constant": (re.sub(r",\d\d,", ",40,", GOOD), {}, r"context\.features\.hours: .*constant.*remove it"),
    "out of bounds": (
        GOOD,
        {"context.features": {**FEATURES, "hours": {"low": 100, "high": 200}}},
        r"context\.features\.hours: every row is on the same side .*bounds",
    ),
    "unknown label": (GOOD + f"50,cook,40,{SECRET}\n", {}, r"row 6, column 'kind' .* not one of the classes .*classes"),
    "label never seen": (GOOD.replace(",c", ",a"), {}, r"experiment\.arms: no row .* class 'c'"),
    "class never seen": (
        GOOD,
        {"population.classes": ["a", "b", "c", "d"], "population.rewards": [[0, 0, 1]] * 4},
        r"population\.classes: no row .* class 'd'",
    ),
    "unmentioned column": (GOOD, {"population.ignore": []}, r"does not mention column 'job' .*ignore"),
    "no such column": (GOOD.replace("hours", "time"), {}, r"context\.features\.hours: no column"),
    "no such label": (GOOD, {"population.label": "sort"}, r"population\.label: no column"),
    "label as feature": (
        GOOD.replace(",a", ",1").replace(",b", ",2").replace(",c", ",3"),
        {"context.features": {**FEATURES, "kind": {"low": 0, "high": 9}}, "experiment.arms": ["1", "2", "3"]},
        r"population\.label: is a feature too",
    ),
    "no such category": (
        GOOD,
        {"context.features": {**FEATURES, "job=baker": {"low": 0, "high": 1}}},
        r"context\.features\.job=baker: no row",
    ),
    "short row": (GOOD + f"50,{SECRET}\n", {}, r"row 6 .* has 2 columns, not 4"),
    "long row": (GOOD + f"50,cook,40,a,{SECRET}\n", {}, r"row 6 .* has 5 columns, not 4"),
    "empty": ("", {}, r"has no header"),
    "no rows": ("age,job,hours,kind\n", {}, r"experiment\.arms: no row .* class 'a'"),
    "twice the same column": (GOOD.replace("job", "age"), {}, r"two columns of the same name.* distinct"),
    "more classes than arms": (GOOD, {"population.classes": ["a", "b", "c", "d"]}, r"population\.classes: there are 4"),
    "rewards of another shape": (GOOD, {"population.rewards": [[1, 0]] * 3}, r"population\.rewards: must be 3 rows"),
    "quotes that do not end a value": (GOOD + '50,"cook,40,a\n' * 2, {}, r"row 6 .* is not CSV"),
    "a quote that never ends": (GOOD + '50,"cook,40,a\n' + "50,cook,40,a\n" * 20_000, {}, r"row 6 .* is not CSV"),
}


@pytest.mark.parametrize("name", BAD)
def test_errors_in_a_file_are_named(tmp_path, name):
    text, changes, says = BAD[name]
    spec = make_spec({**SPEC, "population.path": write(tmp_path, text), **changes})
    with pytest.raises(SpecError, match=says) as refused:
        environment_for(spec, 0)
    assert SECRET not in str(refused.value)
    assert refused.value.remedy
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("content", "name", "says"),
    [
        (None, "none.csv", "cannot read"),
        (GOOD.encode("utf-16")[:-1], "cut.csv", "is not UTF-8"),
        (gzip.compress(GOOD.encode(), mtime=0)[:-20], "half.csv.gz", "cannot read"),
        (b"not gzip", "plain.csv.gz", "cannot read"),
    ],
)
def test_unreadable_files_are_refused(tmp_path, content, name, says):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SpecError, match=rf"population\.path: .*{says}"):
        people(str(path))


def test_different_columns_in_a_second_file_are_refused(tmp_path):
    second = write(tmp_path, GOOD.replace("job", "work"), "other.csv")
    with pytest.raises(SpecError, match="has other columns than"):
        people(f"{write(tmp_path, GOOD)},{second}")


def test_a_file_that_cannot_fit_is_refused_with_figures(tmp_path, monkeypatch):
    path = write(tmp_path, GOOD + "50,cook,40,a\n" * 100_000)
    monkeypatch.setattr(data_table, "available_memory", lambda: 2.0**22)
    monkeypatch.setattr(Numbers, "add", lambda *_: pytest.fail("it was read"))
    with pytest.raises(
        SpecError, match=r"population\.path: the file needs 0\.01 GiB of memory, and 0\.00 GiB are free"
    ):
        people(path)


def test_several_files_share_the_memory(tmp_path, monkeypatch):
    """96 bytes a row: each file alone would fit."""
    path = write(tmp_path, GOOD + "50,cook,40,a\n" * 10_000)
    monkeypatch.setattr(data_table, "available_memory", lambda: 100.0 * 12_000)
    assert len(everybody(people(path), 10_000)) == 10_000
    with pytest.raises(SpecError, match="of memory"):
        people(f"{path},{path}")


def test_memory_lost_while_a_file_is_read_is_an_error(tmp_path, monkeypatch):
    """96 bytes a row: memory for 12,000 rows is free at first, and no memory is free while the file is read."""
    path = write(tmp_path, GOOD + "50,cook,40,a\n" * 10_000)
    free_bytes = iter([100.0 * 12_000, 0.0])
    monkeypatch.setattr(data_table, "available_memory", lambda: next(free_bytes))
    with pytest.raises(SpecError, match="of memory"):
        people(path)


def test_blocks_are_one_table(tmp_path, monkeypatch):
    """Many small blocks, of two files, with quotes, blank lines and a row that is left out: rows keep their numbers."""
    rows = "".join(f'{20 + i % 60},"co\nok, {i % 3}",{i % 40},{"abc"[i % 3]}\n\n' for i in range(500))
    path = write(tmp_path, "age,job,hours,kind\n" + rows)
    whole = everybody(people(f"{path},{path}"), 1000)
    monkeypatch.setattr(table_files, "_BYTES", 256)
    assert (everybody(people(f"{path},{path}"), 1000) == whole).all()
    worse = write(tmp_path, "age,job,hours,kind\n" + rows + f"50,,40,{SECRET}\n", "worse.csv")
    with pytest.raises(SpecError, match=r"row 1002, column 'kind' .* not one of the classes") as refused:
        people(f"{path},{worse}", population__missing="drop")
    assert SECRET not in str(refused.value)


def test_quotes_may_follow_a_blank(tmp_path, monkeypatch):
    """As in "50, \"cook, or baker\"": the same people as without blanks, and rows keep their numbers."""
    monkeypatch.setattr(table_files, "_BLOCK_ROWS", 7)
    rows = [f'{20 + i % 60},"cook, {i % 3}",{i % 40},"{"abc"[i % 3]}"\n' for i in range(50)]
    plain = write(tmp_path, "age,job,hours,kind\n" + "".join(rows))
    blanks = write(tmp_path, "age, job, hours, kind\n" + "".join(rows).replace(',"', ', "'), "blanks.csv")
    assert (everybody(people(blanks), 100) == everybody(people(plain), 100)).all()
    worse = write(tmp_path, Path(blanks).read_text() + f'50, "cook", 40, "{SECRET}"\n', "worse.csv")
    with pytest.raises(SpecError, match=r"row 52, column 'kind' .* not one of the classes") as refused:
        people(worse)
    assert SECRET not in str(refused.value)


def test_a_row_that_is_too_long_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(table_files, "_BYTES", 2**20)
    features = ",".join(f"note{i}" for i in range(20))
    long = ",".join(["x" * 100_000] * 20)
    path = write(tmp_path, f"age,hours,kind,{features}\n30,20,a,{long}\n40,10,b,{long}\n50,10,c,{long}\n")
    with pytest.raises(SpecError, match=r"population\.path: .* a row of more than 1 MiB"):
        people(path, population__ignore=["*"])


def test_without_pyarrow_the_remedy_is_named(tmp_path, monkeypatch):
    path = write(tmp_path, GOOD)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(SpecError, match=r"population\.path: .*pyarrow.*install privateer-lab\[workbench\]"):
        people(path)


@pytest.mark.parametrize("text", ["+31", " 31 ", "3.1e1", "31.", "0031"])
def test_numbers_are_written_in_many_ways(tmp_path, text):
    assert 31 in everybody(people(write(tmp_path, GOOD.replace("31", text))))[:, 0]


def test_a_category_with_too_many_values_is_refused(tmp_path):
    rows = "".join(f"50,job{number},40,a\n" for number in range(1001))
    features = {**FEATURES, "job=cook": {"low": 0, "high": 1}}
    with pytest.raises(SpecError, match=r"row 1003, column 'job' .* more than 1,000 different values"):
        people(write(tmp_path, GOOD + rows), context__features=features)


def test_memory_that_is_free_is_known():
    assert 2**20 < available_memory() < 2**50


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    position=st.integers(0, len(GOOD) - 1),
    junk=st.one_of(st.sampled_from([b"", b",", b"\n", b'"', b"\x00", b"\xff", b"nan", b"1e999", b"\r"]), st.binary()),
)
def test_a_damaged_file_is_refused_or_fine(tmp_path, position, junk):
    good = GOOD.encode()
    path = tmp_path / "people.csv"
    path.write_bytes(good[:position] + junk + good[position + 1 :])
    with suppress(SpecError):
        assert np.isfinite(everybody(people(str(path)))).all()


def test_pipes_and_devices_are_no_files(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(SpecError, match="cannot read"):
            environment_for(make_spec(SPEC | {"population.path": str(path)}), 0)


def test_enormous_numbers_are_numbers(tmp_path):
    path = write(tmp_path, GOOD.replace("31", "1e308").replace("45", "-1e308"))
    assert everybody(people(path))[:, :2].shape == (4, 2)


KINDS = {
    "job": {"levels": ["nurse", "cook"]},
    "age": {"low": 20, "high": 60, "missing": True},
    "grade": {"levels": [1, 2, 3], "ordered": True, "missing": True},
    "member": {"boolean": True},
}
OF_KINDS = """age,job,grade,member,kind
40,cook,1,yes,a
,nurse,3,No,b
NA,baker,?,TRUE,c
50,cook,2,f,a
"""
"""A level that is not listed, and gaps of every spelling."""


def test_columns_of_every_kind(tmp_path):
    path = write(tmp_path, OF_KINDS)
    spec = make_spec({**SPEC, "population.path": path, "context.features": KINDS, "population.ignore": []})
    contexts = everybody(environment_for(spec, 0))
    rows = sorted(contexts.tolist(), key=str)
    nan = pytest.approx(float("nan"), nan_ok=True)
    assert rows == [[0, nan, 2, 0, 1], [1, 40, 0, 1, 0], [1, 50, 1, 0, 0], [2, nan, nan, 1, 2]]
    assert encode_features(spec.features, contexts).shape == (4, 1 + 2 + 2 + 1)


@pytest.mark.parametrize(
    ("changed", "features", "message"),
    [
        (OF_KINDS.replace("nurse,3", "nurse,4"), KINDS, r"row 3, column 'grade' .* is not a value of the feature"),
        (OF_KINDS.replace("No", "perhaps"), KINDS, r"row 3, column 'member' .* is not a value of the feature"),
        (OF_KINDS.replace("No", ""), KINDS, r"row 3, column 'member' .* has no value .*missing = true"),
        (OF_KINDS.replace("50", "fifty"), KINDS, r"row 5, column 'age' .* is not a number"),
        (OF_KINDS, KINDS | {"job": {"levels": ["smith", "miner"]}}, r"features\.job: every row counts as the same"),
        (OF_KINDS.replace("No", "y").replace("f,a", "y,a"), KINDS, r"features\.member: every row counts as the same"),
    ],
)
def test_columns_incompatible_with_their_features_are_refused(changed, features, message, tmp_path):
    path = write(tmp_path, changed)
    spec = make_spec({**SPEC, "population.path": path, "context.features": features, "population.ignore": []})
    with pytest.raises(SpecError, match=message) as refused:
        environment_for(spec, 0)
    assert "perhaps" not in str(refused.value)
    assert "fifty" not in str(refused.value)
