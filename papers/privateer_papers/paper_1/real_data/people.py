"""People of public data as paper 1 has them: three principal components, a class, and a cohort, each as a CSV file."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_lab.baselines.base import with_arms
from privateer_lab.environments.classified import COLUMNS, PROJECTION
from privateer_lab.environments.files.file_columns import Categories
from privateer_lab.environments.files.file_contexts import Projected, ProjectionSection
from privateer_lab.environments.files.people_file import PeopleFile
from privateer_papers.paper_1.setting import in_hundreds
from privateer_papers.reproduction import Row

FEATURES: Final = ("c1", "c2", "c3")
_LABEL: Final = "class"
_CLASSES: Final = ("0", "1")


@dataclass(frozen=True)
class Cohorts:
    """The people of data, each cohort in a file of its own.

    Attributes
    ----------
    target, sources
        Files, and how many rows they have.
    """

    target: tuple[str, int]
    sources: Mapping[str, tuple[str, int]]

    @staticmethod
    def population(path: str) -> Row:
        """Return the section of a spec whose people are a file's: reward 1 for the arm of the class."""
        return {"name": "csv", "path": path, "label": _LABEL, "classes": list(_CLASSES)}


@dataclass(frozen=True)
class PublicData:
    """Data in their public format.

    Attributes
    ----------
    name, option
        What the paper calls it, and the option that names its files.
    header, remark
        Names of the columns where files have no header, and what lines that are none begin with.
    complete
        Columns without which a row is left out, beside those that are used.
    projection
        Columns that become principal components.
    label, classes
        The column of the class, and which value is which.
    cohort, target
        The column that parts the people, and its values that are the target's; none: all that no source has.
    sources
        Values of each source, by its name.
    """

    name: str
    option: str
    projection: ProjectionSection
    label: str
    classes: Mapping[str, int]
    cohort: str
    target: tuple[str, ...]
    sources: Mapping[str, tuple[str, ...]]
    header: Sequence[str] | None = None
    remark: str | None = None
    complete: Sequence[str] = field(default=())

    def read(self, path: str, folder: Path) -> Cohorts:
        """Read files, and write those of the cohorts into a folder. Incomplete rows are left out.

        Raises
        ------
        SpecError
            If a file cannot be read, naming row and column.
        """
        table = PeopleFile(path, header=self.header, remark=self.remark)
        spec = in_hundreds(
            {"name": "people", "arms": ["a", "b"], "horizon": 100}, FEATURES, {"model": "none"}, [], {"name": "uniform"}
        )
        source = Projected(self.projection, with_arms(spec), table.header)
        label, cohort = Categories(self.label, self.classes), Categories(self.cohort)
        table.fill([*source.columns, label, cohort], len(FEATURES), complete=self.complete, drop=True)
        names = np.array(list(cohort.names))[cohort.values]
        contexts, taken = source.contexts(), [value for values in self.sources.values() for value in values]
        own = np.isin(names, self.target) if self.target else ~np.isin(names, taken)

        def write(name: str, chosen: NDArray[np.bool_]) -> tuple[str, int]:
            return _write(folder / f"{name}.csv", contexts, label.values, chosen)

        sources = {name: write(name, np.isin(names, values)) for name, values in self.sources.items()}
        return Cohorts(write("target", own), sources)


def _write(
    path: Path, contexts: NDArray[np.float64], labels: NDArray[np.int32], own: NDArray[np.bool_]
) -> tuple[str, int]:
    with path.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file)
        lines.writerow([*FEATURES, _LABEL])
        for values, label in zip(contexts[own].tolist(), labels[own].tolist(), strict=True):
            lines.writerow([*(f"{value:.9g}" for value in values), label])
    return str(path), int(own.sum())


ADULT: Final = PublicData(
    name="Adult",
    option="adult",
    header=COLUMNS,
    complete=COLUMNS,
    remark="|",
    projection=PROJECTION,
    label="income",
    classes={"<=50K": 0, ">50K": 1, "<=50K.": 0, ">50K.": 1},
    cohort="native-country",
    target=("United-States",),
    sources={
        "central-america": ("Mexico", "El-Salvador", "Guatemala", "Nicaragua", "Honduras"),
        "caribbean": (
            *("Puerto-Rico", "Cuba", "Jamaica", "Dominican-Republic", "Haiti", "Trinadad&Tobago"),
            "Outlying-US(Guam-USVI-etc)",
        ),
        "south-america": ("Columbia", "Peru", "Ecuador"),
        "canada-and-british-isles": ("Canada", "England", "Ireland", "Scotland"),
        "europe": (
            *("Germany", "Italy", "Poland", "Portugal", "Greece", "France", "Yugoslavia", "Hungary"),
            "Holand-Netherlands",
        ),
        "east-asia": ("China", "Japan", "Taiwan", "Hong", "South"),
        "south-and-southeast-asia": ("India", "Philippines", "Vietnam", "Iran", "Thailand", "Cambodia", "Laos"),
    },
)
"""The 41,292 complete rows of people born in the United States, and the 3,930 of others in seven sources.

Table 1 of the paper has these numbers and seven sources; which they are is in its supplement, which is not at hand.
Here they are regions of birth.
"""
JOBS: Final = PublicData(
    name="Jobs",
    option="applicants",
    projection=ProjectionSection(
        numbers=("Employment", "YearsCode", "YearsCodePro", "PreviousSalary", "ComputerSkills"),
        categories=("Age", "Accessibility", "EdLevel", "Gender", "MentalHealth", "MainBranch"),
    ),
    label="Employed",
    classes={"0": 0, "1": 1},
    cohort="Country",
    target=(),
    sources={"united-states": ("United States of America",)},
)
"""Applicants for jobs by country, as we infer: Table 1 of the paper has 11 columns, one source, and 57,773 and 14,318
people. The file has 11 columns that describe an applicant, and 73,462 rows; the supplement is not at hand.
"""
