"""Names of the cells of features, for people."""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from privateer_core.algorithms.additive.cells import ShapeCells
from privateer_core.answer.facts import NAME_MAX
from privateer_core.spec.categories import Ordinal
from privateer_core.spec.features import Feature, Scaled

MISSING: Final = "missing"
_FEATURE: Final = 96
"""Characters of a feature's name in that of a cell."""


def named(name: str, feature: Feature, cells: ShapeCells) -> Iterator[str]:
    """Yield the names of a feature's cells in their order."""
    for place, what in enumerate(contents(feature, cells)):
        said = f"{name[:_FEATURE]}: {what}"
        # Names are kept apart where a screen has no room for all of them.
        yield said if len(said) <= NAME_MAX else f"{said[: NAME_MAX - 8]} ({place})"


def contents(feature: Any, cells: ShapeCells) -> Iterator[str]:
    """Yield what each of a feature's cells holds, in their order."""
    if isinstance(feature, Scaled):
        for place in range(cells.bins):
            yield _of_bin(feature, place, cells.bins)
        if cells.missing:
            yield MISSING
        return
    for code in cells.codes:
        bits = (code >> np.arange(cells.columns - 1, -1, -1)) & 1
        levels = feature.shown(bits / 2, (bits + 1) / 2)
        yield " or ".join(map(_worded, levels)) or "no level"


def _worded(level: Any) -> str:
    if isinstance(level, bool):
        return "yes" if level else "no"
    return MISSING if level is None else str(level)


def _of_bin(feature: Any, place: int, bins: int) -> str:
    if isinstance(feature, Ordinal):
        return str(feature.levels[place])
    return f"{feature.value_at(place / bins):g} to {feature.value_at((place + 1) / bins):g}"
