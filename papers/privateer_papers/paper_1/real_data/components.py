"""Contexts that are principal components of many columns of a file, as those of paper 1's Section 4.2."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from pydantic import model_validator

from privateer_core.arrays import Array
from privateer_core.errors import SpecError
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.features import Numeric, Ranked
from privateer_core.spec.sections import Section
from privateer_lab.environments.files import Names
from privateer_lab.tables.data_column import Categories, Column, Numbers

_BLOCK_NUMBERS: Final = 1 << 20
"""Numbers in a block of rows."""
_SCALING_QUANTILES: Final = (0.005, 0.995)


class ProjectionSection(Section):
    """Contexts are the leading principal components of these columns, one a feature of the spec."""

    numbers: Names = ()  # numeric columns, standardized to mean 0 and variance 1
    categories: Names = ()  # other columns, one-hot: a column of 0 and 1 for every value that occurs

    @model_validator(mode="after")
    def _check_columns(self) -> "ProjectionSection":
        """Refuse a section that names no column, or one twice."""
        if not self.numbers and not self.categories:
            raise ValueError("name columns in numbers or categories")
        if len(set(self.numbers + self.categories)) < len(self.numbers + self.categories):
            raise ValueError("a column is named twice")
        return self


class Components:
    """Features that are the leading principal components of standardized numeric columns and one-hot categories.

    The directions come from the rows themselves, which is possible for simulated people and not for real devices.
    """

    def __init__(self, section: ProjectionSection, spec: ArmsSpec, header: Sequence[str]) -> None:
        for name in (*section.numbers, *section.categories):
            if name not in header:
                raise _project_error(f"no column of the file is named {name!r}", "name it as the file's header does")
        self._numbers = [Numbers(name) for name in section.numbers]
        self._categories = [Categories(name) for name in section.categories]
        self._n_components = len(spec.features)
        for name, feature in spec.features.items():
            if not isinstance(feature, Numeric | Ranked) or feature.missing:
                message, remedy = "must be a number that is never missing: it is a component", "give it low and high"
                raise SpecError(message, field=f"context.features.{name}", remedy=remedy)

    @property
    def columns(self) -> list[Column]:
        """The columns to fill."""
        return [*self._numbers, *self._categories]

    @property
    def width(self) -> int:
        """The number of numeric columns plus that of all values of categories."""
        return len(self._numbers) + sum(len(column.names) for column in self._categories)

    def contexts(self) -> Array:
        """Return components, shape (n, d), scaled so that [0, 1] holds 99 in 100 rows; devices clip the others."""
        for column in self.columns:
            if column.values.min() == column.values.max():
                raise _project_error(f"column {column.name!r} is constant: every row has the same value", "remove it")
        mean = np.sum([block.sum(axis=0) for block in self._iterate_blocks()], axis=0) / len(self.columns[0].values)
        scatter = np.sum([(block - mean).T @ (block - mean) for block in self._iterate_blocks()], axis=0)
        directions = self._leading_eigenvectors(scatter / len(self.columns[0].values))
        scores = np.concatenate([(block - mean) @ directions for block in self._iterate_blocks()])
        low, high = np.quantile(scores, _SCALING_QUANTILES, axis=0)
        low, high = np.where(high > low, (low, high), (scores.min(axis=0), scores.max(axis=0)))
        return np.asarray((scores - low) / (high - low))

    def _leading_eigenvectors(self, covariance: Array) -> Array:
        """Return eigenvectors of the largest variances, (width, d), each with its largest entry positive."""
        variances, directions = np.linalg.eigh(covariance)
        if self.width < self._n_components or variances[-self._n_components] < 1e-9 * variances[-1]:
            remedy = "name more columns, or fewer features"
            raise SpecError("there are fewer components than features", field="context.features", remedy=remedy)
        leading = directions[:, ::-1][:, : self._n_components]
        return np.asarray(leading * np.sign(leading[np.abs(leading).argmax(axis=0), np.arange(self._n_components)]))

    def _iterate_blocks(self) -> Iterator[Array]:
        """Yield standardized and one-hot columns in blocks of rows."""
        # One-hot, all rows at once would take many times the memory of the file.
        units = [(column.values.mean(), column.values.std()) for column in self._numbers]
        n_rows = max(1, _BLOCK_NUMBERS // self.width)
        for start in range(0, len(self.columns[0].values), n_rows):
            rows = slice(start, start + n_rows)
            scaled = [(column.values[rows, None] - m) / s for column, (m, s) in zip(self._numbers, units, strict=True)]
            one_hot = [column.values[rows, None] == np.arange(len(column.names)) for column in self._categories]
            yield np.concatenate([*scaled, *one_hot], axis=1, dtype=np.float64)


def _project_error(message: str, remedy: str) -> SpecError:
    return SpecError(message, field="projection", remedy=remedy)


PROJECTION: Final = ProjectionSection(
    numbers=("age", "education-num", "capital-gain", "capital-loss", "hours"),
    categories=("workclass", "marital-status", "occupation", "relationship", "race", "sex"),
)
"""46 columns once categories are one-hot and incomplete rows are left out: the number in Ma et al. 2025, Table 1."""
