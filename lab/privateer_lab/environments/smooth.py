"""Random smooth mean rewards, to try what was never tuned on."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

_WAVES: Final = 128


@dataclass(frozen=True)
class Shape:
    """How hard a function is.

    Attributes
    ----------
    length
        Distance over which the mean rewards of an arm change, at one feature; times sqrt(d) at d, so that their
        slopes are alike in every dimension.
    shared
        Share of the variance that all arms have in common: what is shared helps nobody to choose.
    ridge
        Whether only one direction matters.
    """

    length: float
    shared: float = 0.0
    ridge: bool = False


SHAPES: Final = {
    "gentle": Shape(length=0.35),
    "rough": Shape(length=0.15),
    "ridge": Shape(length=0.2, ridge=True),
    "close": Shape(length=0.35, shared=0.9),
}
_STEEPNESS: Final = 1.5


class Smooth:
    """Logistic functions of Gaussian processes, drawn as sums of 128 random waves (Rahimi & Recht 2007).

    Parameters
    ----------
    function
        Number of the function.
    shape
        One of ``SHAPES``.
    arms, features
        Sizes; functions of other sizes have nothing in common.
    """

    def __init__(self, function: int, shape: str, arms: int, features: int) -> None:
        self.arms, self.features = arms, features
        drawn = SHAPES[shape]
        rng = np.random.default_rng([function, list(SHAPES).index(shape), arms, features])
        self._frequencies = _frequencies(drawn, features, rng)
        self._phases = rng.uniform(0.0, 2 * np.pi, _WAVES)
        common, own = rng.standard_normal((_WAVES, 1)), rng.standard_normal((_WAVES, arms))
        self._heights = np.sqrt(2 / _WAVES) * (np.sqrt(drawn.shared) * common + np.sqrt(1 - drawn.shared) * own)

    def means(self, contexts: NDArray[np.float64]) -> NDArray[np.float64]:
        """1/(1 + exp(-1.5 g_k(x))), g_k a process of mean 0 and variance 1, shape (n, K)."""
        waves = np.cos(contexts @ self._frequencies + self._phases)
        return np.asarray(expit(_STEEPNESS * (waves @ self._heights)), dtype=np.float64)


def _frequencies(shape: Shape, features: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Of the waves, shape (d, waves): normal, so that the covariance is exp(-||x - y||^2 / (2 length^2 d))."""
    if not shape.ridge:
        return np.asarray(rng.standard_normal((features, _WAVES)) / (shape.length * features**0.5))
    direction = rng.standard_normal((features, 1))
    direction /= np.linalg.norm(direction)
    return np.asarray(direction * rng.standard_normal(_WAVES) / shape.length)
