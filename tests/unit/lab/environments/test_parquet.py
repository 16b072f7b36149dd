"""A Parquet file gives the same people as a CSV file of the same values."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

import privateer_lab as lab
from privateer_core.errors import SpecError
from privateer_lab.environments import environment_for
from privateer_lab.tables.data_table import DataTable

GARDEN = Path("examples/garden.csv")


def garden(path: Path, changes: dict[str, Any] | None = None) -> Any:
    return lab.spec("examples/garden-shuffle.toml", {"population.path": str(path), **(changes or {})})


def people(path: Path) -> Any:
    return environment_for(garden(path), 0).contexts(0, 600, np.random.default_rng(0))


def test_the_same_people_come_from_both(tmp_path: Path) -> None:
    file = tmp_path / "garden.parquet"
    parquet.write_table(csv.read_csv(GARDEN), file)
    assert (people(file) == people(GARDEN)).all()
    assert lab.spec_from(file, label="grew").spec.features == lab.spec_from(GARDEN, label="grew").spec.features


def test_a_parquet_file_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "garden.parquet"
    table = csv.read_csv(GARDEN)
    sun = table["sun"].to_pylist()
    parquet.write_table(table.set_column(0, "sun", pa.array([None, *sun[1:]])), file)
    with pytest.raises(SpecError, match=r"row 1, column 'sun' of .* has no value"):
        people(file)
    parquet.write_table(table.set_column(0, "sun", pa.array([[1]] * len(table))), file)
    with pytest.raises(SpecError, match="no numbers or texts"):
        people(file)
    with pytest.raises(SpecError, match="has other columns than are expected"):
        DataTable(str(file), header=["sun", "moon"])
    file.write_bytes(b"no Parquet")
    with pytest.raises(SpecError, match=r"cannot read .*give the path of a CSV or Parquet file"):
        people(file)
