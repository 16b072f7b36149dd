"""Which features matter: rounds that ask about one feature at a time, and what they said."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privateer.algorithms.partition import PartitionSpec
from privateer_server.algorithms.partition.field import Evidence, observed
from privateer_server.algorithms.partition.slabs import Slabs
from privateer_server.algorithms.partition.smoothness import Smoothness, usual_lengths
from privateer_server.algorithms.partition.space import Space
from privateer_server.algorithms.partition.turns import wider

Array = NDArray[np.float64]

_FEW: Final = 5
"""With so many features or fewer nobody is asked about one at a time; so many are kept at most."""
import os
_SHARE: Final = float(os.environ.get("SHARE", 0.1))
_USUAL_PEOPLE: Final = 80_000
_GROWTH: Final = 0.363
"""A tenth of 80,000 people or fewer are asked; of more people a number that grows with this power: 2 % of a million."""
_MOST: Final = 0.25
"""Where one round about each feature takes a larger share of the people than this, there is none."""
import os
CLEAR=float(os.environ.get("CLEAR", 3))
LONGER=float(os.environ.get("LONGER", 3))
_GAIN: Final = float(os.environ.get("GAIN", 1.0))
"""A feature is kept if its variation makes what was said more likely by this much, in natural logarithms."""
_NOBODY: Final = 1e-18
_EVEN: Final = 0.3
"""Standard deviation of a slab's share of people from what is expected, relative to it, before people are counted."""


@dataclass(frozen=True)
class Screening:
    """What rounds about one feature at a time said of its slabs; those of all features are in one order.

    Attributes
    ----------
    precision, moment
        Shape (slabs, arms): what reports say of values, as in a learner's state.
    mass, mass_precision
        Shape (cohorts, slabs): share of a cohort's people in the slab, and the precision of that.
    asked
        Shape (features,): people who were asked about each feature.
    open
        Whether more people are asked.
    gains
        Shape (features,): how much more likely the feature's variation makes what was said, a logarithm.
    kept
        Shape (features,): features that matter, as far as is known; all while it is open.
    ended
        The experiment's own people who had reported at the end.
    """

    precision: NDArray[np.float64]
    moment: NDArray[np.float64]
    mass: NDArray[np.float64]
    mass_precision: NDArray[np.float64]
    asked: NDArray[np.int64]
    open: bool
    gains: NDArray[np.float64]
    kept: NDArray[np.bool_]
    ended: int

    @property
    def turn(self) -> int:
        """The feature that the next round asks about."""
        return int(np.argmin(self.asked))

    def rearmed(self, added: int) -> "Screening":
        """Return it with so many more arms at the end, of which nothing is known."""
        return replace(self, precision=wider(self.precision, added, 0.0), moment=wider(self.moment, added, 0.0))

    def of_cohorts(self, rows: list[int]) -> "Screening":
        """Return it with the masses of those cohorts."""
        return replace(self, mass=self.mass[rows], mass_precision=self.mass_precision[rows])


def begun(spec: PartitionSpec, slabs: Sequence[Slabs]) -> Screening | None:
    """Return a screening of which nobody was asked yet; None where features are few, or people."""
    if len(slabs) <= _FEW or len(slabs) * spec.first_batch("") > _MOST * spec.experiment.horizon:
        return None
    expected = np.maximum(np.concatenate([one.expected for one in slabs]), _NOBODY)
    mass = np.tile(expected, (len(spec.cohorts), 1))
    nothing = np.zeros((len(expected), spec.arm_count))
    return Screening(
        precision=nothing,
        moment=nothing,
        mass=mass,
        mass_precision=(_EVEN * mass) ** -2,
        asked=np.zeros(len(slabs), np.int64),
        open=True,
        gains=np.zeros(len(slabs)),
        kept=np.ones(len(slabs), np.bool_),
        ended=0,
    )


def enough(spec: PartitionSpec, screening: Screening) -> bool:
    """Whether as many people were asked as are to be, about every feature."""
    people = spec.experiment.horizon + sum(source.people for source in spec.sources)
    share = _SHARE * min(1.0, (_USUAL_PEOPLE / people) ** (1 - _GROWTH))
    return bool(screening.asked.min() > 0 and screening.asked.sum() >= share * people)


def rows_of(slabs: Sequence[Slabs], feature: int) -> slice:
    """Return the places of a feature's slabs among those of all."""
    start = sum(map(len, slabs[:feature]))
    return slice(start, start + len(slabs[feature]))


def decided(spec, screening: Screening, slabs: Sequence[Slabs], space: Space, spread: int, own: int) -> Screening:
    """Return the screening at its end: the features that gain most are kept, at least one."""
    gains = np.array([_gain(screening, slabs, feature, space, spread) for feature in range(len(slabs))])
    people = spec.experiment.horizon + sum(source.people for source in spec.sources)
    share = _SHARE * min(1.0, (_USUAL_PEOPLE / people) ** (1 - _GROWTH))
    if gains.max() < CLEAR and screening.asked.sum() < LONGER * share * people:
        return screening
    best = np.argsort(-gains, kind="stable")[:_FEW]
    kept = np.zeros(len(slabs), np.bool_)
    kept[best[gains[best] > _GAIN]] = True
    kept[best[0]] = True
    return replace(screening, open=False, gains=gains, kept=kept, ended=own)


def _gain(screening: Screening, slabs: Sequence[Slabs], feature: int, space: Space, spread: int) -> float:
    """How much more likely a feature's variation alone makes what was said, than if no feature mattered."""
    one = slabs[feature]
    rows, (space, columns) = rows_of(slabs, feature), space.only(one.blocks)
    own = observed(one.lower[:, columns], one.upper[:, columns], screening.precision[rows], screening.moment[rows])
    others = np.delete(np.arange(len(screening.precision)), rows)
    whole = np.zeros((1, own.lower.shape[1])), np.ones((1, own.lower.shape[1]))
    rest = _merged(*whole, screening.precision[others], screening.moment[others])
    all_ = _merged(*whole, screening.precision, screening.moment)
    usual = Smoothness(usual_lengths(space.parts), spread, space)
    evidence = own.beside(rest)
    return evidence.likelihood(evidence.fitted(usual)) - all_.likelihood(usual)


def _merged(lower: Array, upper: Array, precision: Array, moment: Array) -> Evidence:
    """Return observations of one box together."""
    return observed(lower, upper, precision.sum(axis=0, keepdims=True), moment.sum(axis=0, keepdims=True))


def said(screening: Screening, slabs: Sequence[Slabs], columns: NDArray[np.int64], left: float) -> Evidence:
    """Return what was said of slabs, as evidence in the space of the columns that are kept.

    Slabs of features that do not matter are all of that space.

    Parameters
    ----------
    left
        Share of what was said that still counts.
    """
    lower = np.concatenate([one.lower for one in slabs])[:, columns]
    upper = np.concatenate([one.upper for one in slabs])[:, columns]
    precision, moment = left * screening.precision, left * screening.moment
    apart = np.repeat(screening.kept, [len(one) for one in slabs])
    own = observed(lower[apart], upper[apart], precision[apart], moment[apart])
    if apart.all():
        return own
    whole = np.zeros((1, lower.shape[1])), np.ones((1, lower.shape[1]))
    return own.beside(_merged(*whole, precision[~apart], moment[~apart]))


def describe(screening: Screening, slabs: Sequence[Slabs]) -> dict[str, Any]:
    """Say which features were found to matter, and how clearly."""
    kept = [one.name for one, keeps in zip(slabs, screening.kept, strict=True) if keeps]
    gains = {one.name: round(float(gain), 2) for one, gain in zip(slabs, screening.gains, strict=True)}
    asked = int(screening.asked.sum())
    if screening.open:
        return {"words": f"{asked:,} people were asked about one feature at a time so far", "kept": None, "gains": None}
    words = f"of {len(slabs)} features {', '.join(kept)} matter, as far as {asked:,} people said"
    return {"words": words, "kept": kept, "gains": gains}
