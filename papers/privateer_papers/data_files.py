"""Public data that reproductions read: expected format and source, and checks of the given files."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from privateer_core.errors import SpecError
from privateer_lab.environments.files import ADULT_COLUMNS
from privateer_lab.tables.data_table import DataTable
from privateer_lab.tables.table_files import find_files

_ADULT_ROWS: Final = {16_281, 32_561, 48_842}
"""Numbers of rows in adult.test, in adult.data, and in both."""
_APPLICANT_ROWS: Final = 73_462
_APPLICANT_COLUMNS: Final = (
    *("Age", "Accessibility", "EdLevel", "Employment", "Gender", "MentalHealth", "MainBranch", "YearsCode"),
    *("YearsCodePro", "Country", "PreviousSalary", "HaveWorkedWith", "ComputerSkills", "Employed"),
)
_TAXI_COLUMNS: Final = (
    *("taxi_id", "shift", "company_id", "pickup_community_area", "dropoff_community_area", "payment_type"),
    *("fare", "tips", "trip_total", "trip_seconds", "trip_miles"),
)
_BLOCK_BYTES: Final = 2**20
PUBLISHED_COLUMNS: Final = (
    *("experiment", "reward", "eps", "eps_aux", "gamma", "kappa", "n", "n_aux", "d", "M", "K", "weighted", "reps"),
    *("regret_mean", "regret_ci95", "seconds_mean"),
)


@dataclass(frozen=True)
class DataFile:
    """A kind of data, whose files an option names, separated by commas."""

    option: str
    # what they are, and where they are from
    expected: str
    source: str
    count: Callable[[str], int]  # returns how many rows a path has; raises SpecError if it cannot be read as these data
    rows: frozenset[int] = frozenset()  # how many there may be; empty if any number may
    # on what else than these data the reproduction that needs them was run, as a sentence; empty if on themselves
    tested: str = ""

    @property
    def description(self) -> str:
        """The expected files and their source, in words."""
        return f"{self.expected}, from {self.source}"

    def check(self, path: str) -> None:
        """Check that files have this kind of data."""
        try:
            n_rows = self.count(path)
        except SpecError as error:
            raise self._build_error(error.detail) from None
        if self.rows and n_rows not in self.rows:
            raise self._build_error(f"{path} has {n_rows:,} rows")

    def _build_error(self, detail: str) -> SpecError:
        return SpecError(detail, field=f"--{self.option}", remedy=f"expected {self.description}")

    def digest(self, path: str) -> str:
        """Return a digest of the content of files."""
        digest = sha256()
        for file in find_files(path):
            with file.open("rb") as stream:
                while block := stream.read(_BLOCK_BYTES):
                    digest.update(block)
        return digest.hexdigest()[:16]


def _count_adult_rows(path: str) -> int:
    return DataTable(path, header=ADULT_COLUMNS, remark="|").rows


def _make_row_counter(columns: Sequence[str]) -> Callable[[str], int]:
    """Return a function that counts the rows of files whose header has these columns."""

    def count(path: str) -> int:
        table = DataTable(path)
        if missing := [name for name in columns if name not in table.header]:
            raise SpecError(f"{path} has no column {missing[0]!r}")
        return table.rows

    return count


_TESTED: Final = "The file was not to be had where this was written: tests run on a small made file of its format."
DATA: Final = {
    data_file.option: data_file
    for data_file in (
        DataFile(
            "adult",
            "adult.data and adult.test of UCI Adult, 32,561 and 16,281 rows of 15 columns without a header",
            "archive.ics.uci.edu/dataset/2/adult",
            _count_adult_rows,
            frozenset(_ADULT_ROWS),
        ),
        DataFile(
            "applicants",
            f"stackoverflow_full.csv, {_APPLICANT_ROWS:,} rows with the columns {', '.join(_APPLICANT_COLUMNS)}",
            "kaggle.com/datasets/ayushtankha/70k-job-applicants-data-human-resource",
            _make_row_counter(_APPLICANT_COLUMNS),
            frozenset({_APPLICANT_ROWS}),
            tested=_TESTED,
        ),
        DataFile(
            "taxi",
            "ground_truth.csv of the third sprint of NIST's Differential Privacy Temporal Map Challenge, trips in "
            f"Chicago with the columns {', '.join(_TAXI_COLUMNS)}",
            "github.com/usnistgov/Differential-Privacy-Temporal-Map-Challenge-assets",
            _make_row_counter(_TAXI_COLUMNS),
            tested=_TESTED,
        ),
        DataFile(
            "published",
            f"a CSV file with the columns {', '.join(PUBLISHED_COLUMNS)}, a line for each setting",
            "the public logs of paper 1's authors, summarised",
            _make_row_counter(PUBLISHED_COLUMNS),
        ),
    )
}
"""All kinds of data that reproductions read, by option."""
