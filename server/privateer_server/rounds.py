"""The life of a round: published, filled, learned from."""

import secrets
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from privateer.codec import decode, encode
from privateer.experiment import Spec, Turn, next_turn
from privateer.policies.partition import PartitionPolicy
from privateer.privacy.noise import SecureNoise
from privateer.privatizers import privatizer_for
from privateer.wire.publication import Publication, Round, decode_publication, digest, encode_publication
from privateer_server.learners import learner_for
from privateer_server.opening import REPORT_ID_SIZE, SEAL_SIZE
from privateer_server.store import RoundRecord


@dataclass(frozen=True, repr=False)
class OpenRound:
    """The last round of an experiment, with all that is needed to count its reports and to learn from them.

    Attributes
    ----------
    round, digest, publication
        What is published: parsed, named and encoded.
    policy, state
        The policy that lives for the round, and the learner state that made it.
    people
        Sum of the batches of earlier rounds of the policy's cohort.
    received, total
        Reports counted, and their sums.
    taken
        Whether the round takes no more reports.
    """

    spec: Spec
    round: Round
    digest: bytes
    publication: bytes
    policy: PartitionPolicy
    state: Any
    people: int
    received: int
    total: Any
    taken: bool

    @cached_property
    def privatizer(self) -> Any:
        """What parses and adds reports of this round."""
        return privatizer_for(self.policy.layout, self.policy.terms)

    @property
    def released(self) -> bool:
        """Whether what was counted is enough for the promise, so that it may be learned from."""
        return self.received >= max(1, self.policy.terms.honest)

    @property
    def room(self) -> int:
        """Reports that the round can still take."""
        return 0 if self.taken else self.round.batch - self.received


def first_round(spec: Spec, public_key: bytes) -> OpenRound:
    """The round that opens an experiment.

    Raises
    ------
    SpecError
        If no report of the round's batch can keep the promise.
    """
    return _publish(spec, learner_for(spec).start(), 1, next_turn(spec, None), public_key)


def following_round(closed: OpenRound) -> OpenRound:
    """The round after a full one: releases its sums, learns, and publishes.

    A release below the honest minimum is refused, and nothing learned from it: the promise counted on more people.
    A curator's noise is drawn here; it stands once the state made of it is stored with the next publication.
    """
    state = closed.state
    if closed.released:
        release = closed.privatizer.release(closed.total, SecureNoise())
        state = learner_for(closed.spec).learn(state, closed.policy, release)
    # Batches count, not the good reports in them: the schedule of rounds is then fixed by the spec alone.
    turn = next_turn(closed.spec, Turn(closed.policy.cohort, closed.people, closed.round.batch))
    return _publish(closed.spec, state, closed.round.version + 1, turn, closed.round.public_key)


def _publish(spec: Spec, state: Any, version: int, turn: Turn, public_key: bytes) -> OpenRound:
    batch = turn.batch
    policy = learner_for(spec).policy(state, version, batch, secrets.randbits(64), turn.cohort)
    privatizer = privatizer_for(policy.layout, policy.terms)
    sealed_size = SEAL_SIZE + REPORT_ID_SIZE + privatizer.report_size
    facts = Round(spec.experiment.name, version, spec.privacy.model, batch, sealed_size, public_key)
    body = encode_publication(Publication(facts, spec.model_dump_json().encode(), encode(policy)))
    return OpenRound(spec, facts, digest(body), body, policy, state, turn.seen, 0, privatizer.empty(), False)


def record(current: OpenRound) -> RoundRecord:
    """A round as the store keeps it."""
    policy = current.policy
    counts = {"bins": len(policy.depths), "undecided": len(policy.bins)}
    summary = {"cohort": policy.cohort, **counts, "terms": policy.terms}
    return RoundRecord(
        version=current.round.version,
        batch=current.round.batch,
        people=current.people,
        received=current.received,
        taken=current.taken,
        digest=current.digest,
        summary=msgspec.json.encode(summary),
        publication=current.publication,
        state=encode(current.state),
        total=encode(current.total),
    )


def read_policy(publication: Publication) -> PartitionPolicy:
    """The policy in a publication."""
    return decode(publication.policy, PartitionPolicy)


def restore(spec: Spec, stored: RoundRecord) -> OpenRound:
    """The round that a record was made of."""
    publication = decode_publication(stored.publication)
    policy = read_policy(publication)
    empty = privatizer_for(policy.layout, policy.terms).empty()
    return OpenRound(
        spec=spec,
        round=publication.round,
        digest=stored.digest,
        publication=stored.publication,
        policy=policy,
        state=decode(stored.state, learner_for(spec).state_type),
        people=stored.people,
        received=stored.received,
        total=decode(stored.total, type(empty)),
        taken=stored.taken,
    )
