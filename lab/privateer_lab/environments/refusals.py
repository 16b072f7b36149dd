"""Errors of files of people."""

from privateer_core.errors import SpecError


def refused(message: str, remedy: str) -> SpecError:
    """Make the error of a file that cannot be used."""
    return SpecError(message, field="population.path", remedy=remedy)


def missing_pyarrow() -> SpecError:
    """Make the error of a machine that cannot read files of people."""
    return refused("pyarrow, which reads CSV and Parquet files, is missing", "install privateer-lab[workbench]")
