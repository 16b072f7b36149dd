"""Masses of slabs, read from what is common to the values that were observed of them."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_LEAST_VALUE: Final = 0.2
_LEAST_DEVIATIONS: Final = 4.0
"""Nothing is read from a pooled value that is nearer to 0 than this, or than so many of its standard errors."""
_USUAL: Final = 0.8
"""Standard deviation of a slab's mass from what is expected, relative to it, before anything is read."""
_LEAST: Final = 0.02
"""No mass falls below this share of what was expected: estimates may be negative."""


def mass_ratios(precision: Array, moment: Array, expected: Array) -> Array:
    """Return by how much the masses of a feature's slabs differ from what is expected, shape (slabs,).

    The model: all arms together have one value v in every slab. A sum over slab b is r_b m_b v if r_b m_b people are
    there in place of m_b, so that what passes for its value is r_b v. With y_b the pooled value of a slab and v that of
    all slabs, r_b is y_b / v, with the standard error 1 / (|v| sqrt(precision)), shrunk to 1. A true difference that
    all arms have in common passes for mass; that scales the values of all arms alike and changes no choice.

    Parameters
    ----------
    precision, moment
        Shape (slabs, arms): what was observed of values as if masses were as expected.
    expected
        Shape (slabs,): those masses, m_b.

    Returns
    -------
    The ratios r_b, whose mean by expected masses is 1; all 1 where v is too near to 0 to tell.
    """
    told, found = precision.sum(axis=1), moment.sum(axis=1)
    total = float(told.sum())
    value = float(found.sum()) / total if total else 0.0
    if abs(value) <= max(_LEAST_VALUE, _LEAST_DEVIATIONS / np.sqrt(max(total, 1.0))):
        return np.ones(len(told))
    # With the prior variance s^2 and the error's 1 / (v^2 told), s^2 / (s^2 + error) of what was found counts.
    weight = _USUAL**2 * value**2 * told
    observed = np.where(told > 0, found / np.where(told > 0, told, 1.0) / value, 1.0)
    ratios = np.maximum(_LEAST, 1 + weight / (1 + weight) * (observed - 1))
    return np.asarray(ratios * expected.sum() / (expected @ ratios))
