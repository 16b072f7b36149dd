"""Tables of data: a reader of files and data frames, which keeps values as text until numbers are requested."""

from typing import Any, Final

from privateer_core.errors import SpecError

TABLE_FIELD: Final = "table"
"""The field of errors of a table outside a spec."""
_MAX_NAME_LENGTH: Final = 60


def table_error(message: str, remedy: str, field: str = TABLE_FIELD) -> SpecError:
    """Make the error of a table that cannot be used."""
    return SpecError(message, field=field, remedy=remedy)


def shorten(text: str) -> str:
    """Shorten a name from a file for messages."""
    return text if len(text) <= _MAX_NAME_LENGTH else f"{text[:_MAX_NAME_LENGTH]}..."


def import_pyarrow(field: str = TABLE_FIELD) -> Any:
    """Import pyarrow, or raise an error where it is not installed, as with the load driver alone."""
    try:
        import pyarrow as pa
        import pyarrow.compute
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError:
        message = "pyarrow, which reads CSV and Parquet files, is missing"
        raise table_error(message, "install privateer-lab[workbench]", field) from None
    return pa
