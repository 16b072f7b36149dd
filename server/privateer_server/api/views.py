"""What anybody may read of an experiment, as JSON."""

from typing import Any, Final

import msgspec

from privateer.wire.publication import decode_publication, digest
from privateer_server.experiments import Experiment
from privateer_server.learners import learner_for
from privateer_server.rounds import OpenRound, read_policy
from privateer_server.store import RoundRecord

_PROOFS: Final = {
    ("local", "signed-symbol"): "k-ary randomized response: pure epsilon-local privacy of every report",
    ("shuffle", "signed-symbol"): "privacy blanket of Balle, Bell, Gascon and Nissim (CRYPTO 2019, Lemma 5.3)",
    ("central", "gaussian"): "analytic Gaussian of Balle and Wang (ICML 2018, Theorem 8), of the curator's releases",
    ("none", "none"): "nothing is promised",
}
"""Why the promise holds, by trust model and mechanism; docs/privacy.md has the arguments."""


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


def privacy(current: OpenRound) -> dict[str, Any]:
    """What a round promises to a person, and what is left of it if shuffler and server collude (local epsilon)."""
    terms = current.policy.terms
    promise = {
        "model": terms.model,
        "epsilon": terms.epsilon,
        "delta": terms.delta,
        "reports_per_person": 1,
        "local_epsilon": terms.local_epsilon,
        "mechanism": terms.mechanism,
        "symbols": terms.symbols,
        "batch": terms.batch,
        "honest": terms.honest,
        "proof": _PROOFS[terms.model, terms.mechanism],
    }
    return {"experiment": current.round.experiment, "version": current.round.version, "promise": promise}
