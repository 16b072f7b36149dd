"""Masses of slabs, read from what was observed of their values."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_LEAST_VALUE: Final = 0.2
_LEAST_DEVIATIONS: Final = 2.0
"""Nothing is read where arms' levels are nearer to 0 than this, or than so many standard errors, as a norm."""
_USUAL: Final = 0.8
"""Standard deviation of a slab's mass from what is expected, relative to it, before anything is read."""
_LEAST: Final = 0.02
"""No mass falls below this share of what was expected: estimates may be negative."""


def mass_ratios(precision: Array, moment: Array, expected: Array, level: Array) -> Array:
    """Return by how much the masses of a feature's slabs differ from what is expected, shape (slabs,).

    The model: arm k has the value v_k in every slab. A sum over slab b is r_b m_b v_k if r_b m_b people are there in
    place of m_b, so that what passes for the value is y_bk = r_b v_k with the precision L_bk. So r_b is the slope of a
    regression over arms, sum L_bk v_k y_bk / sum L_bk v_k^2, whose precision is that last sum, shrunk to 1. A true
    difference that fits the model passes for mass; that scales the values of all arms alike, and changes no choice.

    Parameters
    ----------
    precision, moment
        Shape (slabs, arms): what was observed of values as if masses were as expected, L_bk and L_bk y_bk.
    expected
        Shape (slabs,): those masses, m_b.
    level
        Shape (arms,): arms' values over all people, v_k.

    Returns
    -------
    The ratios r_b, whose mean by expected masses is 1; all 1 where levels are too near to 0 to tell.
    """
    told = precision @ level**2
    known = float(precision.sum())
    if not known or told.sum() <= max(_LEAST_VALUE**2 * known, _LEAST_DEVIATIONS**2):
        return np.ones(len(told))
    # A prior variance s^2 and the error's 1 / told: the share s^2 / (s^2 + error) of what was found counts.
    moved = _USUAL**2 * (moment @ level - told) / (1 + _USUAL**2 * told)
    ratios = np.maximum(_LEAST, 1 + moved)
    return np.asarray(ratios * expected.sum() / (expected @ ratios))
