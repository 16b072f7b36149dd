"""Rows of trust models for published algorithms: each paper's mechanisms, calibrated by its constants.

No device takes part under such a row, and no server runs an experiment under one: its calibration has another name.
"""

from dataclasses import replace
from typing import Any, Final

from typing_extensions import override

from privateer_core.accounting.allotment import Allotment
from privateer_core.accounting.gaussian import classic_gaussian_standard_deviation
from privateer_core.errors import SpecError
from privateer_core.mechanisms import AnyMechanism
from privateer_core.mechanisms.cell_pairs import CellPairs
from privateer_core.mechanisms.vectors.vector_bits import BitVectors
from privateer_core.mechanisms.vectors.vector_noise import CentralVectors, GaussianVectors
from privateer_core.primitives.clipping import Ball
from privateer_core.primitives.questions import KeyedHits, KeyedMeans, L2VectorSum, VectorSum
from privateer_core.privacy.calibrations import Calibrated
from privateer_core.privacy.trust import TRUST, Serving, Trust, trust_of
from privateer_core.spec.privacy import Privacy
from privateer_papers.paper_1.laplace_cells import LaplaceCells
from privateer_papers.paper_5.bits import published_vectors

PUBLISHED: Final = "published"
"""What the papers' calibrations are called in terms."""
FIGURES: Final = (
    f"epsilon, delta and noise are the paper's (calibration: {PUBLISHED}): a claim has the paper's delta if our "
    "accountant finds that it holds, and else the delta that the accountant finds at the paper's epsilon"
)
"""What certificates and records of published algorithms say of their figures."""
_DELTA_LEAST: Final = 1e-15
"""Normal noise needs a delta above 0."""


def classic_noise(ball: Ball, epsilon: float, delta: float) -> float:
    """Return the textbook's standard deviation of normal noise, in grid points; it is private below epsilon 1 alone."""
    return classic_gaussian_standard_deviation(epsilon, delta, ball.diameter)


def _cells(privacy: Calibrated, _honest: int, question: KeyedMeans, _share: Allotment | None) -> Any:
    return LaplaceCells.calibrated(question, privacy.bound)


def _normal(privacy: Calibrated, _honest: int, question: VectorSum, _share: Allotment | None) -> AnyMechanism:
    return GaussianVectors(question.ball, classic_noise(question.ball, privacy.bound, privacy.delta))


def _bits(privacy: Calibrated, honest: int, question: VectorSum, _share: Allotment | None) -> AnyMechanism:
    return published_vectors(question.ball, privacy.bound, privacy.delta, honest)


def _curated(privacy: Calibrated, _honest: int, question: VectorSum, _share: Allotment | None) -> AnyMechanism:
    return CentralVectors(question.ball, classic_noise(question.ball, privacy.bound, privacy.delta))


def _hits(_: Calibrated, _honest: int, question: KeyedHits, _share: Allotment | None) -> AnyMechanism:
    # Paper 4's learners have exact sums, and draw the noise of what they make of several rounds.
    return CellPairs(question.layout)


_NORMAL: Final = Serving((GaussianVectors,), _normal)
_SERVES: Final[dict[str, dict[Any, Serving]]] = {
    "local": {KeyedMeans: Serving((LaplaceCells,), _cells), VectorSum: _NORMAL, L2VectorSum: _NORMAL},
    "shuffle": {VectorSum: Serving((BitVectors,), _bits)},
    "central": {KeyedHits: Serving((CellPairs,), _hits), VectorSum: Serving((CentralVectors,), _curated)},
    "none": {KeyedHits: Serving((CellPairs,), _hits)},
}
ROWS: Final[dict[str, Trust]] = {
    name: replace(
        TRUST[name],
        calibration=PUBLISHED,
        serves=serves,
        delta_least=max(TRUST[name].delta_least, _DELTA_LEAST),
        assumes=(*TRUST[name].assumes, *[FIGURES] * TRUST[name].promises),
    )
    for name, serves in _SERVES.items()
}
"""The papers' row of every trust model."""


class PublishedPrivacy(Privacy):
    """The promise that a paper states, whether its mechanism keeps it or not."""

    @property
    @override
    def trust(self) -> Trust:
        return ROWS.get(self.model) or trust_of(self.model)


def refuse_model(privacy: Privacy) -> SpecError:
    """Return why a trust model is refused that a paper does not have."""
    detail = f"the paper has nothing under the model '{privacy.model}'"
    return SpecError(detail, field="privacy.model", remedy="choose another")
