"""The people of the UCI Adult census: two offers whose value depends on income, which nobody asks for."""

import csv
import gzip
from itertools import count
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer.errors import SpecError
from privateer_client.population.bernoulli import played

_COLUMNS: Final = {"age": 0, "education-num": 4, "hours": 12}
_INCOME: Final = 14
_MEANS: Final = np.array([[0.35, 0.0], [0.1, 1.0]])
"""Expected reward of the two offers for incomes up to 50K and above."""


class Adult:
    """Everybody once, in an order that the seed decides; then over again.

    Parameters
    ----------
    path
        One or more files of the UCI Adult data, plain or gzipped, separated by commas.
    seed
        Of the order.

    Raises
    ------
    SpecError
        If a file cannot be read, or a row lacks a number or an income; names the row.
    """

    arms = 2
    features = len(_COLUMNS)
    uniform = False

    def __init__(self, path: str, seed: int) -> None:
        people = [person for part in path.split(",") for person in _read(Path(part))]
        if not people:
            raise SpecError("holds no people", field="population.path", remedy="give the UCI Adult file")
        self._people = np.array(people)[np.random.default_rng([seed, 2]).permutation(len(people))]
        self._next = 0

    def contexts(self, people: int, _rng: np.random.Generator) -> NDArray[np.float64]:
        """Age, years of education and weekly hours, and last the income's class; shape (n, 4)."""
        rows = (self._next + np.arange(people)) % len(self._people)
        self._next += people
        return np.asarray(self._people[rows])

    def means(self, contexts: NDArray[np.float64]) -> NDArray[np.float64]:
        """Shape (n, 2)."""
        return np.asarray(_MEANS[contexts[:, -1].astype(np.int64)])

    def rewards(
        self, contexts: NDArray[np.float64], arms: NDArray[np.int64], rng: np.random.Generator
    ) -> NDArray[np.float64]:
        """Shape (n,), 0 or 1."""
        return played(self.means(contexts), arms, rng)


def _read(path: Path) -> list[list[float]]:
    try:
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
            rows = list(csv.reader(file, skipinitialspace=True))
    except (OSError, UnicodeDecodeError):
        raise SpecError(f"cannot read {path}", field="population.path", remedy="give the UCI Adult file") from None
    # The test file starts with a remark of one column.
    return [_person(row, number, path) for number, row in zip(count(1), rows, strict=False) if len(row) > 1]


def _person(row: list[str], number: int, path: Path) -> list[float]:
    try:
        income = row[_INCOME].rstrip(".")
        return [*(float(row[column]) for column in _COLUMNS.values()), float({"<=50K": 0, ">50K": 1}[income])]
    except (IndexError, ValueError, KeyError):
        raise SpecError(
            f"row {number} of {path} lacks a number or an income",
            field="population.path",
            remedy="correct or remove it",
        ) from None
