"""Tables of data: one reader of files and data frames, whose rule is that a table is text until a quantity is asked."""

from typing import Any, Final

from privateer_core.errors import SpecError

TABLE: Final = "table"
"""The field of errors of a table that no spec names."""
_LETTERS: Final = 60


def refused(message: str, remedy: str, field: str = TABLE) -> SpecError:
    """Make the error of a table that cannot be used."""
    return SpecError(message, field=field, remedy=remedy)


def shortened(text: str) -> str:
    """Return a name from a file as messages have it: of a few dozen letters."""
    return text if len(text) <= _LETTERS else f"{text[:_LETTERS]}..."


def arrow(field: str = TABLE) -> Any:
    """Import pyarrow, which the load driver is installed without."""
    try:
        import pyarrow as pa
        import pyarrow.compute
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError:
        message = "pyarrow, which reads CSV and Parquet files, is missing"
        raise refused(message, "install privateer-lab[workbench]", field) from None
    return pa
