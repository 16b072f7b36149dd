"""What anybody may read of an experiment, made from what the server keeps in memory or has stored."""

from typing import Any

from privateer.codec import decode
from privateer.errors import NotFound
from privateer.result import decode_result
from privateer.spec import Spec
from privateer.wire.publication import Round, decode_publication, digest
from privateer_server.api import models
from privateer_server.experiment import Experiment
from privateer_server.rounds import RoundFacts, read_policy
from privateer_server.store import RoundRecord


def summary(experiment: Experiment) -> models.Summary:
    """Say where the experiment stands."""
    return models.Summary(**_summary(experiment))


def details(experiment: Experiment) -> models.Details:
    """Say where the experiment stands, why reports were refused, and what it was created from."""
    return models.Details(
        **_summary(experiment),
        refused=dict(experiment.refused),
        shuffler=experiment.shuffler or None,
        spec=experiment.spec.model_dump(mode="json", exclude_none=True),
    )


def _summary(experiment: Experiment) -> dict[str, Any]:
    current = experiment.current
    return {
        "name": experiment.name,
        "status": experiment.status,
        "model": current.round.model,
        "algorithm": current.spec.algorithm.name,
        "version": current.round.version,
        "batch": current.round.batch,
        "received": current.received,
        "accepted": experiment.accepted,
        "digest": current.digest.hex(),
    }


def public_key(facts: Round) -> models.PublicKey:
    """Name the key of an open round."""
    return models.PublicKey(
        experiment=facts.experiment,
        version=facts.version,
        public_key=facts.public_key.hex(),
        key_id=facts.key_id.hex(),
    )


def policy(spec: Spec, publication: bytes) -> models.PublishedPolicy:
    """Describe a publication."""
    published = decode_publication(publication)
    facts = published.round
    return models.PublishedPolicy(
        experiment=facts.experiment,
        version=facts.version,
        model=facts.model,
        batch=facts.batch,
        sealed_size=facts.sealed_size,
        messages=facts.messages,
        least=facts.fewest,
        deadline=facts.deadline or None,
        key_id=facts.key_id.hex(),
        digest=digest(publication).hex(),
        policy=read_policy(spec, published).describe(spec),
    )


def state(experiment: Experiment) -> models.State:
    """Describe what the learner knew when it made the policy, and how far the round is."""
    facts = experiment.current.round
    return models.State(
        experiment=experiment.name,
        version=facts.version,
        status=experiment.status,
        round=models.Progress(
            received=experiment.current.received, batch=facts.batch, deadline=facts.deadline or None
        ),
        state=experiment.described(),
    )


def result(experiment: Experiment) -> models.PublishedResult:
    """Return the result in the current publication.

    Raises
    ------
    NotFound
        If the algorithm publishes no result.
    """
    published = decode_publication(experiment.current.publication)
    if not published.result:
        raise NotFound(
            "the algorithm of this experiment publishes no result",
            remedy=f"GET /experiments/{experiment.name}/policy and /experiments/{experiment.name}/state",
        )
    version, status = published.round.version, experiment.status
    return models.PublishedResult(experiment.name, version, status, decode_result(published.result))


def history(name: str, rounds: list[RoundRecord]) -> models.History:
    """List the published rounds in order."""
    return models.History(experiment=name, rounds=[_row(row, decode(row.facts, RoundFacts)) for row in rounds])


def _row(stored: RoundRecord, facts: RoundFacts) -> models.HistoryRow:
    return models.HistoryRow(
        version=stored.version,
        batch=stored.batch,
        received=stored.received,
        digest=stored.digest.hex(),
        cohort=facts.cohort,
        honest=facts.terms.honest,
        mechanism=facts.terms.mechanism,
        figures=facts.figures,
    )
