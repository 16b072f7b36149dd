"""What is promised to a person, as JSON: round by round, against whom, with a certificate that recomputes it."""

import math
from typing import Any

import msgspec

from privateer.experiment import Spec, first_batch
from privateer.families import AnySpec
from privateer.phased import PhasedSpec
from privateer.privacy.certificate import bounded_alone, certify
from privateer.privacy.terms import Terms, calibrate
from privateer.privatizers.vector_certificate import certify_vectors
from privateer.privatizers.vector_terms import VectorTerms
from privateer_server.store import RoundRecord

_KEYED = ("mechanism", "local_epsilon", "buckets", "elsewhere", "deviation", "honest")
_VECTORS = ("mechanism", "coordinates", "levels", "bits", "chance", "directions", "chosen", "deviation", "honest")


def privacy(spec: AnySpec, rounds: list[RoundRecord]) -> dict[str, Any]:
    """The promise of an experiment with these rounds, whether they were released or not."""
    told = {"experiment": spec.experiment.name, "model": spec.privacy.model, "reports_per_person": 1}
    asked = [(row, msgspec.json.decode(row.summary)) for row in rounds if row.batch]
    return told | (_of_vectors(spec, asked) if isinstance(spec, PhasedSpec) else _of_cohorts(spec, asked))


def _of_cohorts(spec: Spec, asked: list[tuple[RoundRecord, dict[str, Any]]]) -> dict[str, Any]:
    # Rounds of a database from before there were sources name no cohort.
    asked = [(row, {"cohort": ""} | facts) for row, facts in asked]
    promises = {
        cohort: _promise(spec, cohort, [(row, facts["terms"]) for row, facts in asked if facts["cohort"] == cohort])
        for cohort in (source.name for source in spec.cohorts)
        if first_batch(spec, cohort)
    }
    own = _promise(spec, "", [(row, facts["terms"]) for row, facts in asked if not facts["cohort"]])
    sources = [{"name": cohort, **promise} for cohort, promise in promises.items()]
    return own | ({"sources": sources} if spec.sources else {})


def _promise(spec: Spec, cohort: str, rounds: list[tuple[RoundRecord, dict[str, Any]]]) -> dict[str, Any]:
    """What a cohort's people are promised, and a certificate of its rounds so far, or of those to come."""
    promised = spec.privacy_of(cohort)
    first = calibrate(promised, first_batch(spec, cohort), 1.0, 1.0)
    terms = [_terms(facts) for _, facts in rounds] or [first]
    certificate = certify(spec.experiment.name, promised.bound, promised.delta, terms)
    if promised.model == "shuffle" and not rounds:
        certificate = bounded_alone(certificate, promised.local_epsilon_max)
    return {
        "epsilon": promised.epsilon,
        "delta": promised.delta,
        "rounds": [_cost(row, facts, _KEYED) for row, facts in rounds],
        "certificate": msgspec.to_builtins(certificate),
    }


def _terms(facts: dict[str, Any]) -> Terms:
    return Terms(**_bounded(facts))


def _of_vectors(spec: PhasedSpec, asked: list[tuple[RoundRecord, dict[str, Any]]]) -> dict[str, Any]:
    terms = [VectorTerms(**_bounded(facts["terms"])) for _, facts in asked]
    return {
        "epsilon": spec.privacy.epsilon,
        "delta": spec.privacy.delta,
        "rounds": [_cost(row, facts["terms"], _VECTORS) for row, facts in asked],
        "certificate": msgspec.to_builtins(certify_vectors(spec.experiment.name, terms)),
    }


def _bounded(facts: dict[str, Any]) -> dict[str, Any]:
    """JSON has no infinity: where records are sent there is no promise."""
    return facts | {name: math.inf for name in ("epsilon", "local_epsilon") if name in facts and facts[name] is None}


def _cost(row: RoundRecord, facts: dict[str, Any], kept: tuple[str, ...]) -> dict[str, Any]:
    """A round's mechanism, and the sizes that it reached: below the honest minimum nothing is released."""
    return {
        "version": row.version,
        "batch": row.batch,
        "received": row.received,
        "released": row.taken and row.received >= max(1, facts["honest"]),
        **{name: facts[name] for name in kept},
    }
