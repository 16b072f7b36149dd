"""Contexts from columns of a file: named by the spec's features, or principal components of many columns."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Final

import numpy as np
from pydantic import Field, model_validator

from privateer_core.errors import SpecError
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.categories import Categorical, Hashed, Ordinal
from privateer_core.spec.features import Feature, Numeric, Ranked
from privateer_core.spec.sections import Section
from privateer_core.spec.spec import Spec
from privateer_lab.environments.environment import Array
from privateer_lab.tables.columns import Categories, Column, Numbers, Values
from privateer_lab.tables.data_table import DataTable

Names = tuple[Annotated[str, Field(min_length=1, max_length=256)], ...]
_BLOCK: Final = 1 << 20
"""Numbers at a time."""
_INNER: Final = (0.005, 0.995)


class Named:
    """Contexts of columns: that of a feature's name; or, named ``column=value``, 1 where a column has it and else 0."""

    def __init__(self, spec: Spec, header: Sequence[str]) -> None:
        self._features = tuple(spec.features)
        self._values: dict[str, Column] = {}
        self._categories: dict[str, Categories] = {}
        for name, feature in spec.features.items():
            column, *value = name.split("=", 1)
            if name in header:
                self._values[name] = _column(name, feature)
            elif value and column in header and not isinstance(feature, Categorical | Hashed | Ordinal):
                self._categories[column] = Categories(column)
            else:
                message, field = "no column of the table has this name", f"context.features.{name}"
                raise SpecError(message, field=field, remedy="name it as the table's header does")

    @property
    def columns(self) -> list[Column]:
        """The columns to fill."""
        return [*self._values.values(), *self._categories.values()]

    def contexts(self) -> Array:
        """Return the contexts of filled columns, shape (n, d)."""
        return np.stack([self._feature(name) for name in self._features], axis=1)

    def _feature(self, name: str) -> Array:
        if name in self._values:
            return self._values[name].values
        column, value = name.split("=", 1)
        categories = self._categories[column]
        if value not in categories.names:
            message = f"no row of the file has this value in column {column!r}"
            raise SpecError(message, field=f"context.features.{name}", remedy="correct its spelling or remove it")
        return np.asarray(categories.values == categories.names[value], np.float64)


def contexts_of(table: DataTable, spec: Spec) -> Array:
    """Return the features of a spec as devices read them, (n, features), from the columns of their names."""
    if not spec.features:
        return np.zeros((table.rows, 0))
    source = Named(spec, table.header)
    table.fill(source.columns, len(spec.features))
    return source.contexts()


def _column(name: str, feature: Feature) -> Column:
    numeric = isinstance(feature, Numeric | Ranked)
    return Numbers(name, optional=feature.missing) if numeric else Values(name, feature)


class ProjectionSection(Section):
    """Contexts are the leading principal components of these columns, one a feature of the spec."""

    numbers: Names = ()  # numeric columns, standardized to mean 0 and variance 1
    categories: Names = ()  # other columns, one-hot: a column of 0 and 1 for every value that occurs

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
    real experiment would take them from public data.
    """

    def __init__(self, section: ProjectionSection, spec: ArmsSpec, header: Sequence[str]) -> None:
        for name in (*section.numbers, *section.categories):
            if name not in header:
                raise _refused(f"no column of the file is named {name!r}", "name it as the file's header does")
        self._numbers = [Numbers(name) for name in section.numbers]
        self._categories = [Categories(name) for name in section.categories]
        self._wanted = len(spec.features)
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
        """The number of numeric columns, and of values of all categories."""
        return len(self._numbers) + sum(len(column.names) for column in self._categories)

    def contexts(self) -> Array:
        """Return components, shape (n, d), scaled so that [0, 1] holds 99 in 100 rows; devices clip the others."""
        for column in self.columns:
            if column.values.min() == column.values.max():
                raise _refused(f"column {column.name!r} is constant: every row has the same value", "remove it")
        mean = np.sum([block.sum(axis=0) for block in self._blocks()], axis=0) / len(self.columns[0].values)
        scatter = np.sum([(block - mean).T @ (block - mean) for block in self._blocks()], axis=0)
        directions = self._leading(scatter / len(self.columns[0].values))
        scores = np.concatenate([(block - mean) @ directions for block in self._blocks()])
        low, high = np.quantile(scores, _INNER, axis=0)
        low, high = np.where(high > low, (low, high), (scores.min(axis=0), scores.max(axis=0)))
        return np.asarray((scores - low) / (high - low))

    def _leading(self, covariance: Array) -> Array:
        """Return eigenvectors of the largest variances, (width, d), each with its largest entry positive."""
        variances, directions = np.linalg.eigh(covariance)
        if self.width < self._wanted or variances[-self._wanted] < 1e-9 * variances[-1]:
            remedy = "name more columns in population.project, or fewer features"
            raise SpecError("there are fewer components than features", field="context.features", remedy=remedy)
        leading = directions[:, ::-1][:, : self._wanted]
        return np.asarray(leading * np.sign(leading[np.abs(leading).argmax(axis=0), np.arange(self._wanted)]))

    def _blocks(self) -> Iterator[Array]:
        """Yield the columns, some rows at a time."""
        # One-hot, all rows at once would take many times the memory of the file.
        units = [(column.values.mean(), column.values.std()) for column in self._numbers]
        size = max(1, _BLOCK // self.width)
        for start in range(0, len(self.columns[0].values), size):
            rows = slice(start, start + size)
            scaled = [(column.values[rows, None] - m) / s for column, (m, s) in zip(self._numbers, units, strict=True)]
            hot = [column.values[rows, None] == np.arange(len(column.names)) for column in self._categories]
            yield np.concatenate([*scaled, *hot], axis=1, dtype=np.float64)


def _refused(message: str, remedy: str) -> SpecError:
    return SpecError(message, field="population.project", remedy=remedy)
