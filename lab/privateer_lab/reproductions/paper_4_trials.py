"""Releases of many trials at once, drawn from the exact laws of mechanisms: repetitions are more segments."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_server.algorithms.trial.design import Design
from privateer_server.algorithms.trial.evidence import Epoch, Evidence, Sums, begin

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Setting:
    """How people answer: q, o, the decay of a curator's noise, and whether hits are counted (`Design.counted`)."""

    keep: float = 1.0
    other: float = 0.0
    decay: float = 0.0
    counted: bool = True

    @property
    def noise(self) -> float:
        """Variance of the discrete Laplace noise on positive hits, and on negative ones."""
        return 2 * self.decay / (1 - self.decay) ** 2


def named(epsilon: float, segments: int) -> Setting:
    """Return randomized response over segments and bits, of this local epsilon."""
    total = np.exp(epsilon) + 2 * segments - 1
    return Setting(float(np.expm1(epsilon) / total), float(1 / total))


def one_bit(epsilon: float) -> Setting:
    """Return reports of one bit about all segments, under public signs."""
    return Setting(float(np.tanh(epsilon / 2)), counted=False)


def central(epsilon: float) -> Setting:
    """Return a curator's pairs."""
    return Setting(decay=float(np.exp(-epsilon / 2)))


SETTINGS: Final = {
    "none": Setting(),
    "central 1": central(1.0),
    "shuffle 1": named(5.5, 4),
    "local 2": named(2.0, 4),
    "local 1": one_bit(1.0),
}
"""Those that intervals are tested in, for four segments; a shuffled batch of 10,000 allows a local epsilon of 5.5."""


@dataclass(frozen=True)
class Trials:
    """Many trials alike. ``means`` (J, K + 1) are what people of a segment earn from an arm."""

    setting: Setting
    segments: Array
    means: Array
    people: float
    count: int
    alpha: float = 0.05
    arms: tuple[float, ...] = (0.5, 0.5)

    def begin(self) -> Evidence:
        """Return evidence of nothing."""
        return begin(self.design)

    @property
    def design(self) -> Design:
        """What is planned, of all trials."""
        return Design(
            self.alpha, self.people, np.array(self.arms), np.tile(self.segments, self.count), self.setting.counted
        )

    def epoch(
        self,
        rng: np.random.Generator,
        people: float,
        shares: Array,
        drift: float = 0.0,
        setting: Setting | None = None,
    ) -> Epoch:
        """Draw what an epoch releases under shares (count * J, K + 1); every mean is higher by ``drift``."""
        told, p = setting or self.setting, np.tile(self.segments, self.count)[:, None]
        means = np.tile(self.means + drift, (self.count, 1))
        if told.counted:
            hit, right = shares * (told.keep * p + 2 * told.other), shares * (told.keep * p * means + told.other)
            cells = np.stack([right, hit - right], axis=-1).reshape(self.count, -1)
            rest = np.maximum(0.0, 1 - cells.sum(axis=1, keepdims=True))
            drawn = rng.multinomial(int(people), np.concatenate([cells, rest], axis=1))[:, :-1]
            pair = drawn.reshape(*shares.shape, 2).astype(np.float64)
        else:
            hits = rng.multinomial(int(people), shares)
            yes = rng.binomial(hits, 0.5 + told.keep * p * (2 * means - 1) / 2)
            pair = np.stack([yes, hits - yes], axis=-1).astype(np.float64)
        if told.decay:
            one, other = rng.geometric(1 - told.decay, (2, *pair.shape))
            pair = pair + one - other
        return Epoch(people, pair[..., 0], pair.sum(axis=-1), told.keep, told.other, told.noise, shares)


def by_trial(sums: Sums, count: int) -> Sums:
    """The same sums with trials as treatments: what is summed over segments is summed within each trial."""

    def moved(values: Array) -> Array:
        split = values.reshape(count, -1, *values.shape[1:])
        return np.moveaxis(split, 0, 1).reshape(split.shape[1], -1, *values.shape[2:])

    return Sums(*(moved(getattr(sums, name)) for name in Sums.__dataclass_fields__))
