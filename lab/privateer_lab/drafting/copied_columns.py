"""Columns that say what another one says: a second feature tells nothing, and one of the option is known too late."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from privateer_lab.drafting.column_profiles import Profile, shortened


def without_copies(profiles: Sequence[Profile], arm: Profile | None) -> tuple[list[Profile], list[str]]:
    """Return the columns but those that say what an earlier one says, or which option a row has, and why they are not.

    A column is a copy if it parts rows as the other does, whatever it calls the parts: ``NL`` and ``Netherlands``.
    """
    kept, notes = list[Profile](), list[str]()
    for one in profiles:
        if arm is not None and _same(one, arm):
            what = f"it says which option a row has, as {shortened(arm.name)} does, and no device knows that in time"
        elif earlier := next((other for other in kept if _same(one, other)), None):
            what = f"it says what {shortened(earlier.name)} says"
        else:
            kept.append(one)
            continue
        notes.append(f"{shortened(one.name)} is left out: {what}.")
    return kept, notes


def _same(one: Profile, other: Profile) -> bool:
    """Whether two columns part rows alike. Where most rows are apart they do so by chance: values must be the same."""
    if one.is_constant or len(one.counts) != len(other.counts):
        return False
    if not np.array_equal(_parted(one.places), _parted(other.places)):
        return False
    return 2 * len(one.counts) <= one.rows or [*map(str, one.counts)] == [*map(str, other.counts)]


def _parted(places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the places of rows (n,) with parts numbered as they first occur; rows without a value are one."""
    _, first, part = np.unique(places, return_index=True, return_inverse=True)
    return np.asarray(np.argsort(np.argsort(first))[part])
