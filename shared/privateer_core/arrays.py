"""The types of arrays that all modules share, and how arrays by arm grow."""

from typing import Any, TypeAlias, TypeVar

import numpy as np

_Scalar = TypeVar("_Scalar", bound=np.generic)
NDArray: TypeAlias = np.ndarray[Any, np.dtype[_Scalar]]
"""The array type of `numpy.typing`, whose import a device need not wait for."""
Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Words = NDArray[np.uint64]
Coins = NDArray[np.uint32]
"""Public coins of participants, (n,)."""
Records = NDArray[np.void]
"""Records or messages of participants, with named fields."""


def pad_arms(values: Array, n_added: int) -> Array:
    """Return an array by arm, (arms, ...), padded with zeros for additional arms."""
    return np.concatenate([values, np.zeros((n_added, *values.shape[1:]))])
