"""How a device checks the terms of a phase: as `privateer.verification`, for vectors."""

import math
from typing import Any, Final

from privateer.errors import SpecError, TermsRefused
from privateer.mechanisms.vector_symbol import DIRECTIONS
from privateer.mechanisms.vector_terms import VectorTerms, honest_people
from privateer.phased import PhasedSpec, VectorPrivacy
from privateer.verification import Limits, afford, believable
from privateer.wire.publication import Round

MECHANISMS: Final = {
    "local": ("symbol", "normal"),
    "shuffle": ("bits",),
    "central": ("curated",),
    "none": ("curated",),
}
_MESSAGES_MAX: Final = 1 << 17
_REMEDY: Final = "do not take part"


def verify_vectors(terms: VectorTerms, spec: PhasedSpec, facts: Round, limits: Limits) -> None:
    """Refuse terms that miss the spec's promise or the device's limits, computing both anew from the parameters alone.

    Raises
    ------
    TermsRefused
        Naming what is missed; states promised and allowed.
    """
    _agree(terms, spec, facts)
    afford(terms.model, (terms.epsilon, terms.delta, terms.local_epsilon), limits)
    if terms.model == "shuffle":
        believable(spec.privacy.honest_fraction, facts.fewest, limits)
    _possible(terms)
    try:
        holds = terms.holds
    except SpecError as error:
        raise TermsRefused("no such randomizer", field=error.field, remedy=_REMEDY) from None
    if not holds:
        raise TermsRefused(
            f"the noise gives delta {terms.true_delta:.3g}, promised is {terms.delta:g}", field="delta", remedy=_REMEDY
        )


def promised(privacy: VectorPrivacy, batch: int, fewest: int) -> dict[str, Any]:
    """What the terms of a phase of ``batch`` people, which may close with ``fewest``, must say by the spec alone."""
    return {
        "model": privacy.model,
        "epsilon": privacy.bound,
        "delta": privacy.delta,
        "calibration": privacy.calibration,
        "batch": batch,
        "honest": honest_people(privacy, fewest) if privacy.model == "shuffle" else 0,
    }


def _agree(terms: VectorTerms, spec: PhasedSpec, facts: Round) -> None:
    """The terms are those of the spec, for the fewest people with whom the round may close."""
    privacy = spec.privacy
    expected = promised(privacy, facts.batch, facts.fewest) | {"calibration": "tight", "bound": spec.half_range}
    for name, value in expected.items():
        if getattr(terms, name) != value:
            raise TermsRefused("the terms differ from the experiment's spec", field=name, remedy=_REMEDY)
    if terms.mechanism not in MECHANISMS[privacy.model]:
        raise TermsRefused("not a mechanism of the trust model", field="mechanism", remedy=_REMEDY)
    if facts.fewest < max(spec.least(facts.batch), spec.privacy.min_batch if privacy.model == "shuffle" else 0):
        raise TermsRefused("may close with fewer people than the spec says", field="least", remedy=_REMEDY)


def _possible(terms: VectorTerms) -> None:
    """Sizes that a device can work with, and a randomizer that there is."""
    sizes = {
        "coordinates": 1 <= terms.coordinates <= _MESSAGES_MAX,
        "messages": 1 <= terms.messages <= _MESSAGES_MAX,
        "seed": 0 <= terms.seed < 1 << 64,
        "directions": 0 <= terms.directions <= max(DIRECTIONS),
        "standard_deviation": 0 <= terms.standard_deviation < math.inf,
    }
    for name, fits in sizes.items():
        if not fits:
            raise TermsRefused("out of range", field=name, remedy=_REMEDY)
    try:
        terms.privatizer()
    except SpecError:
        raise TermsRefused("no such randomizer", field="mechanism", remedy=_REMEDY) from None
