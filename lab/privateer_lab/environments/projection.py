"""Contexts from many columns of a file: principal components."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from privateer.errors import SpecError
from privateer.sections import Section
from privateer.spec import ArmsSpec
from privateer_lab.environments.columns import Categories, Column, Numbers

Names = tuple[Annotated[str, Field(min_length=1, max_length=256)], ...]
_BLOCK: Final = 1 << 20
"""Numbers at a time."""
_INNER: Final = (0.005, 0.995)


class ProjectionSection(Section):
    """Contexts are the leading principal components of these columns, one a feature of the spec.

    Attributes
    ----------
    numbers
        Numeric columns, standardized to mean 0 and variance 1.
    categories
        Other columns, one-hot: a column of 0 and 1 for every value that occurs.
    """

    numbers: Names = ()
    categories: Names = ()

    @model_validator(mode="after")
    def _has_columns(self) -> "ProjectionSection":
        if not self.numbers and not self.categories:
            raise ValueError("name columns in numbers or categories")
        if len(set(self.numbers + self.categories)) < len(self.numbers + self.categories):
            raise ValueError("a column is named twice")
        return self


class Projected:
    """Features are the leading principal components of standardized numeric columns and one-hot categories.

    The directions come from the rows themselves, which is possible for simulated people and not for real devices: a
    real experiment would take the directions from public data.

    Parameters
    ----------
    section
        Names the columns.
    spec
        Has as many features as are wanted.
    header
        Names of the columns that there are.

    Raises
    ------
    SpecError
        If there is no such column.
    """

    def __init__(self, section: ProjectionSection, spec: ArmsSpec, header: Sequence[str]) -> None:
        unknown = [name for name in (*section.numbers, *section.categories) if name not in header]
        if unknown:
            message = f"no column of the file is named {unknown[0]!r}"
            raise SpecError(message, field="population.project", remedy="name it as the file's header does")
        self._numbers = [Numbers(name) for name in section.numbers]
        self._categories = [Categories(name) for name in section.categories]
        self._wanted = spec.dimension

    @property
    def columns(self) -> list[Column]:
        """The columns to fill."""
        return [*self._numbers, *self._categories]

    @property
    def width(self) -> int:
        """The number of numeric columns, and of values of all categories."""
        return len(self._numbers) + sum(len(column.names) for column in self._categories)

    def contexts(self) -> NDArray[np.float64]:
        """Return components, shape (n, d), scaled so that [0, 1] holds 99 in 100 rows; devices clip the others.

        Raises
        ------
        SpecError
            If a column is constant, or the columns have fewer components than there are features.
        """
        self._check_varied()
        rows = sum(len(block) for block in self._blocks())
        mean = np.sum([block.sum(axis=0) for block in self._blocks()], axis=0) / rows
        spread = np.sum([(block - mean).T @ (block - mean) for block in self._blocks()], axis=0) / rows
        directions = self._leading(spread)
        scores = np.concatenate([(block - mean) @ directions for block in self._blocks()])
        low, high = np.quantile(scores, _INNER, axis=0)
        low, high = np.where(high > low, (low, high), (scores.min(axis=0), scores.max(axis=0)))
        return np.asarray((scores - low) / (high - low))

    def _check_varied(self) -> None:
        constant = [column.name for column in self._numbers if np.ptp(column.values) == 0]
        constant += [column.name for column in self._categories if len(column.names) == 1]
        if constant:
            message = f"column {constant[0]!r} is constant: every row has the same value"
            raise SpecError(message, field="population.project", remedy="remove it")

    def _leading(self, spread: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return eigenvectors of the largest variances, (width, d), each with its largest entry positive."""
        variances, directions = np.linalg.eigh(spread)
        if self.width < self._wanted or variances[-self._wanted] < 1e-9 * variances[-1]:
            remedy = "name more columns in population.project, or fewer features"
            raise SpecError("there are fewer components than features", field="context.features", remedy=remedy)
        leading = directions[:, ::-1][:, : self._wanted]
        return np.asarray(leading * np.sign(leading[np.abs(leading).argmax(axis=0), np.arange(self._wanted)]))

    def _blocks(self) -> Iterator[NDArray[np.float64]]:
        """Yield the columns, some rows at a time."""
        # One-hot, all rows at once would take many times the memory of the file.
        numbers = [column.values for column in self._numbers]
        units = [(values.mean(), values.std()) for values in numbers]
        codes = [(column.values, np.arange(len(column.names))) for column in self._categories]
        rows = len(numbers[0]) if numbers else len(codes[0][0])
        block = max(1, _BLOCK // self.width)
        for start in range(0, rows, block):
            here = slice(start, start + block)
            scaled = [(v[here, None] - mean) / unit for v, (mean, unit) in zip(numbers, units, strict=True)]
            hot = [(known[here, None] == names).astype(np.float64) for known, names in codes]
            yield np.concatenate([*scaled, *hot], axis=1)
