"""Trust models for published algorithms: each paper's mechanisms, calibrated by its constants.

Devices and servers do not run experiments under these trust models, since their calibration has another name.
"""

import math
from dataclasses import dataclass, fields
from typing import Any, Final, TypeVar

import msgspec
from typing_extensions import override

from privateer_core.accounting.allotment import Allotment
from privateer_core.accounting.events import ShuffledBits
from privateer_core.accounting.gaussian import classic_gaussian_standard_deviation
from privateer_core.accounting.numerics import check
from privateer_core.errors import SpecError
from privateer_core.mechanisms import AnyMechanism
from privateer_core.mechanisms.cell_pairs import CellPairs
from privateer_core.mechanisms.vectors.vector_bits import BitVectors
from privateer_core.mechanisms.vectors.vector_noise import CentralVectors, GaussianVectors
from privateer_core.primitives.clipping import Ball
from privateer_core.primitives.questions import KeyedHits, KeyedMeans, L2VectorSum, VectorSum
from privateer_core.privacy.calibrations import Guarantee
from privateer_core.privacy.trust import TRUST, Serving, Trust, trust_of
from privateer_core.spec.privacy import Privacy
from privateer_papers.paper_1.laplace_cells import LaplaceCells

Published = TypeVar("Published")
PUBLISHED: Final = "published"
"""The name of the papers' calibrations in terms."""
FIGURES_NOTE: Final = (
    f"epsilon, delta and noise are the paper's (calibration: {PUBLISHED}): a claim has the paper's delta if our "
    "accountant finds that it holds, and else the delta that the accountant finds at the paper's epsilon"
)
"""The assumption that certificates and records of published algorithms state about their figures."""
_MIN_DELTA: Final = 1e-15
"""Normal noise needs a delta above 0."""


def classic_noise(ball: Ball, epsilon: float, delta: float) -> float:
    """Return the textbook's standard deviation of normal noise, in grid points; it is proved below epsilon 1 alone."""
    return classic_gaussian_standard_deviation(epsilon, delta, ball.sensitivity)


def _cells(privacy: Guarantee, _honest: int, question: KeyedMeans, _share: Allotment | None) -> Any:
    return LaplaceCells.calibrated(question, privacy.bound)


def _gaussian_vectors(privacy: Guarantee, _honest: int, question: VectorSum, _share: Allotment | None) -> AnyMechanism:
    return GaussianVectors(question.ball, classic_noise(question.ball, privacy.bound, privacy.delta))


def _bit_vectors(privacy: Guarantee, honest: int, question: VectorSum, _share: Allotment | None) -> AnyMechanism:
    return published_vectors(question.ball, privacy.bound, privacy.delta, honest)


def _curated(privacy: Guarantee, _honest: int, question: VectorSum, _share: Allotment | None) -> AnyMechanism:
    return CentralVectors(question.ball, classic_noise(question.ball, privacy.bound, privacy.delta))


def _hits(_: Guarantee, _honest: int, question: KeyedHits, _share: Allotment | None) -> AnyMechanism:
    # Paper 4's learners have exact sums, and draw the noise of what they make of several rounds.
    return CellPairs(question.layout)


_SERVINGS: Final[dict[str, dict[Any, Serving]]] = {
    "local": {
        KeyedMeans: Serving((LaplaceCells,), _cells),
        VectorSum: Serving((GaussianVectors,), _gaussian_vectors, norms=("max",)),
        L2VectorSum: Serving((GaussianVectors,), _gaussian_vectors, norms=("l2",)),
    },
    "shuffle": {VectorSum: Serving((BitVectors,), _bit_vectors, norms=("max",))},
    "central": {
        KeyedHits: Serving((CellPairs,), _hits),
        VectorSum: Serving((CentralVectors,), _curated, norms=("max",)),
    },
    "none": {KeyedHits: Serving((CellPairs,), _hits)},
}
PUBLISHED_TRUST: Final[dict[str, Trust]] = {
    name: msgspec.structs.replace(
        row,
        calibration=PUBLISHED,
        serves=_SERVINGS.get(name, {}),
        delta_least=max(row.delta_least, _MIN_DELTA),
        assumes=(*row.assumes, *[FIGURES_NOTE] * row.promises),
    )
    for name, row in TRUST.items()
}
"""The papers' version of every trust model."""


class PublishedPrivacy(Privacy):
    """The promise that a paper states, whether its mechanism satisfies it or not."""

    @property
    @override
    def trust(self) -> Trust:
        return PUBLISHED_TRUST.get(self.model) or trust_of(self.model)


def recast(instance: Any, kind: type[Published]) -> Published:
    """Return a policy or terms of the product as those of a published algorithm, with the same fields."""
    return kind(**{attribute.name: getattr(instance, attribute.name) for attribute in fields(instance)})


def unsupported_model_error(privacy: Privacy) -> SpecError:
    """Return the error for a trust model that a paper does not have."""
    detail = f"the paper has nothing under the model '{privacy.model}'"
    return SpecError(detail, field="privacy.model", remedy="choose another")


EPSILON_MAX: Final = 15.0
"""The largest epsilon of the theorem."""


@dataclass(frozen=True)
class PublishedBits:
    """Paper 5, eq. (22): levels g, bits b and probability p for every person and coordinate."""

    # g, b and p
    levels: int
    bits: int
    probability: float
    event: ShuffledBits  # what the analyzer sees

    @property
    def standard_deviation(self) -> float:
        """Standard deviation of the noise in a coordinate's sum, in units of the range 2 * norm bound."""
        trials = self.event.trials
        return math.sqrt(trials * self.probability * (1 - self.probability)) / self.levels


def published_bits(epsilon: float, delta: float, coordinates: int, people: int) -> PublishedBits:
    """Return the calibration of paper 5, Algorithm 2, eq. (22), with g rounded up to a whole number."""
    check("epsilon", epsilon, 0 < epsilon <= EPSILON_MAX, f"above 0 and at most {EPSILON_MAX:g} by the theorem")
    check("delta", delta, 0 < delta < 1, "above 0 and below 1")
    check("coordinates", coordinates, coordinates >= 1, "at least 1")
    check("batch", people, people >= 1, "at least 1")
    scaled = epsilon / (18 * math.sqrt(math.log(2 / delta)))
    log = math.log(4 * coordinates / delta)
    levels = math.ceil(max(scaled * math.sqrt(people) / (6 * math.sqrt(5 * log)), math.sqrt(coordinates), 10))
    bits = math.ceil(180 * levels**2 * log / (scaled**2 * people))
    probability = 90 * levels**2 * log / (bits * scaled**2 * people)
    return PublishedBits(levels, bits, probability, ShuffledBits(bits * people, probability, levels, coordinates))


def published_vectors(ball: Ball, epsilon: float, delta: float, n_participants: int) -> BitVectors:
    """Return paper 5's eq. (22) as a mechanism, which is far noisier than necessary.

    Algorithm 2 takes every coordinate to have the range of the whole vector's norm, and so does this.
    """
    coordinate_ball = Ball("max", ball.bound * math.sqrt(ball.coordinates), ball.coordinates)
    published = published_bits(epsilon, delta, ball.coordinates, n_participants)
    return BitVectors(coordinate_ball, published.levels, published.bits, published.probability, n_participants)
