"""Answers are of releases alone, and a private test reads each row by itself."""

import os
import random
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
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
from privateer_server.app import create_app
from privateer_server.settings import ServerSettings
from tests.support.asgi import serving
from tests.support.sealing import body_of, plain_reports, seal, sealed_reports
from tests.support.senders import TRUSTED
from tests.support.servers import ADMIN, SMALL, TOKEN, Api
from tests.support.specs import tables

# Answers are of releases: of two populations of whom the same is released they are equal, and before it they wait.


PEOPLE = 20
MODELS: dict[str, dict[str, Any]] = {
    "local": {},
    "central": {"privacy.model": "central", "privacy.delta": 1e-6},
    "none": {"privacy.model": "none", "privacy.epsilon": None},
}


@asynccontextmanager
async def serving_api(data: Path, changes: dict[str, Any]) -> AsyncIterator[Api]:
    async with serving(create_app(ServerSettings(data=data, admin_token=TOKEN, sender_keys=TRUSTED))) as client:
        response = await client.post("/experiments", json=tables(SMALL | changes), headers=ADMIN)
        assert response.status_code in (200, 201), response.text
        yield Api(client)


@asynccontextmanager
async def serving_twins(folder: Path) -> AsyncIterator[tuple[Api, Api]]:
    """Serve two servers of equal publications: the second's data is a copy of the first's."""
    async with serving_api(folder / "one", {}):
        pass
    shutil.copytree(folder / "one", folder / "other")
    async with serving_api(folder / "one", {}) as first, serving_api(folder / "other", {}) as second:
        assert await first.publication() == await second.publication()
        yield first, second


async def answer(api: Api) -> bytes:
    return (await api.client.get("/experiments/test/answer")).content


async def report(api: Api, publication: bytes, messages: list[bytes]) -> None:
    sealed = [seal(publication, os.urandom(16) + message) for message in messages]
    response = await api.client.post("/reports", content=body_of(publication, sealed))
    assert response.json()["accepted"] == len(messages), response.text


@pytest.mark.parametrize("model", MODELS)
async def test_before_a_release_no_report_changes_an_answer(tmp_path: Path, model: str) -> None:
    async with serving_api(tmp_path, MODELS[model]) as api:
        before = await answer(api)
        publication = await api.publication()
        for sealed in sealed_reports(publication, PEOPLE - 1):
            assert (await api.client.post("/reports", content=body_of(publication, [sealed]))).status_code == 202
            assert await answer(api) == before
        await api.client.post("/reports", content=body_of(publication, sealed_reports(publication, 1, seed=1)))
        assert await answer(api) != before


async def test_an_answer_does_not_depend_on_order_and_size_of_uploads(tmp_path: Path) -> None:
    async with serving_twins(tmp_path) as (first, second):
        publication = await first.publication()
        messages = plain_reports(publication, PEOPLE, seed=3)
        await report(first, publication, messages)
        random.Random(5).shuffle(messages)
        for start in range(0, PEOPLE, 4):
            await report(second, publication, messages[start : start + 4])
        assert await answer(first) == await answer(second)
        assert b'"people":20,' in await answer(first)


async def test_other_releases_have_other_answers(tmp_path: Path) -> None:
    """So the comparison above can fail."""
    async with serving_twins(tmp_path) as (first, second):
        publication = await first.publication()
        await report(first, publication, plain_reports(publication, PEOPLE, seed=3))
        await report(second, publication, plain_reports(publication, PEOPLE, seed=4))
        assert await answer(first) != await answer(second)


# `analyze` with epsilon reads each row by itself: nothing of the other rows changes with one of them.


PEOPLE_OF_ROWS = 4_000
SHARES = {"1": 0.5, "inf": 0.5}


def rows(**first_cells: Any) -> dict[str, Any]:
    """Return a table of participants of two arms that differ by .6; ``first_cells`` replace cells of the first row."""
    rng = np.random.default_rng(4)
    arms = ["1" if is_first_arm else "inf" for is_first_arm in rng.random(PEOPLE_OF_ROWS) < 0.5]
    columns: dict[str, list[Any]] = {
        "arm": arms,
        "reward": [float(rng.random() < (0.2 if arm == "1" else 0.8)) for arm in arms],
        "who": [str(person) for person in range(PEOPLE_OF_ROWS)],
    }
    for name, cell in first_cells.items():
        columns[name][0] = cell
    return columns


@pytest.mark.parametrize("cell", ["1", "inf", "x", "", "1e999", 10**30, "\ud800", None, float("nan")])
def test_one_cell_changes_no_other_row(cell: Any) -> None:
    """An option that is called inf stays one, whatever else is in its column."""
    analysis = lab.analyze(rows(arm=cell), shares=SHARES, epsilon=2.0)
    [effect] = analysis.answer.effects
    assert effect.is_decided
    assert effect.value == pytest.approx(0.6, abs=0.1)
    assert analysis.answer.people == PEOPLE_OF_ROWS


@pytest.mark.parametrize("cell", ["7f", "12e407", "1"])
def test_the_number_of_people_is_the_only_published_count(cell: str) -> None:
    analysis = lab.analyze(rows(who=cell), shares=SHARES, epsilon=2.0, person="who")
    assert analysis.answer.people == len({cell, *map(str, range(1, PEOPLE_OF_ROWS))})
    assert analysis.answer.effects[0].is_decided


@pytest.mark.parametrize("gap", ["", None])
def test_rows_without_a_person_count_as_no_person(gap: Any) -> None:
    assert lab.analyze(rows(who=gap), shares=SHARES, epsilon=2.0, person="who").answer.people == PEOPLE_OF_ROWS - 1


def test_rows_of_unknown_arms_get_an_undecided_answer() -> None:
    """A refusal would tell that nobody had an option of these."""
    table = rows()
    table["arm"] = ["other"] * PEOPLE_OF_ROWS
    analysis = lab.analyze(table, shares=SHARES, epsilon=1.0)
    assert not analysis.answer.effects[0].is_decided


@pytest.mark.filterwarnings("error")
def test_no_warning_reveals_a_huge_reward() -> None:
    lab.analyze(rows(reward=1e308), shares=SHARES, epsilon=1.0, bounds=(0.0, 0.1))


def test_a_file_with_another_separator_needs_a_decimal_sign(tmp_path: Path) -> None:
    """It is not found from rows, and taken for a point it would make numbers unreadable without a word."""
    rng, path = np.random.default_rng(2), tmp_path / "sold.csv"
    lines = [f"{'ab'[int(b)]};{'4,99' if rng.random() < (0.2 + 0.4 * b) else '0,00'}" for b in rng.integers(0, 2, 6000)]
    path.write_text("\n".join(["arm;reward", *lines]))
    shares = {"a": 0.5, "b": 0.5}
    with pytest.raises(SpecError, match=re.escape("--decimal: must be given with epsilon")):
        lab.analyze(path, shares=shares, epsilon=1.0, bounds=(0.0, 10.0))
    analysis = lab.analyze(path, shares=shares, epsilon=1.0, bounds=(0.0, 10.0), decimal=",")
    assert analysis.answer.effects[0].value == pytest.approx(2.0, abs=0.2)
    assert analysis.answer.recommended == "b"


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
    ids = [1_700_000_000_000_000_000 + person for person in range(PEOPLE_OF_ROWS)]
    named, unnamed = (make({"who": [first, *ids[1:]]}) for first in (ids[0], None))
    assert texts(named, "who") == texts(unnamed, "who") == [str(person_id) for person_id in ids[1:]]
    assert len(DataTable(unnamed).read().column("who").counts) == PEOPLE_OF_ROWS - 1


@pytest.mark.parametrize("cell", ["x", "3.5", "1.000", "nan", ""])
def test_a_cell_that_is_no_number_reads_no_other_number(cell: str, tmp_path: Path) -> None:
    """Planted before: a decimal comma with an exponent was a number by the column and none by itself."""
    numbers = []
    for name, first in (("plain", "1,5"), ("other", cell)):
        path = tmp_path / f"{name}.csv"
        path.write_text("\n".join(["arm;age", f"a;{first}", "a;1,5e1", "b;4,5e1", "b;5,", "a;1.234,5"]))
        column = DataTable(path, decimal=",", by_row=True).read().column("age")
        numbers.append(np.append(column.quantities, np.nan)[column.codes][1:].tolist())
    assert numbers[0] == numbers[1] == [15.0, 45.0, 5.0, 1234.5]


def test_a_byte_that_is_no_text_reads_no_other_row(tmp_path: Path) -> None:
    """Planted before: a single byte of an unused column changed the encoding of the file."""
    answers = []
    for name, note in (("plain", b"ok"), ("other", b"\xff")):
        path = tmp_path / f"{name}.csv"
        path.write_bytes("\n".join(["arm,reward,note", *["café,1,ok", "new,0,ok"] * 50]).encode())
        path.write_bytes(path.read_bytes().replace(b"ok", note, 1))
        answers.append(texts(path, "arm"))
        assert DataTable(path, by_row=True).read(["note"]).n_rows == 100
    assert answers[0] == answers[1] == [*["new", "café"] * 49, "new"]
