"""Mean rewards by a formula, of contexts in the unit cube."""

from functools import lru_cache
from typing import ClassVar, Final, Literal, NamedTuple

import numpy as np
from scipy.special import expit

from privateer_lab.environments.environment import Array
from privateer_lab.environments.synthetic.density import Seed
from privateer_lab.environments.synthetic.synthetic import SyntheticSection


class PeaksSection(SyntheticSection):
    """On the unit square, arm k of K peaks at x1 = k/(K+1), k = 1..K (paper 1, Section 4.1).

    The paper's text has k/K, and its authors' code k/(K+1), with which the published figures were made.
    """

    sizes: ClassVar = (0, 2)
    name: Literal["peaks"] = "peaks"

    def means(self, contexts: Array, arms: int) -> Array:
        """Return 2e/(1+e) with e = exp(-2 K^2 (x1 - k/(K+1))^2), shape (n, K)."""
        centres = np.arange(1, arms + 1) / (arms + 1)
        bell = np.exp(-2.0 * arms**2 * (contexts[:, :1] - centres) ** 2)
        return np.asarray(2 * bell / (1 + bell))


class QuadrantsSection(SyntheticSection):
    """On the unit square, two arms change places from quadrant to quadrant (paper 1, supplement).

    If contexts are uniform, neither arm is better on the whole.
    """

    sizes: ClassVar = (2, 2)
    name: Literal["quadrants"] = "quadrants"

    def means(self, contexts: Array, _arms: int) -> Array:
        """Return 1/2 -+ sign((x1-1/2)(x2-1/2)) (1 - 4 max_j |((2 xj) mod 1)/2 - 1/4|)/2, shape (n, 2)."""
        side = np.sign((contexts[:, 0] - 0.5) * (contexts[:, 1] - 0.5))
        tent = 1 - 4 * np.abs(((2 * contexts) % 1) / 2 - 0.25).max(axis=1)
        return np.stack([0.5 - 0.5 * side * tent, 0.5 + 0.5 * side * tent], axis=1)


class Shape(NamedTuple):
    """How hard a smooth function is to learn."""

    length: float
    """Distance over which the mean rewards of an arm change, at one feature; times sqrt(d) at d, for alike slopes."""
    shared: float = 0.0
    """The share of the variance that all arms have in common, which helps nobody to choose."""
    ridge: bool = False
    """Whether only one direction matters."""


SHAPES: Final = {
    "gentle": Shape(length=0.35),
    "rough": Shape(length=0.15),
    "ridge": Shape(length=0.2, ridge=True),
    "close": Shape(length=0.35, shared=0.9),
}
_WAVES: Final = 128
_STEEPNESS: Final = 1.5


class SmoothSection(SyntheticSection):
    """Logistic functions of Gaussian processes, drawn as sums of 128 random waves (Rahimi & Recht 2007).

    Attributes
    ----------
    function
        The number of the function: the same number gives the same function, whatever the run's seed. Functions of other
        numbers of arms or features have nothing in common.
    shape
        ``gentle``, ``rough``, ``ridge`` (one direction matters) or ``close`` (arms differ little).
    """

    name: Literal["smooth"] = "smooth"
    function: Seed
    shape: Literal["gentle", "rough", "ridge", "close"] = "gentle"

    def means(self, contexts: Array, arms: int) -> Array:
        """Return 1/(1 + exp(-1.5 g_k(x))), where g_k is a process of mean 0 and variance 1; shape (n, K)."""
        frequencies, phases, heights = _waves(self.function, self.shape, arms, contexts.shape[1])
        waves = np.cos(contexts @ frequencies + phases)
        return np.asarray(expit(_STEEPNESS * (waves @ heights)), dtype=np.float64)


@lru_cache
def _waves(function: int, name: str, arms: int, features: int) -> tuple[Array, Array, Array]:
    """Draw frequencies (d, waves), phases (waves,) and heights (waves, arms)."""
    shape = SHAPES[name]
    rng = np.random.default_rng([function, list(SHAPES).index(name), arms, features])
    frequencies = _frequencies(shape, features, rng)
    phases = rng.uniform(0.0, 2 * np.pi, _WAVES)
    common, own = rng.standard_normal((_WAVES, 1)), rng.standard_normal((_WAVES, arms))
    return frequencies, phases, np.sqrt(2 / _WAVES) * (np.sqrt(shape.shared) * common + np.sqrt(1 - shape.shared) * own)


def _frequencies(shape: Shape, features: int, rng: np.random.Generator) -> Array:
    """Draw normal frequencies, (d, waves), for the covariance exp(-||x - y||^2 / (2 length^2 d))."""
    if not shape.ridge:
        return np.asarray(rng.standard_normal((features, _WAVES)) / (shape.length * features**0.5))
    direction = rng.standard_normal((features, 1))
    direction /= np.linalg.norm(direction)
    return np.asarray(direction * rng.standard_normal(_WAVES) / shape.length)
