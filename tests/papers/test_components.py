"""Principal components of a file's columns, as paper 1 has them."""

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from privateer_core.errors import SpecError
from privateer_lab.environments.files import ADULT_COLUMNS
from privateer_lab.tables.data_table import DataTable
from privateer_papers.paper_1.real_data.components import Components, Projection
from privateer_papers.paper_1.real_data.people import ADULT


def fill_projection(rows: int, dimension: int):
    """Return a projection of two numbers and a category, and its columns as a table."""
    rng = np.random.default_rng(0)
    x, y, kind = rng.normal(50, 9, rows), rng.exponential(3.0, rows), rng.choice(["a", "b", "c"], rows)
    source = Components(Projection(numbers=("x", "y"), categories=("kind",)), dimension)
    for column, values in zip(source.columns, (x, y, kind), strict=True):
        column.add(pa.array([str(value) for value in values]))
    table = np.column_stack([(x - x.mean()) / x.std(), (y - y.mean()) / y.std(), *(kind == k for k in "abc")])
    return source, table


def test_components_are_those_of_the_whole_table():
    """40,000 rows, more than a block; against a singular value decomposition."""
    source, table = fill_projection(40_000, 3)
    contexts = source.contexts()
    centred = table - table.mean(axis=0)
    scores = centred @ np.linalg.svd(centred, full_matrices=False)[2][:3].T
    for component, expected in zip(contexts.T, scores.T, strict=True):
        assert abs(np.corrcoef(component, expected)[0, 1]) == pytest.approx(1.0, abs=1e-9)
    inside = ((contexts >= 0) & (contexts <= 1)).mean(axis=0)
    assert inside == pytest.approx(np.full(3, 0.99), abs=1e-3)


@pytest.mark.parametrize(
    ("projection", "says"),
    [
        (Projection(["age", "same"], []), "column 'same' is constant"),
        (Projection(["age"], ["alike"]), "column 'alike' is constant"),
        (Projection(["age", "job"], []), "row 2, column 'job'"),
    ],
)
def test_columns_that_cannot_be_projected_are_refused(tmp_path: Path, projection: Projection, says: str) -> None:
    path = tmp_path / "people.csv"
    path.write_text("age,same,alike,job,kind\n30,1,x,cook,a\n40,1,x,nurse,b\n50,1,x,cook,b\n")

    def read_components() -> None:
        table = DataTable(str(path))
        source = Components(projection, 2)
        table.read_into(source.columns, 2)
        source.contexts()

    with pytest.raises(SpecError, match=says):
        read_components()


@pytest.mark.data
def test_one_hot_columns_are_as_many_as_the_paper_says() -> None:
    first = Path(os.environ["PRIVATEER_ADULT"])
    source = Components(ADULT.projection, 3)
    table = DataTable(f"{first},{first.with_name('adult.test.gz')}", header=ADULT_COLUMNS, remark="|")
    table.read_into(source.columns, 3, complete=ADULT_COLUMNS, drop=True)
    assert source.width == 46
