"""Which features matter: rounds that ask about one feature at a time, and what they said."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.partition import PartitionSpec
from privateer_core.answer.parts import FeatureSelection
from privateer_server.algorithms.partition.field import Evidence, observed
from privateer_server.algorithms.partition.slabs import Slabs
from privateer_server.algorithms.partition.smoothness import Smoothness, usual_lengths
from privateer_server.algorithms.partition.space import Space
from privateer_server.algorithms.partition.turns import wider

Array = NDArray[np.float64]

_FEW: Final = 5
"""Experiments of so many features or fewer screen none; so many are kept at most."""
_SHARE: Final = 0.1
_USUAL_PEOPLE: Final = 80_000
_GROWTH: Final = 0.363
"""A tenth of 80,000 people or fewer are asked; of more people a number that grows with this power: 2 % of a million."""
_MOST: Final = 0.25
"""Where one round about each feature takes a larger share of the people than this, there is none."""
_GAIN: Final = 0.0
"""A feature is kept if its variation makes what was said more likely by more than this, in natural logarithms."""
_CLEAR: Final = 3.0
"""Where no feature gains as much as this all are kept: what matters may do so only together with others."""
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

    def faded(self, left: float) -> "Screening":
        """Return it with such a share left of what was said of values."""
        return replace(self, precision=left * self.precision, moment=left * self.moment)

    def rearmed(self, added: int) -> "Screening":
        """Return it with so many more arms at the end, of which nothing is known."""
        return wider(self, added, ("precision", "moment"))

    def of_cohorts(self, rows: list[int]) -> "Screening":
        """Return it with the masses of those cohorts."""
        return replace(self, mass=self.mass[rows], mass_precision=self.mass_precision[rows])


def new_screening(spec: PartitionSpec, slabs: Sequence[Slabs]) -> Screening | None:
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


def people_asked(people: int) -> float:
    """Return how many of so many people are asked about one feature at a time, at the least."""
    return _SHARE * people * float(min(1.0, (_USUAL_PEOPLE / people) ** (1 - _GROWTH)))


def rows_of(slabs: Sequence[Slabs], feature: int) -> slice:
    """Return the places of a feature's slabs among those of all."""
    start = sum(map(len, slabs[:feature]))
    return slice(start, start + len(slabs[feature]))


def decided(screening: Screening, spec: PartitionSpec, slabs: Sequence[Slabs], spread: int, own: int) -> Screening:
    """Return the screening, at its end if enough people were asked: the features that gain most are kept.

    Parameters
    ----------
    spread
        Place of the spread in use.
    own
        The experiment's own people who have reported.
    """
    enough = people_asked(spec.experiment.horizon + sum(source.people for source in spec.sources))
    if screening.asked.min() == 0 or screening.asked.sum() < enough:
        return screening
    space = Space(spec.blocks)
    gains = np.array([_gain(screening, slabs, feature, space, spread) for feature in range(len(slabs))])
    kept = np.full(len(slabs), gains.max() < _CLEAR)
    best = np.argsort(-gains, kind="stable")[:_FEW]
    kept[best[gains[best] > _GAIN]] = True
    return replace(screening, open=False, gains=gains, kept=kept, ended=own)


def _gain(screening: Screening, slabs: Sequence[Slabs], feature: int, space: Space, spread: int) -> float:
    """How much more likely a feature's variation alone makes what was said, than if no feature mattered."""
    rows, (alone, columns) = rows_of(slabs, feature), space.only(slabs[feature].blocks)
    apart = np.zeros(len(screening.precision), np.bool_)
    apart[rows] = True
    varied = _evidence(screening, slabs, columns, apart)
    even = _evidence(screening, slabs, columns, np.zeros_like(apart))
    usual = Smoothness(usual_lengths(alone.parts), spread, alone)
    return varied.likelihood(varied.fitted(usual)) - even.likelihood(usual)


def said(screening: Screening, slabs: Sequence[Slabs], columns: NDArray[np.int64]) -> Evidence:
    """Return what was said of slabs, as evidence in the space of these columns, which are those of features kept."""
    return _evidence(screening, slabs, columns, np.repeat(screening.kept, [len(one) for one in slabs]))


def _evidence(
    screening: Screening, slabs: Sequence[Slabs], columns: NDArray[np.int64], apart: NDArray[np.bool_]
) -> Evidence:
    """Return what was said of slabs ``apart``, and of all others together: they are all of the space of the columns."""
    lower, upper = (np.concatenate([getattr(one, side) for one in slabs])[:, columns] for side in ("lower", "upper"))
    precision, moment = screening.precision, screening.moment
    own = observed(lower[apart], upper[apart], precision[apart], moment[apart])
    if apart.all():
        return own
    rest = (precision[~apart].sum(axis=0, keepdims=True), moment[~apart].sum(axis=0, keepdims=True))
    whole = observed(np.zeros((1, len(columns))), np.ones((1, len(columns))), *rest)
    return own.beside(whole)


def selected(screening: Screening, slabs: Sequence[Slabs]) -> FeatureSelection:
    """Return which features were found to matter, and what each of them gains."""
    asked = int(screening.asked.sum())
    if screening.open:
        return FeatureSelection(asked, len(slabs))
    kept = tuple(one.name for one, keeps in zip(slabs, screening.kept, strict=True) if keeps)
    gains = {one.name: round(float(gain), 2) for one, gain in zip(slabs, screening.gains, strict=True)}
    return FeatureSelection(asked, len(slabs), kept, gains)
