"""What a trial can find, before anybody is asked: standard deviations at the end of plan, and people needed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_server.algorithms.trial.design import Design
from privateer_server.algorithms.trial.power import POWER, drift_of

Array = NDArray[np.float64]
_DUST: Final = 1e-3
"""People that rounding adds."""


@dataclass(frozen=True)
class Planned:
    """An epoch to come, named as in `evidence.Epoch`."""

    people: float
    keep: float = 1.0
    other: float = 0.0
    noise: float = 0.0


def deviations(design: Design, epochs: Sequence[Planned], rate: float | Array) -> Array:
    """Standard deviations (J, K) of effects after all epochs, at the planned shares; a mean reward, or (J, K) of them.

    With v hits per person, th = 1/2 + q p (2 f - 1)/(2 v) the share of them that is positive, E epochs of noise L:
    (v/(q p))^2 th (1 - th) (1/(n v pi_a) + 1/(n v pi_0)) + E L ((1 - f)^2 + f^2) (1/(n q p pi_a)^2 + 1/(n q p pi_0)^2).
    """
    n = sum(epoch.people for epoch in epochs)
    q = sum(epoch.people * epoch.keep for epoch in epochs) / n
    o = sum(epoch.people * epoch.other for epoch in epochs) / n
    p = design.segments[:, None]
    v = q * p + 2 * o if design.counted else np.full_like(p, design.hit)
    positive = 0.5 + q * p * (2 * rate - 1) / (2 * v)
    inverse = np.stack([1 / design.arms[1:], np.full(len(design.arms) - 1, 1 / design.arms[0])])
    sampling = np.square(v / (q * p)) * positive * (1 - positive) / (n * v) * inverse.sum(axis=0)
    noise = sum(epoch.noise for epoch in epochs) * ((1 - rate) ** 2 + rate**2)
    return np.asarray(np.sqrt(sampling + noise * np.square(inverse).sum(axis=0) / np.square(n * q * p)))


def detectable(design: Design, epochs: Sequence[Planned], rate: float, power: float = POWER) -> Array:
    """Smallest effects (J, K) that the trial finds with this probability at some look."""
    return drift_of(looks_of(design, epochs), design.alpha, power) * deviations(design, epochs, rate)


def looks_of(design: Design, epochs: Sequence[Planned]) -> tuple[float, ...]:
    """Information fractions of the epochs."""
    return tuple(np.minimum(1.0, np.cumsum([epoch.people for epoch in epochs]) / design.people).tolist())


def people_needed(
    design: Design, epochs: Sequence[Planned], rate: float | Array, effect: float, power: float = POWER
) -> Array:
    """People (J, K) with whom this effect is found, if all epochs grow alike and randomize as they do.

    Sampling falls with people and a curator's noise with their square: n solves sd^2 = s/n + l/n^2.
    """
    n = sum(epoch.people for epoch in epochs)
    quiet = [Planned(epoch.people, epoch.keep, epoch.other) for epoch in epochs]
    sampling = np.square(deviations(design, quiet, rate))
    noise = np.square(deviations(design, epochs, rate)) - sampling
    wanted = (effect / drift_of(looks_of(design, epochs), design.alpha, power)) ** 2
    s, square = sampling * n, np.maximum(noise, 0.0) * n**2
    return np.asarray(np.ceil((s + np.sqrt(np.square(s) + 4 * wanted * square)) / (2 * wanted) - _DUST))
