"""What anybody may read of an experiment, as JSON."""

import math
from typing import Any

import msgspec

from privateer.experiment import Spec, first_batch
from privateer.privacy.certificate import certify
from privateer.privacy.terms import Terms, calibrate
from privateer.wire.publication import decode_publication, digest
from privateer_server.experiments import Experiment
from privateer_server.learners import learner_for
from privateer_server.rounds import OpenRound, read_policy
from privateer_server.store import RoundRecord


def summary(experiment: Experiment) -> dict[str, Any]:
    """Where the experiment stands. ``received`` is of the open round, ``accepted`` of all."""
    current = experiment.current
    return {
        "name": current.round.experiment,
        "status": "finished" if experiment.finished else "open",
        "model": current.round.model,
        "algorithm": current.spec.algorithm.name,
        "version": current.round.version,
        "batch": current.round.batch,
        "received": current.received,
        "accepted": experiment.accepted,
        "digest": current.digest.hex(),
    }


def facts(experiment: Experiment) -> dict[str, Any]:
    """The summary, with refusals by reason and the spec."""
    spec = experiment.spec.model_dump(mode="json", exclude_none=True)
    return summary(experiment) | {"refused": dict(experiment.refused), "spec": spec}


def policy(publication: bytes, arms: tuple[str, ...]) -> dict[str, Any]:
    """A publication for people and other languages."""
    published = decode_publication(publication)
    return {
        "experiment": published.round.experiment,
        "version": published.round.version,
        "model": published.round.model,
        "batch": published.round.batch,
        "sealed_size": published.round.sealed_size,
        "key_id": published.round.key_id.hex(),
        "digest": digest(publication).hex(),
        "policy": read_policy(published).describe(arms),
    }


def state(current: OpenRound) -> dict[str, Any]:
    """What the learner knew when it made the policy: a function of private releases alone."""
    learner = learner_for(current.spec)
    described = learner.describe(current.state)
    return {"experiment": current.round.experiment, "version": current.round.version, "state": described}


def history(rounds: list[RoundRecord]) -> list[dict[str, Any]]:
    """Published rounds in order."""
    return [
        {"version": row.version, "batch": row.batch, "received": row.received, "digest": row.digest.hex()}
        | msgspec.json.decode(row.summary)
        for row in rounds
    ]


def privacy(experiment: Experiment, rounds: list[RoundRecord]) -> dict[str, Any]:
    """What is promised to a person, round by round, against whom, and a certificate that recomputes it."""
    spec = experiment.spec
    # Rounds of a database from before there were sources name no cohort.
    asked = [(row, {"cohort": ""} | msgspec.json.decode(row.summary)) for row in rounds if row.batch]
    promises = {
        cohort: _promise(spec, cohort, [(row, facts["terms"]) for row, facts in asked if facts["cohort"] == cohort])
        for cohort in (source.name for source in spec.cohorts)
        if first_batch(spec, cohort)
    }
    own = _promise(spec, "", [(row, facts["terms"]) for row, facts in asked if not facts["cohort"]])
    told = {"experiment": spec.experiment.name, "model": spec.privacy.model, "reports_per_person": 1}
    sources = [{"name": cohort, **promise} for cohort, promise in promises.items()]
    return told | own | ({"sources": sources} if spec.sources else {})


def _promise(spec: Spec, cohort: str, rounds: list[tuple[RoundRecord, dict[str, Any]]]) -> dict[str, Any]:
    """What a cohort's people are promised, and a certificate of its rounds so far, or of the first to come."""
    promised = spec.privacy_of(cohort)
    first = calibrate(promised, first_batch(spec, cohort), 1.0, 1.0)
    terms = [_terms(facts) for _, facts in rounds] or [first]
    certificate = certify(spec.experiment.name, promised.bound, promised.delta, terms)
    return {
        "epsilon": promised.epsilon,
        "delta": promised.delta,
        "rounds": [_cost(row, facts) for row, facts in rounds],
        "certificate": msgspec.to_builtins(certificate),
    }


def _terms(facts: dict[str, Any]) -> Terms:
    # JSON has no infinity: where records are sent there is no local promise.
    unbounded = {name: math.inf for name in ("epsilon", "local_epsilon") if facts[name] is None}
    return Terms(**(facts | unbounded))


def _cost(row: RoundRecord, facts: dict[str, Any]) -> dict[str, Any]:
    """A round's mechanism, and the sizes that it reached; a release below the honest minimum was refused."""
    kept = ("mechanism", "local_epsilon", "buckets", "elsewhere", "deviation", "honest")
    return {
        "version": row.version,
        "batch": row.batch,
        "received": row.received,
        "released": row.taken and row.received >= max(1, facts["honest"]),
        **{name: facts[name] for name in kept},
    }
