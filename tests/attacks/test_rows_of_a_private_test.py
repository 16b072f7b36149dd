"""`analyze` with epsilon reads each row by itself: nothing of the other rows changes with one of them."""

import re
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import privateer_lab as lab
from privateer_core.errors import SpecError
from privateer_lab.tables.data_table import DataTable

PEOPLE = 4_000
SHARES = {"1": 0.5, "inf": 0.5}


def rows(**first: Any) -> dict[str, Any]:
    """People of two options, of whom the second has an effect; the first person's cells may be others."""
    rng = np.random.default_rng(4)
    arms = ["1" if one else "inf" for one in rng.random(PEOPLE) < 0.5]
    columns: dict[str, list[Any]] = {
        "arm": arms,
        "reward": [float(rng.random() < (0.2 if arm == "1" else 0.8)) for arm in arms],
        "who": [str(person) for person in range(PEOPLE)],
    }
    for name, cell in first.items():
        columns[name][0] = cell
    return columns


@pytest.mark.parametrize("cell", ["1", "inf", "x", "", "1e999", 10**30, "\ud800", None, float("nan")])
def test_one_cell_changes_no_other_row(cell: Any) -> None:
    """An option that is called inf stays one, whatever else is in its column."""
    found = lab.analyze(rows(arm=cell), shares=SHARES, epsilon=2.0)
    [effect] = found.answer.effects
    assert effect.is_decided
    assert effect.value == pytest.approx(0.6, abs=0.1)
    assert found.answer.people == PEOPLE


@pytest.mark.parametrize("cell", ["7f", "12e407", "1"])
def test_the_number_of_people_is_the_only_count_that_is_told(cell: str) -> None:
    found = lab.analyze(rows(who=cell), shares=SHARES, epsilon=2.0, person="who")
    assert found.answer.people == len({cell, *map(str, range(1, PEOPLE))})
    assert found.answer.effects[0].is_decided


@pytest.mark.parametrize("gap", ["", None])
def test_rows_of_nobody_are_no_person(gap: Any) -> None:
    assert lab.analyze(rows(who=gap), shares=SHARES, epsilon=2.0, person="who").answer.people == PEOPLE - 1


def test_rows_of_which_none_counts_are_answered_as_others_are() -> None:
    """A refusal would tell that nobody had an option of these."""
    people = rows()
    people["arm"] = ["other"] * PEOPLE
    found = lab.analyze(people, shares=SHARES, epsilon=1.0)
    assert not found.answer.effects[0].is_decided


@pytest.mark.filterwarnings("error")
def test_no_warning_tells_of_a_huge_reward() -> None:
    lab.analyze(rows(reward=1e308), shares=SHARES, epsilon=1.0, bounds=(0.0, 0.1))


def test_the_decimal_sign_is_given_where_a_file_has_another_separator(tmp_path: Path) -> None:
    """It is not found from rows, and taken for a point it would make numbers unreadable without a word."""
    rng, path = np.random.default_rng(2), tmp_path / "sold.csv"
    lines = [f"{'ab'[int(b)]};{'4,99' if rng.random() < (0.2 + 0.4 * b) else '0,00'}" for b in rng.integers(0, 2, 6000)]
    path.write_text("\n".join(["arm;reward", *lines]))
    shares = {"a": 0.5, "b": 0.5}
    with pytest.raises(SpecError, match=re.escape("--decimal: must be given with epsilon")):
        lab.analyze(path, shares=shares, epsilon=1.0, bounds=(0.0, 10.0))
    found = lab.analyze(path, shares=shares, epsilon=1.0, bounds=(0.0, 10.0), decimal=",")
    assert found.answer.effects[0].value == pytest.approx(2.0, abs=0.2)
    assert found.answer.recommended == "b"


def texts(frame: Any, name: str) -> list[Any]:
    """Return a column as `analyze` reads it with epsilon, without the first row."""
    return DataTable(frame, by_row=True).read([name]).column(name).texts[1:].tolist()


@pytest.mark.parametrize(
    ("column", "cell"),
    [
        ([1, 0, 1, 0], date(2026, 1, 1)),
        ([b"old", b"new", b"old", b"new"], 1),
        ([b"old", b"new", b"old", b"new"], b"\xff"),
        ([datetime(2026, 1, day) for day in (1, 2, 3, 4)], "x"),
        ([Decimal("1.10"), Decimal("1.2"), Decimal("1.10"), Decimal("1.2")], "x"),
        ([1.5, 2.0, 3.25, 4.0], "x"),
        ([True, False, True, False], 2),
    ],
)
@pytest.mark.parametrize("frame", [dict, pd.DataFrame])
def test_a_cell_of_another_type_spells_no_other_cell(frame: Any, column: list[Any], cell: Any) -> None:
    """Planted before: one type was inferred for a column, so that bytes beside a number became b'old'."""
    plain = frame({"arm": pd.Series(column, dtype=object)})
    other = frame({"arm": pd.Series([cell, *column[1:]], dtype=object)})
    assert texts(plain, "arm") == texts(other, "arm")


@pytest.mark.parametrize("make", [pa.table, pl.DataFrame, lambda columns: pd.DataFrame(columns, dtype="Int64")])
def test_a_row_without_a_person_joins_no_others(make: Any) -> None:
    """Planted before: numpy makes floats of whole numbers beside a gap, of which 4,000 ids of 19 digits were 17."""
    ids = [1_700_000_000_000_000_000 + person for person in range(PEOPLE)]
    named, unnamed = (make({"who": [first, *ids[1:]]}) for first in (ids[0], None))
    assert texts(named, "who") == texts(unnamed, "who") == [str(one) for one in ids[1:]]
    assert len(DataTable(unnamed).read().column("who").counts) == PEOPLE - 1


@pytest.mark.parametrize("cell", ["x", "3.5", "1.000", "nan", ""])
def test_a_cell_that_is_no_number_reads_no_other_number(cell: str, tmp_path: Path) -> None:
    """Planted before: a decimal comma with an exponent was a number by the column and none by itself."""
    numbers = []
    for name, first in (("plain", "1,5"), ("other", cell)):
        path = tmp_path / f"{name}.csv"
        path.write_text("\n".join(["arm;age", f"a;{first}", "a;1,5e1", "b;4,5e1", "b;5,", "a;1.234,5"]))
        column = DataTable(path, decimal=",", by_row=True).read().column("age")
        numbers.append(np.append(column.quantities, np.nan)[column.places][1:].tolist())
    assert numbers[0] == numbers[1] == [15.0, 45.0, 5.0, 1234.5]


def test_a_byte_that_is_no_text_reads_no_other_row(tmp_path: Path) -> None:
    """Planted before: one byte of a column that nobody asked for changed the encoding of the file."""
    answers = []
    for name, note in (("plain", b"ok"), ("other", b"\xff")):
        path = tmp_path / f"{name}.csv"
        path.write_bytes("\n".join(["arm,reward,note", *["café,1,ok", "new,0,ok"] * 50]).encode())
        path.write_bytes(path.read_bytes().replace(b"ok", note, 1))
        answers.append(texts(path, "arm"))
        assert DataTable(path, by_row=True).read(["note"]).kept == 100
    assert answers[0] == answers[1] == [*["new", "café"] * 49, "new"]
