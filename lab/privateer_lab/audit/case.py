"""Cases of an audit: a claim on a whole, by samples of two neighbours, or one part of a mechanism, by its law."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.accounting.accountant import account
from privateer_core.accounting.events import Event, Gaussian, Pure
from privateer_core.mechanisms import Mechanism
from privateer_lab.audit.law import LaplaceLaw, Law, NormalLaw, noise_surprise, surprise
from privateer_lab.audit.lower_bounds import LowerBounds, Scores, attack

CHANNELS: Final = "channels"
"""Stands for a mechanism where what is attacked belongs to none."""
ANY: Final = "any"
"""Stands for a trust model, and for a calibration, where what is attacked is the same under all."""
Sampler = Callable[[int, int], Scores]
"""Scores of ``count`` independent observations of neighbour 0 or 1: (who, count)."""
Integers = NDArray[np.int64]
Observe = Callable[[int, int], Any]
"""Observations of neighbour 0 or 1: (who, count)."""
DELTA: Final = 1e-6
"""Delta at which the epsilon of normal noise is stated."""
_DIGITS: Final = 9
_CERTAIN: Final = 50.0
"""Score of an observation that one of the neighbours alone can cause."""


@dataclass(frozen=True)
class Case:
    """A claim, and how to attack it."""

    name: str  # name of the attack
    mechanism: str  # class of the mechanism, or name of the algorithm, by which attacks are chosen on the command line
    # trust model and calibration
    model: str
    calibration: str
    # the claim, of which ``event`` is the whole curve
    epsilon: float
    delta: float
    event: Event
    sample: Sampler  # larger scores speak for neighbour 0
    count: int  # observations of each neighbour
    # whether the accountant finds that the claim, a paper's, does not hold: experiments that make it run in simulation
    # alone, and an attack should break it
    unsafe: bool = False


@dataclass(frozen=True)
class MechanismPart:
    """A part of a mechanism, and how to attack it alone."""

    name: str  # what is drawn
    mechanism: str  # class of the mechanism
    # as of `privateer_lab.audit.case.Case`
    model: str
    calibration: str
    sampler: str  # what the mechanism calls to draw it
    # what this part by itself reveals about the two neighbours; None: nothing is claimed of it but its law
    event: Event | None
    delta: float  # where epsilon is stated
    observe: Observe  # makes observations through the mechanism
    score: Callable[[Any], Scores]  # scores observations; larger ones speak for neighbour 0
    surprise: Callable[[int, Any], float]  # P-value of observations of a neighbour: (who, observations)
    count: int  # observations of each neighbour

    @cached_property
    def epsilon(self) -> float | None:
        """The claim."""
        return None if self.event is None else account(self.event).epsilon(self.delta)

    def examine(self, alarm: float) -> "Examined":
        """Observe both neighbours; bound and law raise a false alarm with a chance of at most ``alarm`` each."""
        seen = [self.observe(who, self.count) for who in (0, 1)]
        law = min(1.0, 2 * min(self.surprise(who, one) for who, one in enumerate(seen)))
        if self.event is None or self.epsilon is None:
            return Examined(None, law, law >= alarm)
        left, right = map(self.score, seen)
        found = attack(left, right, self.event, self.epsilon, self.delta, alarm)
        return Examined(found, law, law >= alarm and found.stands(self.epsilon))


@dataclass(frozen=True)
class Examined:
    """The finding about a part of a mechanism."""

    evidence: LowerBounds | None  # bounds; None where nothing is claimed but a law
    law: float  # how likely such observations, or stranger ones, are by the law (a p-value)
    holds: bool  # whether claim and law stand


@dataclass(frozen=True)
class Outcomes:
    """Observations that are one of a few outcomes, whose chances are known under both neighbours, (2, outcomes)."""

    chances: Scores

    def score(self, seen: Integers) -> Scores:
        """Return the logarithm of how much likelier each is under neighbour 0."""
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.log(self.chances[0]) - np.log(self.chances[1])
        return np.asarray(np.round(np.clip(np.nan_to_num(ratio), -_CERTAIN, _CERTAIN), _DIGITS)[seen])

    def surprise(self, who: int, seen: Integers) -> float:
        """Return the p-value of the counts."""
        return surprise(np.bincount(seen, minlength=self.chances.shape[1]), self.chances[who])


@dataclass(frozen=True)
class Noise:
    """Observations of whole numbers (n, numbers) with independent noise; ``own`` are those of the part."""

    laws: tuple[Law, ...]
    own: tuple[int, ...]
    exact: Integers  # what the numbers would be without noise, (2, numbers)

    def score(self, seen: Integers) -> Scores:
        """Return the logarithm of how much likelier the own numbers are under neighbour 0."""
        left, right = (
            sum((self.laws[k].log(seen[:, k] - exact[k]) for k in self.own), np.zeros(len(seen)))
            for exact in self.exact
        )
        return np.asarray(np.round(np.clip(left - right, -_CERTAIN, _CERTAIN), _DIGITS))

    def surprise(self, who: int, seen: Integers) -> float:
        """Return the p-value of the noise, by number and by pair."""
        return noise_surprise(seen - self.exact[who], self.laws, self.own)

    @property
    def event(self) -> Event:
        """What normal or Laplace noise of the own numbers reveals: its curve is exact for these neighbours."""
        moved = np.abs(self.exact[0] - self.exact[1])
        normal = [moved[k] / law.deviation for k in self.own if isinstance(law := self.laws[k], NormalLaw)]
        if normal:
            return Gaussian(1.0, float(np.linalg.norm(normal)))
        return Pure(float(sum(moved[k] / law.scale for k in self.own if isinstance(law := self.laws[k], LaplaceLaw))))


def noise_part(
    name: str,
    mechanism: Mechanism,
    model: str,
    sampler: str,
    observe: Observe,
    noise: Noise,
    count: int,
    *,
    calibration: str = "tight",
    event: Event | None = None,
    delta: float | None = None,
) -> MechanismPart:
    """Return the part whose observations are numbers with noise; by default its event is that of the noise."""
    claim = event or noise.event
    at = delta if delta is not None else DELTA if isinstance(claim, Gaussian) else 0.0
    kind = type(mechanism).__name__
    return MechanismPart(
        name, kind, model, calibration, sampler, claim, at, observe, noise.score, noise.surprise, count
    )


def outcome_part(
    name: str,
    mechanism: Mechanism,
    model: str,
    sampler: str,
    observe: Observe,
    outcomes: Outcomes,
    count: int,
    event: Event | None,
) -> MechanismPart:
    """Return the part whose observations are outcomes, at a delta of 0."""
    kind = type(mechanism).__name__
    return MechanismPart(
        name, kind, model, "tight", sampler, event, 0.0, observe, outcomes.score, outcomes.surprise, count
    )
