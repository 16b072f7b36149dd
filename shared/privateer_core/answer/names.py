"""Names and figures that people see: what a terminal or a page may be given."""

import math
from collections.abc import Iterable
from typing import Final

NAME_MAX: Final = 256
"""Characters of a name or a sentence that a server sends."""


def check_names(*names: str) -> None:
    """Refuse names that a screen must not be given.

    Raises
    ------
    ValueError
        If one is empty, too long, or has characters that control a terminal.
    """
    if not all(0 < len(name) <= NAME_MAX and name.isprintable() for name in names):
        raise ValueError(f"a name must have 1 to {NAME_MAX} printable characters")


def check_finite(figures: Iterable[object], what: str) -> None:
    """Refuse figures that are infinite or not a number; whatever else is among them is left alone.

    Raises
    ------
    ValueError
        If one is.
    """
    if not all(math.isfinite(one) for one in figures if isinstance(one, float)):
        raise ValueError(f"figures of {what} must be finite")
