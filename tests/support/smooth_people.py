"""Smooth mean rewards of four difficulties, with which learners of bins are compared."""

from typing import Final, NamedTuple

import numpy as np
from scipy.special import expit
from typing_extensions import override

from privateer_core.arrays import Array
from privateer_lab.environments.environment import Environment

_N_WAVES: Final = 128
_STEEPNESS: Final = 1.5


class Shape(NamedTuple):
    """The difficulty of a function."""

    length: float  # length scale with one feature; times sqrt(d) with d features, for equal slopes
    shared: float = 0.0  # the share of the variance that all arms have in common, which is no help in choosing
    ridge: bool = False  # whether only one direction matters


SHAPES: Final = {
    "gentle": Shape(length=0.35),
    "rough": Shape(length=0.15),
    "ridge": Shape(length=0.2, ridge=True),
    "close": Shape(length=0.35, shared=0.9),
}


class SmoothPeople(Environment):
    """Uniform contexts, and logistic functions of Gaussian processes, drawn as sums of random waves."""

    def __init__(self, function: int, shape: str = "gentle", arms: int = 3, n_features: int = 2) -> None:
        rng = np.random.default_rng([function, list(SHAPES).index(shape), arms, n_features])
        length, shared, is_ridge = SHAPES[shape]
        if is_ridge:
            direction = rng.standard_normal((n_features, 1))
            direction /= np.linalg.norm(direction)
            self._frequencies = direction * rng.standard_normal(_N_WAVES) / length
        else:  # the covariance is exp(-||x - y||^2 / (2 length^2 d))
            self._frequencies = rng.standard_normal((n_features, _N_WAVES)) / (length * n_features**0.5)
        self._phases = rng.uniform(0.0, 2 * np.pi, _N_WAVES)
        common, single = rng.standard_normal((_N_WAVES, 1)), rng.standard_normal((_N_WAVES, arms))
        self._heights = np.sqrt(2 / _N_WAVES) * (np.sqrt(shared) * common + np.sqrt(1 - shared) * single)

    @override
    def contexts(self, _n_previous: int, n_participants: int, rng: np.random.Generator) -> Array:
        return rng.random((n_participants, len(self._frequencies)))

    @override
    def means(self, contexts: Array) -> Array:
        waves = np.cos(contexts @ self._frequencies + self._phases)
        return np.asarray(expit(_STEEPNESS * (waves @ self._heights)))
