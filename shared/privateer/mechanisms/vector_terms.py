"""The terms of a round of vectors: how a report is randomized, what that promises, and how far a release may be off."""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, Literal, TypeAlias

from privateer.accounting.accountant import account
from privateer.accounting.events import Event, Gaussian, Pure, ShuffledBits
from privateer.errors import SpecError
from privateer.experiment import Model
from privateer.mechanisms.vector_bits import BinomialPlan, BitVectors, fine_plan, plan
from privateer.mechanisms.vector_choice import local_vectors
from privateer.mechanisms.vector_gaussian import CentralVectors, GaussianVectors, vector_standard_deviation
from privateer.mechanisms.vector_symbol import VectorSymbol
from privateer.phased import VectorPrivacy
from privateer.sampling.normal import sampling_cost
from privateer.vectors import GRID, Ball

VectorPrivatizer: TypeAlias = GaussianVectors | CentralVectors | VectorSymbol | BitVectors
_OTHER_DIGITS: Final = 1 + 1e-6


@dataclass(frozen=True)
class VectorTerms:
    """Everything a device needs to randomize a vector and to check what it costs.

    Attributes
    ----------
    model, epsilon, delta
        The promise to a person under the trust model.
    calibration
        ``tight`` or ``published``.
    batch, honest
        People of the round, and how many of them the promise counts on (0: none but the person).
    mechanism
        ``symbol`` or ``normal`` (local), ``bits`` (shuffle), ``curated`` (central, and none with deviation 0).
    coordinates, bound
        Of a vector: every coordinate is within the bound of 0.
    seed
        Public seed of the round, for symbols' directions.
    deviation
        Of normal noise, in grid points.
    directions, chosen
        Of a symbol.
    levels, bits, chance
        Of shuffled bits.
    """

    model: Model
    epsilon: float
    delta: float
    calibration: Literal["tight", "published"]
    batch: int
    honest: int
    mechanism: Literal["symbol", "normal", "bits", "curated"]
    coordinates: int
    bound: float
    seed: int
    standard_deviation: float = 0.0
    directions: int = 0
    chosen: int = 0
    levels: int = 0
    bits: int = 0
    probability: float = 0.0

    @classmethod
    def nobody(cls, privacy: VectorPrivacy, coordinates: int, bound: float) -> "VectorTerms":
        """The terms of a round that asks nobody."""
        promise = (privacy.model, privacy.bound, privacy.delta, privacy.calibration)
        return cls(*promise, 0, 0, "curated", coordinates, bound, 0)

    @property
    def ball(self) -> Ball:
        """What people may tell."""
        return Ball("max", self.bound, self.coordinates)

    def privatizer(self) -> VectorPrivatizer:
        """What randomizes, adds up and releases."""
        if self.mechanism == "symbol":
            return VectorSymbol(self.ball, self.epsilon, self.directions, self.chosen, self.seed)
        if self.mechanism == "bits":
            return BitVectors(BinomialPlan(self.ball, self.levels, self.bits, self.probability, self.honest))
        kind = GaussianVectors if self.mechanism == "normal" else CentralVectors
        return kind(self.ball, self.standard_deviation)

    @property
    def event(self) -> Event | None:
        """What the adversary whom the promise is against sees of a person; None if that is the record."""
        if self.mechanism == "symbol":
            return Pure(self.epsilon)
        if self.mechanism == "bits":
            return ShuffledBits(self.honest * self.bits, self.probability, self.levels, self.coordinates)
        return Gaussian(self.standard_deviation, self.ball.diameter) if self.standard_deviation else None

    @property
    def local_epsilon(self) -> float:
        """The promise if everybody else colludes; infinite where records or all but bare vectors are sent."""
        return self.epsilon if self.model == "local" else math.inf

    @property
    def sampling(self) -> float:
        """What the sampler of noise may add to delta."""
        return sampling_cost(self.coordinates) if self.standard_deviation else 0.0

    @property
    def true_delta(self) -> float:
        """Delta that the accountant finds at the promised epsilon; 1 where nothing is promised."""
        return _true_delta(self)

    @property
    def holds(self) -> bool:
        """Whether the promise is true; under the trust model ``none`` there is none to break."""
        return self.model == "none" or self.true_delta <= self.delta * _OTHER_DIGITS

    def spread(self, people: int) -> tuple[float, float]:
        """How far the released average of ``people`` is off, in any direction of length 1: (variance, scale).

        With chance 1 - beta by at most sqrt(2 variance ln(1/beta)) + scale ln(1/beta); scale is 0 where the error is
        sub-Gaussian. Rounding is in it; what rewards themselves vary is not.

        Notes
        -----
        Normal noise and rounding are sub-Gaussian with these variances (rounding by Hoeffding's lemma: a quarter of a
        step's square), a centred binomial of unfair bits by Kearns and Saul's (1998). A symbol's vector is bounded by
        its scale, hence Bernstein's inequality.
        """
        if self.mechanism == "symbol":
            symbol = VectorSymbol(self.ball, self.epsilon, self.directions, self.chosen, self.seed)
            return symbol.worst_projection / people, (symbol.scale + self.ball.radius) / (3 * people)
        if self.mechanism == "bits":
            unit = 2 * self.bound / self.levels
            return (self.bits * _bit_variance(self.probability) + 0.25) * unit**2 / people, 0.0
        step = self.bound / GRID
        drawn = people if self.mechanism == "normal" else 1
        # Rounding to whole numbers depends on the noise that it rounds: deviations add up, not variances.
        noise = drawn * (self.standard_deviation + 0.5) ** 2 if self.standard_deviation else 0.0
        return (noise + 0.25 * people) * (step / people) ** 2, 0.0

    @property
    def messages(self) -> int:
        """Messages of one person."""
        return self.coordinates * (self.levels + self.bits) if self.mechanism == "bits" else 1

    @property
    def message_bits(self) -> int:
        """Bits that a message carries, as paper 5 counts: 1 of a shuffled bit, else the report's."""
        return 1 if self.mechanism == "bits" else 8 * self.privatizer().report_size


@lru_cache(maxsize=4096)
def _true_delta(terms: VectorTerms) -> float:
    if terms.event is None or math.isinf(terms.epsilon):
        return 1.0
    return min(1.0, account(terms.event).delta(terms.epsilon) + terms.sampling)


def _bit_variance(probability: float) -> float:
    """Sub-Gaussian variance of one centred bit (Kearns and Saul 1998)."""
    return 0.25 if probability == 0.5 else (1 - 2 * probability) / (2 * math.log((1 - probability) / probability))


def calibrate_vectors(
    privacy: VectorPrivacy, batch: int, coordinates: int, bound: float, seed: int, least: int | None = None
) -> VectorTerms:
    """The most informative terms that keep the promise, or those that the paper publishes.

    Parameters
    ----------
    privacy
        Of the spec.
    batch
        People of the round.
    coordinates, bound
        Of a vector.
    seed
        Public seed of the round.
    least
        Fewest people with whom the round may close; by default all.

    Raises
    ------
    SpecError
        If nothing keeps the promise with this batch.
    """
    terms = replace(VectorTerms.nobody(privacy, coordinates, bound), batch=batch, seed=seed)
    published = privacy.calibration == "published"
    if privacy.model == "none":
        return terms
    if privacy.model == "shuffle":
        return _shuffled(terms, honest_people(privacy, batch if least is None else least))
    if privacy.model == "local" and not published:
        return _local(terms)
    standard_deviation = vector_standard_deviation(terms.ball, privacy.bound, privacy.delta, privacy.calibration)
    return replace(
        terms, mechanism="curated" if privacy.model == "central" else "normal", standard_deviation=standard_deviation
    )


def honest_people(privacy: VectorPrivacy, least: int) -> int:
    """People on whose noise a shuffled sum of ``least`` or more counts."""
    return math.floor(privacy.honest_fraction * least)


def _shuffled(terms: VectorTerms, honest: int) -> VectorTerms:
    if honest < 1:
        raise SpecError("nobody of a phase is assumed honest", field="privacy.honest_fraction", remedy="raise it")
    if terms.calibration == "published":
        # Algorithm 2 takes every coordinate to have the range of the whole vector's norm.
        terms = replace(terms, bound=terms.bound * math.sqrt(terms.coordinates))
        made = plan(terms.ball, terms.epsilon, terms.delta, honest, "published")
    else:
        made = fine_plan(terms.ball, terms.epsilon, terms.delta, honest)
    return replace(
        terms, mechanism="bits", honest=honest, levels=made.levels, bits=made.bits, probability=made.probability
    )


def _local(terms: VectorTerms) -> VectorTerms:
    """The better of one symbol and normal noise at this dimension, by the error of a report."""
    made = local_vectors(terms.ball, terms.epsilon, terms.delta, terms.seed)
    if isinstance(made, VectorSymbol):
        return replace(terms, mechanism="symbol", directions=made.directions, chosen=made.chosen)
    return replace(terms, mechanism="normal", standard_deviation=made.standard_deviation)
