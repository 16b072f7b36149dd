"""Who is asked when: a public draw without replacement, which everybody can repeat from its seed."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from privateer.errors import SpecError
from privateer.slots import mix


def drawn(seed: int, people: int, start: int, count: int) -> NDArray[np.int64]:
    """The people at places ``start`` to ``start + count`` of a random order of 0 to ``people`` - 1, shape (count,).

    One seed is one order: draws at places apart have no person in common, which parallel composition relies on.

    Parameters
    ----------
    seed
        Public, 64 bits.
    people
        At least ``start + count``.

    Raises
    ------
    SpecError
        If there are not so many people.
    """
    if not 0 <= start <= start + count <= people:
        raise SpecError(
            f"{people} people, {start + count} are to be asked", field="experiment.people", remedy="raise it"
        )
    return _order(seed, people)[start : start + count]


@lru_cache(maxsize=4)
def _order(seed: int, people: int) -> NDArray[np.int64]:
    """People by the hash of their number; SplitMix64 is a bijection, so that no two are alike."""
    start = mix(np.full(1, seed, np.uint64))
    order = np.argsort(mix(np.arange(people, dtype=np.uint64) ^ start)).astype(np.int64)
    order.flags.writeable = False
    return order
