"""What is promised to a person, as JSON: round by round, against whom, with a certificate that recomputes it."""

import math
from typing import Any

import msgspec

from privateer.certificate import bounded_alone, certify
from privateer.experiment import Spec, first_batch
from privateer.families import AnySpec
from privateer.mechanisms.vector_certificate import certify_vectors
from privateer.mechanisms.vector_terms import VectorTerms
from privateer.phased import PhasedSpec
from privateer.record import FORMAT, PROMISE, row_of
from privateer.terms import Terms, calibrate
from privateer_server.store import RoundRecord

Rounds = list[tuple[RoundRecord, dict[str, Any]]]


def privacy(spec: AnySpec, rounds: list[RoundRecord]) -> dict[str, Any]:
    """The promise of an experiment with these rounds, released or not: what `privateer.record.Record` describes."""
    told = {
        "format": FORMAT,
        "experiment": spec.experiment.name,
        "algorithm": spec.algorithm.name,
        "model": spec.privacy.model,
        "reports_per_person": 1,
        "privacy": spec.privacy.model_dump(mode="json", exclude=set(PROMISE)),
        "least_share": spec.least_share if isinstance(spec, PhasedSpec) else 1.0,
    }
    asked = [(row, msgspec.json.decode(row.summary)) for row in rounds if row.batch]
    return told | (_of_vectors(spec, asked) if isinstance(spec, PhasedSpec) else _of_cohorts(spec, asked))


def _of_cohorts(spec: Spec, asked: Rounds) -> dict[str, Any]:
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


def _promise(spec: Spec, cohort: str, rounds: Rounds) -> dict[str, Any]:
    """What a cohort's people are promised, and a certificate of its rounds so far, or of those to come."""
    promised = spec.privacy_of(cohort)
    first = calibrate(promised, first_batch(spec, cohort), 1.0, 1.0)
    terms = [Terms(**_bounded(facts)) for _, facts in rounds] or [first]
    certificate = certify(spec.experiment.name, promised.bound, promised.delta, terms)
    if promised.model == "shuffle" and not rounds:
        certificate = bounded_alone(certificate, promised.local_epsilon_max)
    return {
        "epsilon": promised.epsilon,
        "delta": promised.delta,
        "rounds": [_cost(row, one) for (row, _), one in zip(rounds, terms, strict=False)],
        "planned": None if rounds else row_of(first),
        "certificate": msgspec.to_builtins(certificate),
    }


def _of_vectors(spec: PhasedSpec, asked: Rounds) -> dict[str, Any]:
    terms = [VectorTerms(**_bounded(facts["terms"])) for _, facts in asked]
    return {
        "epsilon": spec.privacy.epsilon,
        "delta": spec.privacy.delta,
        "rounds": [_cost(row, one) for (row, _), one in zip(asked, terms, strict=True)],
        "planned": None,
        "certificate": msgspec.to_builtins(certify_vectors(spec.experiment.name, terms)),
    }


def _bounded(facts: dict[str, Any]) -> dict[str, Any]:
    """JSON has no infinity: where records are sent there is no promise."""
    return facts | {name: math.inf for name in ("epsilon", "local_epsilon") if name in facts and facts[name] is None}


def _cost(row: RoundRecord, terms: Terms | VectorTerms) -> dict[str, Any]:
    """A round's terms, and the sizes that it reached; below the honest minimum nothing is released."""
    released = row.taken and row.received >= max(1, terms.honest)
    return {"version": row.version, "received": row.received, "released": released, **row_of(terms)}
