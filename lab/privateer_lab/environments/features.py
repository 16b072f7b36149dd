"""Contexts from columns of a file: named by the spec's features."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from privateer.errors import SpecError
from privateer.spec import ArmsSpec
from privateer_lab.environments.columns import Categories, Column, Numbers


class Named:
    """A feature is the column of its name; or, named ``column=value``, 1 where a column has that value and 0 elsewhere.

    Parameters
    ----------
    spec
        Its features, in order.
    header
        Names of the columns that there are.

    Raises
    ------
    SpecError
        If a feature has no column.
    """

    def __init__(self, spec: ArmsSpec, header: Sequence[str]) -> None:
        self._features = tuple(spec.features)
        self._numbers: dict[str, Numbers] = {}
        self._categories: dict[str, Categories] = {}
        for feature in self._features:
            column = feature.split("=")[0]
            if feature in header:
                self._numbers[feature] = Numbers(feature)
            elif "=" in feature and column in header:
                self._categories[column] = Categories(column)
            else:
                message, field = "no column of the file has this name", f"context.features.{feature}"
                raise SpecError(message, field=field, remedy="name it as the file's header does")

    @property
    def columns(self) -> list[Column]:
        """The columns to fill."""
        return [*self._numbers.values(), *self._categories.values()]

    def contexts(self) -> NDArray[np.float64]:
        """Return contexts of the columns once they are filled, shape (n, d)."""
        return np.stack([self._feature(name) for name in self._features], axis=1)

    def _feature(self, name: str) -> NDArray[np.float64]:
        if name in self._numbers:
            return self._numbers[name].values
        column, _, value = name.partition("=")
        categories = self._categories[column]
        if value not in categories.names:
            message = f"no row of the file has this value in column {column!r}"
            raise SpecError(message, field=f"context.features.{name}", remedy="correct its spelling or remove it")
        return np.asarray(categories.values == categories.names[value], dtype=np.float64)


def check_features(contexts: NDArray[np.float64], spec: ArmsSpec) -> None:
    """Refuse features that cannot distinguish anybody from anybody else.

    Raises
    ------
    SpecError
        If there are no rows; or naming a feature that is the same in all, or once clipped to the spec's bounds.
    """
    if not len(contexts):
        raise SpecError("no row is left", field="population", remedy="choose other people")
    for values, (name, bounds) in zip(contexts.T, spec.features.items(), strict=True):
        field = f"context.features.{name}"
        if (values == values[0]).all():
            raise SpecError("the column is constant: every row has the same value", field=field, remedy="remove it")
        clipped = np.clip(values, bounds.low, bounds.high)
        if (clipped == clipped[0]).all():
            message = "every row is on the same side of low and high"
            raise SpecError(message, field=field, remedy="correct the bounds")
