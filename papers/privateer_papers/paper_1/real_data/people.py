"""Public data with a target and sources, selected by the values of a column or by their frequencies."""

import csv
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.arrays import Array, Bools
from privateer_core.errors import SpecError
from privateer_lab.environments.files import ADULT_COLUMNS
from privateer_lab.tables.data_column import Categories
from privateer_lab.tables.data_table import DataTable
from privateer_papers.paper_1.real_data.components import Components, Projection
from privateer_papers.reproduction import Row


@dataclass(frozen=True)
class CohortsByValue:
    """Selection of cohorts by the values of a column."""

    sources: Mapping[str, Sequence[str]]  # values of each source, by its name
    target: Sequence[str] = ()  # values of the target; none: all that no source has

    def select_cohorts(self, values: NDArray[np.str_]) -> tuple[Bools, dict[str, Bools]]:
        """Return masks of the target and of each source, shape (n,) each."""
        source_values = [value for members in self.sources.values() for value in members]
        target = np.isin(values, self.target) if self.target else ~np.isin(values, source_values)
        return target, {name: np.isin(values, members) for name, members in self.sources.items()}


@dataclass(frozen=True)
class CohortsBySize:
    """Selection of the target and a source as the values of a column with frequencies nearest to the printed sizes."""

    # numbers of people that were printed; which values they have was not
    target: int
    source: int

    def select_cohorts(self, values: NDArray[np.str_]) -> tuple[Bools, dict[str, Bools]]:
        """Return masks of the target and of the source, shape (n,) each; refuse rows of a single cohort."""
        distinct, counts = np.unique(values, return_counts=True)
        if len(distinct) < 2:
            raise SpecError("all rows are of one cohort", field="population.path", remedy="give the whole file")
        sizes = dict(zip(distinct.tolist(), counts.tolist(), strict=True))
        target = min(sizes, key=lambda name: abs(sizes[name] - self.target))
        del sizes[target]
        source = min(sizes, key=lambda name: abs(sizes[name] - self.source))
        return values == target, {source: values == source}


FEATURES: Final = ("c1", "c2", "c3")
_CLASS_COLUMN: Final = "class"
_CLASSES: Final = ("0", "1")
OTHER_CLASS: Final = len(_CLASSES)
"""The number that stands for all other classes."""


@dataclass(frozen=True)
class Cohorts:
    """The cohorts of public data, each in its own file."""

    # files, and how many rows they have
    target: tuple[str, int]
    sources: Mapping[str, tuple[str, int]]

    @staticmethod
    def population(path: str) -> Row:
        """Return the ``[population]`` of a file: reward 1 for the arm of the class."""
        return {"name": "csv", "path": path, "label": _CLASS_COLUMN, "classes": list(_CLASSES)}


@dataclass(frozen=True)
class PublicData:
    """A public data set, with the selection of its cohorts."""

    # what the paper calls it, and the option that names its files
    name: str
    option: str
    projection: Projection  # columns that become principal components
    # the column of the class, and which value is which; rows of `OTHER` classes are left out
    label: str
    classes: Mapping[str, int]
    # the column that parts the people, and how it does
    cohort: str
    cohorts: CohortsByValue | CohortsBySize
    inferred: str  # what the paper says of the data, and what of them is ours, in sentences
    # names of the columns where files have no header, and what lines that are none begin with
    header: Sequence[str] | None = None
    remark: str | None = None
    complete: Sequence[str] = field(default=())  # columns without which a row is left out, beside those that are used

    def split_files(self, path: str, folder: Path) -> Cohorts:
        """Read files, and write a file for each cohort into a folder, without incomplete rows."""
        table = DataTable(path, header=self.header, remark=self.remark)
        source = Components(self.projection, len(FEATURES))
        label, cohort = Categories(self.label, self.classes), Categories(self.cohort)
        table.read_into([*source.columns, label, cohort], len(FEATURES), complete=self.complete, drop=True)
        is_labelled = label.values < OTHER_CLASS
        values, contexts, labels = cohort.values[is_labelled], source.contexts()[is_labelled], label.values[is_labelled]
        target, sources = self.cohorts.select_cohorts(np.array(list(cohort.names))[values])

        def write(name: str, members: Bools) -> tuple[str, int]:
            return _write_cohort(folder / f"{name}.csv", contexts, labels, members)

        return Cohorts(write("target", target), {name: write(f"source-{name}", rows) for name, rows in sources.items()})


def _write_cohort(path: Path, contexts: Array, labels: NDArray[np.int32], members: Bools) -> tuple[str, int]:
    """Write the rows of a cohort as CSV; return the path and the number of rows."""
    with path.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file)
        lines.writerow([*FEATURES, _CLASS_COLUMN])
        for values, label in zip(contexts[members].tolist(), labels[members].tolist(), strict=True):
            lines.writerow([*(f"{value:.9g}" for value in values), label])
    return str(path), int(members.sum())


def _read_data(name: str, **facts: Any) -> PublicData:
    """Read what ``public_data.toml`` says of a data set."""
    path = Path(__file__).with_name("public_data.toml")
    table = tomllib.loads(path.read_text(encoding="utf-8"))[name]
    cohorts = table.pop("cohorts")
    kind: Any = CohortsByValue if "sources" in cohorts else CohortsBySize
    return PublicData(projection=Projection(**table.pop("projection")), cohorts=kind(**cohorts), **table, **facts)


ADULT: Final = _read_data("adult", header=ADULT_COLUMNS, complete=ADULT_COLUMNS, remark="|")
JOBS: Final = _read_data("jobs")
TAXI: Final = _read_data("taxi")
