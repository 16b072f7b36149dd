"""Parquet files, as the texts that CSV files of the same values have; and the errors of files of people."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from privateer_core.errors import SpecError
from privateer_lab.environments.files.file_columns import Texts

_ROWS: Final = 2**16
"""Rows at a time."""


def is_one(path: Path) -> bool:
    """Whether a file is named as Parquet files are."""
    return path.suffix == ".parquet"


def header_of(path: Path) -> list[str]:
    """Return the names of a file's columns.

    Raises
    ------
    SpecError
        If it is no Parquet file, or pyarrow is missing.
    """
    return list(_opened(path).schema_arrow.names)


def rows_in(path: Path) -> int:
    """Return the number of a file's rows."""
    return int(_opened(path).metadata.num_rows)


def blocks_of(path: Path, names: Sequence[str]) -> Iterator[dict[str, Texts]]:
    """Yield texts by column, some rows at a time; a value that is missing is an empty text.

    Raises
    ------
    SpecError
        If a column has values that are no numbers, texts, or yes or no.
    """
    import pyarrow as pa
    from pyarrow import compute

    file = _opened(path)
    columns = {one.strip(): one for one in file.schema_arrow.names}
    for batch in file.iter_batches(_ROWS, columns=[columns[name] for name in names]):
        found = {}
        for name in names:
            try:
                texts = compute.cast(batch.column(columns[name]), pa.string())
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                message = f"column {name!r} of {path} has values that are no numbers or texts"
                raise refused(message, "leave the column out") from None
            found[name] = compute.utf8_trim_whitespace(compute.fill_null(texts, ""))
        yield found


def _opened(path: Path) -> Any:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise missing_pyarrow() from None
    try:
        return parquet.ParquetFile(path)
    except (OSError, pa.ArrowInvalid):
        raise refused(f"cannot read {path}", "give the path of a CSV or Parquet file") from None


def refused(message: str, remedy: str) -> SpecError:
    """Make the error of a file that cannot be used."""
    return SpecError(message, field="population.path", remedy=remedy)


def missing_pyarrow() -> SpecError:
    """Make the error of a machine that cannot read files of people."""
    return refused("pyarrow, which reads CSV and Parquet files, is missing", "install privateer-lab[workbench]")
