"""How precise a trial will be whose shares of arms stay as planned, and with how many people."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.primitives.contributions import BITS
from privateer_server.algorithms.trial.evidence.epochs import (
    PlannedEpoch,
    Spread,
    TrialDesign,
    hits_per_person,
    weighed_variance,
)
from privateer_server.algorithms.trial.group_sequential import POWER, drift_of, information

Array = NDArray[np.float64]

_DUST: Final = 1e-3
"""People that rounding adds."""
_AGAIN: Final = 6


def deviations(design: TrialDesign, epochs: Sequence[PlannedEpoch], rate: float | Array) -> Array:
    """Return standard deviations (J, K) of effects after all epochs at planned shares; ``rate`` may be (J, K), too."""
    return np.asarray(np.sqrt(sum(_variances(design, epochs, rate))))


def looks_of(design: TrialDesign, epochs: Sequence[PlannedEpoch]) -> tuple[float, ...]:
    """Return information fractions of the epochs."""
    return information(np.cumsum([epoch.people for epoch in epochs]), design.people)


def people_needed(
    design: TrialDesign, epochs: Sequence[PlannedEpoch], rate: float | Array, effect: float, power: float = POWER
) -> Array:
    """Return people (J, K) with whom this effect is found, if all epochs grow alike and randomize as they do.

    Sampling falls with people and a curator's noise with their square: n solves sd^2 = s/n + l/n^2. As epochs grow
    noise decides less of their weights, so this is solved again with the people found.
    """
    n = sum(epoch.people for epoch in epochs)
    wanted = (effect / drift_of(looks_of(design, epochs), design.alpha, power)) ** 2
    times: Array = np.ones(1)
    for _ in range(_AGAIN):
        sampling, noise = _variances(design, epochs, rate, times)
        s, square = sampling * n * times, np.maximum(noise, 0.0) * np.square(n * times)
        times = (s + np.sqrt(np.square(s) + 4 * wanted * square)) / (2 * wanted * n)
    return np.asarray(np.ceil(n * times - _DUST))


def _variances(
    design: TrialDesign, epochs: Sequence[PlannedEpoch], rate: float | Array, times: float | Array = 1.0
) -> tuple[Array, Array]:
    """Return what sampling and noise add to the variance of effects, (J, K) each, with so many ``times`` the people.

    With n the sum of u n_e over epochs of weights u, n' = n^2/(sum of u^2 n_e), v hits per person, and
    th = 1/2 + q p (2 f - 1)/(2 v) the share of them that is positive, of epochs of noise L:
    (v/(q p))^2 th (1 - th) (1/(n' v pi_a) + 1/(n' v pi_0)) and
    sum u^2 L ((1 - f)^2 + f^2) (1/(n q p pi_a)^2 + 1/(n q p pi_0)^2).
    Of numbers, th (1 - th) is the variance of what a hit counts, and (1 - f)^2 + f^2 that of noise about f.
    """
    f, p = np.asarray(rate), design.segments[:, None]
    u = [_weight(design, epoch, f, times) for epoch in epochs]
    people = [weight * epoch.people * times for weight, epoch in zip(u, epochs, strict=True)]
    n, squared = sum(people), sum(weight * some for weight, some in zip(u, people, strict=True))
    q = sum(some * epoch.keep for some, epoch in zip(people, epochs, strict=True)) / n
    o = sum(some * epoch.other for some, epoch in zip(people, epochs, strict=True)) / n
    v = q * p + 2 * o if design.counted else np.full_like(q * p, design.hit)
    both = np.stack([design.arms[1:], np.full(len(design.arms) - 1, design.arms[0])], axis=-1)
    mean = np.asarray(0.5 + q * p * (2 * f - 1) / (2 * v))
    varies = mean * (1 - mean)
    if values := [(weight, epoch, epoch.values) for weight, epoch in zip(u, epochs, strict=True) if epoch.values]:
        hits = (n * v)[..., None] * both
        measured = [told.measured(np.square(weight) * epoch.noise, hits, f) for weight, epoch, told in values]
        varies = np.sqrt(np.square(measured).sum(axis=0))
        spread = sum(
            np.square(weight) * epoch.people * times * told.hit_variance(q * p, v, f) for weight, epoch, told in values
        )
        varies = varies + spread / squared
    sampling = np.square(v / (q * p)) * varies / v * squared / np.square(n) * (1 / both).sum(axis=-1)
    noise = sum(np.square(weight) * epoch.noise * _noise(epoch, f) for weight, epoch in zip(u, epochs, strict=True))
    return sampling, np.asarray(noise * np.square(1 / both).sum(axis=-1) / np.square(n * q * p))


def _weight(design: TrialDesign, epoch: PlannedEpoch, f: Array, times: float | Array) -> Array:
    """Return the weight of an epoch at planned shares, up to a constant: its people over its variance, under a root."""
    people = epoch.people * times
    v = hits_per_person(design, epoch.keep, epoch.other)
    own = epoch.keep * design.segments[:, None]
    mean = 0.5 + own * (2 * f - 1) / (2 * v)
    hit = epoch.values.hit_variance(own, v, f) if epoch.values else mean * (1 - mean)
    variance = weighed_variance(people * v, epoch.noise, design.arms[None], Spread(hit, _noise(epoch, f)))
    return np.asarray(np.sqrt(people * v / variance))


def _noise(epoch: PlannedEpoch, f: Array) -> Array:
    """Return the variance of noise in the sum of what hits count above f, where each part of a value has 1."""
    return np.asarray((epoch.values.parts if epoch.values else BITS).noise_about(f))
