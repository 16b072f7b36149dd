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
from privateer_lab.environments.file_contexts import Projected, ProjectionSection
from privateer_lab.tables.columns import Categories
from privateer_lab.tables.data_table import DataTable
from privateer_papers.paper_1.real_data.cohorts import Chosen, CohortsBySize, CohortsByValue
from privateer_papers.paper_1.setting import in_hundreds
from privateer_papers.reproduction import Row

FEATURES: Final = ("c1", "c2", "c3")
_LABEL: Final = "class"
_CLASSES: Final = ("0", "1")
OTHER: Final = len(_CLASSES)
"""The number of classes that are neither."""


@dataclass(frozen=True)
class Cohorts:
    """The people of data, each cohort in a file of its own."""

    # files, and how many rows they have
    target: tuple[str, int]
    sources: Mapping[str, tuple[str, int]]

    @staticmethod
    def population(path: str) -> Row:
        """Return the section of a spec whose people are a file's: reward 1 for the arm of the class."""
        return {"name": "csv", "path": path, "label": _LABEL, "classes": list(_CLASSES)}


@dataclass(frozen=True)
class PublicData:
    """Data in their public format."""

    # what the paper calls it, and the option that names its files
    name: str
    option: str
    projection: ProjectionSection  # columns that become principal components
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

    def read(self, path: str, folder: Path) -> Cohorts:
        """Read files, and write those of the cohorts into a folder. Incomplete rows are left out."""
        table = DataTable(path, header=self.header, remark=self.remark)
        spec = in_hundreds(
            {"name": "people", "arms": ["a", "b"], "horizon": 100}, FEATURES, {"model": "none"}, [], {"name": "uniform"}
        )
        source = Projected(self.projection, with_arms(spec), table.header)
        label, cohort = Categories(self.label, self.classes), Categories(self.cohort)
        table.fill([*source.columns, label, cohort], len(FEATURES), complete=self.complete, drop=True)
        known = label.values < OTHER
        values, contexts, labels = cohort.values[known], source.contexts()[known], label.values[known]
        target, others = self.cohorts.choose(np.array(list(cohort.names))[values])

        def write(name: str, chosen: Chosen) -> tuple[str, int]:
            return _write(folder / f"{name}.csv", contexts, labels, chosen)

        return Cohorts(write("target", target), {name: write(f"source-{name}", own) for name, own in others.items()})


def _write(path: Path, contexts: NDArray[np.float64], labels: NDArray[np.int32], own: Chosen) -> tuple[str, int]:
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
    cohorts=CohortsByValue(
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
    ),
    inferred="The paper has 41,292 people of the target, 3,930 of seven sources and 46 columns. Complete rows of "
    "people born in the United States, of all others, and columns after one-hot coding are as many. Which seven "
    "sources the others make is in a supplement that is not at hand: the regions of birth here are ours.",
)
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
    cohorts=CohortsByValue(sources={"united-states": ("United States of America",)}),
    inferred="The paper has 57,773 people of the target, 14,318 of one source and 11 columns. Eleven columns of the "
    "file describe an applicant. That the source is the United States is ours: the supplement is not at hand.",
)
TAXI: Final = PublicData(
    name="Taxi",
    option="taxi",
    projection=ProjectionSection(
        numbers=("fare", "tips", "trip_total", "trip_seconds", "trip_miles"),
        categories=("shift", "pickup_community_area", "dropoff_community_area"),
    ),
    label="payment_type",
    classes={"0": 0, "1": 1} | dict.fromkeys(("-1", "2", "3", "4", "5", "6", "7", "8"), OTHER),
    cohort="company_id",
    cohorts=CohortsBySize(target=621_957, source=18_945),
    inferred="The paper has 621,957 people of the target, 18,945 of one source and 93 columns, and does not say which "
    "taxis these are. The file, the class (a credit card or cash) and the columns are ours; target and source are the "
    "two companies whose trips are nearest to as many.",
)
