"""Cases of an audit: claims tested by samples of two neighbours, and parts of mechanisms tested by their law."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Final, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from privateer_core.accounting.accountant import account
from privateer_core.accounting.events import Event, Gaussian, Pure
from privateer_core.mechanisms import Mechanism
from privateer_core.privacy.terms import Terms
from privateer_lab.audit.law import (
    LaplaceLaw,
    Law,
    LowerBounds,
    NormalLaw,
    Scores,
    bound_losses,
    counts_p_value,
    noise_p_value,
)

CHANNELS: Final = "channels"
"""The mechanism of attacks that belong to no mechanism."""
ANY: Final = "any"
"""The trust model and the calibration of attacks that are the same under all of them."""
Sampler = Callable[[int, int], Scores]
"""Scores of ``count`` independent observations of neighbour 0 or 1: (neighbour, count)."""
Integers = NDArray[np.int64]
Observe = Callable[[int, int], Any]
"""Observations of neighbour 0 or 1: (neighbour, count)."""
DELTA: Final = 1e-6
"""Delta at which the epsilon of normal noise is stated."""
_SCORE_DECIMALS: Final = 9
_MAX_SCORE: Final = 50.0
"""Largest absolute score: that of an observation which only one neighbour can cause."""


@dataclass(frozen=True)
class Case:
    """A privacy claim, and the attack on it."""

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
    # whether the claim is a paper's that the accountant refutes: such experiments run in simulation alone, and
    # an attack should break it
    unsafe: bool = False

    @classmethod
    def from_terms(cls, name: str, terms: Terms, sample: Sampler, count: int) -> "Case":
        """Build the attack on the claim of a round's terms."""
        assert terms.event is not None
        kind, claim = type(terms.mechanism).__name__, (terms.epsilon, terms.delta, terms.event)
        return cls(name, kind, terms.model, terms.calibration, *claim, sample, count)


@dataclass(frozen=True)
class MechanismPart:
    """A part of a mechanism, and the attack on that part alone."""

    name: str  # the random quantity
    mechanism: str  # class of the mechanism, or name of the algorithm
    # as of `privateer_lab.audit.case.Case`
    model: str
    calibration: str
    sampler: str  # the function that draws the quantity
    # the privacy loss of this part alone for the two neighbours; None: only the law of the part is claimed
    event: Event | None
    delta: float  # where epsilon is stated
    observe: Observe  # makes observations through the mechanism
    score: Callable[[Any], Scores]  # scores observations; larger ones speak for neighbour 0
    p_value: Callable[[int, Any], float]  # P-value of observations of a neighbour: (neighbour, observations)
    count: int  # observations of each neighbour

    @cached_property
    def epsilon(self) -> float | None:
        """The claimed epsilon at ``delta``; None if only the law is claimed."""
        return None if self.event is None else account(self.event).epsilon(self.delta)

    def examine(self, false_alarm_rate: float) -> "PartResult":
        """Attack the part; bound and law have a false-alarm probability of at most ``false_alarm_rate`` each."""
        observations = [self.observe(neighbour, self.count) for neighbour in (0, 1)]
        p_value = min(1.0, 2 * min(self.p_value(neighbour, sample) for neighbour, sample in enumerate(observations)))
        if self.event is None or self.epsilon is None:
            return PartResult(None, p_value, p_value >= false_alarm_rate)
        left, right = map(self.score, observations)
        bounds = bound_losses(left, right, self.event, self.epsilon, self.delta, false_alarm_rate)
        return PartResult(bounds, p_value, p_value >= false_alarm_rate and bounds.is_consistent_with(self.epsilon))


@dataclass(frozen=True)
class PartResult:
    """The result of attacking a part of a mechanism."""

    bounds: LowerBounds | None  # lower bounds; None if only the law is claimed
    p_value: float  # p-value of the observations under the claimed law
    is_satisfied: bool  # whether neither claim nor law is rejected


@dataclass(frozen=True)
class Outcomes:
    """Categorical observations with known probabilities under both neighbours, (2, outcomes)."""

    probabilities: Scores
    event: Event | None = None  # privacy event of an outcome; None: only the probabilities are claimed

    def score(self, outcomes: Integers) -> Scores:
        """Return the log-likelihood ratio of each outcome, neighbour 0 to neighbour 1."""
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.log(self.probabilities[0]) - np.log(self.probabilities[1])
        return np.asarray(np.round(np.clip(np.nan_to_num(ratio), -_MAX_SCORE, _MAX_SCORE), _SCORE_DECIMALS)[outcomes])

    def p_value(self, neighbour: int, draws: Integers) -> float:
        """Return the p-value of the outcome counts of a neighbour."""
        return counts_p_value(np.bincount(draws, minlength=self.probabilities.shape[1]), self.probabilities[neighbour])


@dataclass(frozen=True)
class Noise:
    """Observations of whole numbers (n, numbers) with independent noise; the part has the columns ``tested``."""

    laws: tuple[Law, ...]
    tested: tuple[int, ...]
    exact: Integers  # the numbers of each neighbour without noise, (2, numbers)

    def score(self, observed: Integers) -> Scores:
        """Return the log-likelihood ratio of the tested numbers, neighbour 0 to neighbour 1."""
        left, right = (
            sum((self.laws[k].log_density(observed[:, k] - exact[k]) for k in self.tested), np.zeros(len(observed)))
            for exact in self.exact
        )
        return np.asarray(np.round(np.clip(left - right, -_MAX_SCORE, _MAX_SCORE), _SCORE_DECIMALS))

    def p_value(self, neighbour: int, observed: Integers) -> float:
        """Return the p-value of the noise of single numbers and of pairs."""
        return noise_p_value(observed - self.exact[neighbour], self.laws, self.tested)

    @property
    def event(self) -> Event | None:
        """The privacy event of the tested numbers' normal or Laplace noise; None if both neighbours have the same."""
        sensitivities = np.abs(self.exact[0] - self.exact[1])
        if not sensitivities.any():
            return None
        tested = [(sensitivities[k], self.laws[k]) for k in self.tested]
        ratios = [distance / law.standard_deviation for distance, law in tested if isinstance(law, NormalLaw)]
        if ratios:
            return Gaussian(1.0, float(np.linalg.norm(ratios)))
        return Pure(float(sum(distance / law.scale for distance, law in tested if isinstance(law, LaplaceLaw))))


def build_part(
    name: str,
    mechanism: Mechanism,
    model: str,
    sampler: str,
    observe: Observe,
    law: Noise | Outcomes,
    count: int,
    *,
    calibration: str = "tight",
    event: Event | None = None,
    delta: float | None = None,
) -> MechanismPart:
    """Build the part whose observations have this law; its default event is that of the law."""
    kind, claim = type(mechanism).__name__, event or law.event
    at_delta = delta if delta is not None else DELTA if isinstance(claim, Gaussian) else 0.0
    claims = (model, calibration, sampler, claim, at_delta)
    return MechanismPart(name, kind, *claims, observe, law.score, law.p_value, count)


FORMAT: Final = "privateer/audit/1"


class AuditFinding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The finding of one attack."""

    attack: str
    mechanism: str  # class of the mechanism, or name of the algorithm; `CHANNELS` for a channel
    model: str
    calibration: str
    epsilon: float | None
    delta: float | None
    # lower bound of epsilon at delta; None if only a law is claimed, and for a channel
    lower_bound: float | None
    confidence: float | None  # of all lower bounds and laws of a run together; None for a channel
    samples: int
    verdict: Literal["holds", "broken"]
    unsafe: bool = False  # whether the claim is a paper's that the accountant does not confirm
    # of a part: p-value of its observations under the law that it must have
    law: float | None = None

    @property
    def holds(self) -> bool:
        """Whether no attack broke the claim."""
        return self.verdict == "holds"


class Audit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An audit as `privateer audit --json` writes it."""

    format: str
    # privateer, at: the audited version, and the time in UTC
    privateer: str
    at: datetime
    holds: bool
    broken: tuple[str, ...]
    unsafe: tuple[str, ...]
    attacks: int
    false_alarm: float  # probability that any true claim is reported as broken
    findings: tuple[AuditFinding, ...]
