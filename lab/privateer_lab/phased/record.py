"""What a phased experiment promises, whether that is true, and what a person should be warned of."""

from typing import Any, Final

import msgspec

from privateer.mechanisms.vector_certificate import certify_vectors
from privateer.mechanisms.vector_terms import VectorTerms
from privateer.phased import PhasedSpec

_CLIPPED: Final = 0.01
"""Share of clipped averages that is worth a warning."""


def record(spec: PhasedSpec, terms: set[VectorTerms]) -> dict[str, Any]:
    """The promise, and the largest delta that the accountant finds at its epsilon, over all phases.

    A person is in one phase, so the promise of an experiment is its worst phase's (parallel composition).
    """
    certificate = msgspec.to_builtins(certify_vectors(spec.experiment.name, terms))
    if spec.privacy.model == "none":
        return {"epsilon": None, "delta": None, "true_delta": None, "holds": None, "certificate": certificate}
    found = max(one.true_delta for one in terms)
    return {
        "epsilon": spec.privacy.epsilon,
        "delta": spec.privacy.delta,
        "true_delta": found,
        "holds": all(one.holds for one in terms),
        "certificate": certificate,
    }


def warnings(spec: PhasedSpec, terms: set[VectorTerms], clipped: float) -> list[str]:
    """What the numbers alone do not say."""
    told = []
    delta = spec.privacy.delta
    if delta * spec.experiment.people > 1:
        told.append(
            f"delta {delta:g} protects nobody: a mechanism that publishes the whole record of {delta:.0%} of the "
            f"people keeps it; choose delta well below 1/{spec.experiment.people}, 1e-6 is usual"
        )
    if not all(one.holds for one in terms):
        told.append("the published calibration does not keep its promise: see true_delta")
    if clipped > _CLIPPED:
        told.append(
            f"at least {clipped:.0%} of the averages were clipped: rewards are larger than their stated range; "
            "widen reward.low and reward.high"
        )
    return told
