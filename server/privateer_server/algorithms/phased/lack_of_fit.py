"""Lack of fit: whether rewards of a box's points depart from the polynomial, along each of its sides."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from privateer_core.answer.facts import Kind, Table
from privateer_core.arrays import Array, Bools, Ints

_MIN_VARIATION: Final = 1e-6
"""A power that varies by less beside the polynomial, over the points of a phase, is not tested."""


@dataclass(frozen=True)
class LackOfFit:
    """Departures from the polynomial: the largest reward, over a phase's points, of the power that it lacks."""

    departures: Array  # shape (d,), in the units of rewards; 0 where nothing was tested
    radii: Array  # shape (d,): how far they may be off; infinite where nothing was tested

    @classmethod
    def without_phases(cls, dimension: int) -> "LackOfFit":
        """Return what is known before the first phase."""
        return cls(np.zeros(dimension), np.full(dimension, np.inf))

    @property
    def is_detected(self) -> bool:
        """Whether a departure cannot be noise."""
        return bool((np.abs(self.departures) > self.radii).any())

    def build_table(self, points: Array, best: Array) -> Table:
        """Return a row for each side of the box: the best point, the points left, and the departure.

        points: (n, d), those left, and best: (d,), in the units of the sides.
        """
        title = "where the best point is" + (", and rewards that are no polynomial" if self.is_detected else "")
        columns: dict[str, Kind] = {"side": "words", "best": "number", "from": "number", "to": "number"}
        columns |= {"departure": "difference", "low": "low", "high": "high"}
        rows = [
            (f"x{side}", *map(float, place), *self._list_departure(side - 1))
            for side, place in enumerate(zip(best, points.min(axis=0), points.max(axis=0), strict=True), 1)
        ]
        return Table.of(title, columns, tuple(rows))

    def _list_departure(self, side: int) -> tuple[float | None, ...]:
        """Return the departure along a side with its interval; None where nothing was tested."""
        value, radius = float(self.departures[side]), float(self.radii[side])
        return (value, value - radius, value + radius) if np.isfinite(radius) else (None, None, None)

    def take_clearer(self, later: "LackOfFit") -> "LackOfFit":
        """Return, for each side, the clearer of two tests: that whose departure exceeds its radius by most."""
        is_later = np.abs(later.departures) - later.radii >= np.abs(self.departures) - self.radii
        departures = np.where(is_later, later.departures, self.departures)
        return LackOfFit(departures, np.where(is_later, later.radii, self.radii))


def weight_departures(points: Array, powers: Array, plays: Ints) -> tuple[Array, Bools]:
    """Return what multiplies a phase's averages in its departures, and which sides are tested.

    Least squares with the powers beside the polynomial (Frisch and Waugh 1933): each is divided by its largest value
    at a point, so that its coefficient is a reward.

    points: (s, terms), the polynomial at the points played. powers: (s, d). plays: (s,).
    """
    root = np.sqrt(plays)[:, None]
    fitted = np.linalg.lstsq(points * root, powers * root, rcond=None)[0]
    residuals = powers - points @ fitted
    largest = np.abs(residuals).max(axis=0)
    is_tested = largest > _MIN_VARIATION
    scaled = residuals[:, is_tested] / largest[is_tested]
    if np.linalg.matrix_rank(scaled * root) < scaled.shape[1]:  # too few points for all powers together
        is_tested, scaled = np.zeros_like(is_tested), scaled[:, :0]
    weights = np.zeros((powers.shape[1], len(plays)))
    weights[is_tested] = np.linalg.pinv(scaled * root) * root.T
    return weights, is_tested
