"""What anybody may read of an experiment, as JSON."""

from typing import Any

import msgspec

from privateer.families import AnySpec
from privateer.wire.publication import decode_publication, digest
from privateer_server.experiments import Experiment
from privateer_server.rounds import read_policy
from privateer_server.schedule import schedule_for
from privateer_server.store import RoundRecord


def summary(experiment: Experiment) -> dict[str, Any]:
    """Where the experiment stands. ``received`` is of the open round, ``accepted`` of all."""
    current = experiment.current
    return {
        "name": current.round.experiment,
        "status": experiment.status,
        "model": current.round.model,
        "algorithm": current.spec.algorithm.name,
        "version": current.round.version,
        "batch": current.round.batch,
        "received": current.received,
        "accepted": experiment.accepted,
        "digest": current.digest.hex(),
    }


def facts(experiment: Experiment) -> dict[str, Any]:
    """The summary, with refusals by reason, the shuffler that claimed the experiment, and the spec."""
    spec = experiment.spec.model_dump(mode="json", exclude_none=True)
    return summary(experiment) | {
        "refused": dict(experiment.refused),
        "shuffler": experiment.shuffler or None,
        "spec": spec,
    }


def policy(spec: AnySpec, publication: bytes) -> dict[str, Any]:
    """A publication for people and other languages."""
    published = decode_publication(publication)
    return {
        "experiment": published.round.experiment,
        "version": published.round.version,
        "model": published.round.model,
        "batch": published.round.batch,
        "sealed_size": published.round.sealed_size,
        "messages": published.round.messages,
        "least": published.round.fewest,
        "deadline": published.round.deadline or None,
        "key_id": published.round.key_id.hex(),
        "digest": digest(publication).hex(),
        "policy": schedule_for(spec).described(read_policy(spec, published)),
    }


def state(experiment: Experiment) -> dict[str, Any]:
    """What the learner knew when it made the policy: a function of private releases alone; and how far the round is."""
    current = experiment.current
    described = schedule_for(current.spec).learner.describe(current.state)
    progress = {"received": current.received, "batch": current.round.batch, "deadline": current.round.deadline or None}
    about = {"experiment": current.round.experiment, "version": current.round.version, "status": experiment.status}
    return {**about, "round": progress, "state": described}


def history(rounds: list[RoundRecord]) -> list[dict[str, Any]]:
    """Published rounds in order."""
    return [
        {"version": row.version, "batch": row.batch, "received": row.received, "digest": row.digest.hex()}
        | msgspec.json.decode(row.summary)
        for row in rounds
    ]
