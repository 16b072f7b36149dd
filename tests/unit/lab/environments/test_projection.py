"""Principal components of a file's columns."""

import numpy as np
import pyarrow as pa
import pytest

from privateer_core.errors import SpecError
from privateer_lab.environments import environment_for
from privateer_lab.environments.files import Components, ProjectionSection
from tests.support.specs import make_spec


def fill_projection(rows: int, dimension: int):
    """Return a projection of two numbers and a category, and its columns as a table."""
    rng = np.random.default_rng(0)
    x, y, kind = rng.normal(50, 9, rows), rng.exponential(3.0, rows), rng.choice(["a", "b", "c"], rows)
    source = Components(
        ProjectionSection(numbers=("x", "y"), categories=("kind",)),
        make_spec(dimension=dimension),
        ("y", "kind", "x"),
    )
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


def test_more_features_than_components_are_refused():
    """Three categories have two independent indicators, so four components in all."""
    assert fill_projection(1000, 4)[0].contexts().shape == (1000, 4)
    with pytest.raises(SpecError, match="fewer components than features"):
        fill_projection(1000, 5)[0].contexts()


@pytest.mark.parametrize(
    ("project", "says"),
    [
        ({"numbers": ["age", "wage"]}, r"population\.project: no column of the file is named 'wage'"),
        ({"numbers": ["age", "same"]}, r"population\.project: column 'same' is constant"),
        ({"numbers": ["age"], "categories": ["alike"]}, r"population\.project: column 'alike' is constant"),
        ({"numbers": ["age", "job"]}, r"row 2, column 'job' .*categories of population\.project"),
        ({}, r"population\.project: name columns"),
        ({"numbers": ["age"], "categories": ["age"]}, r"population\.project: a column is named twice"),
    ],
)
def test_columns_that_cannot_be_projected_are_refused(tmp_path, project, says):
    path = tmp_path / "people.csv"
    path.write_text("age,same,alike,job,kind\n30,1,x,cook,a\n40,1,x,nurse,b\n50,1,x,cook,b\n")
    population = {"name": "csv", "path": str(path), "label": "kind", "ignore": ["*"], "project": project}
    with pytest.raises(SpecError, match=says):
        environment_for(make_spec({"experiment.arms": ["a", "b"], "population": population}), 0)
