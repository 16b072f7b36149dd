"""Publications for tests of devices: as a server makes them, and with lies."""

from dataclasses import replace
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from privateer.algorithms.partition import PartitionPolicy
from privateer.codec import encode
from privateer.experiment import Spec, next_turn
from privateer.wire.publication import Publication, Round, encode_publication
from privateer_server.algorithms import learner_for
from tests.support.specs import SHUFFLE, make_spec

KEY = X25519PrivateKey.generate()


def shuffle_spec(**changes: Any) -> Spec:
    """A spec under shuffle privacy."""
    return make_spec({**SHUFFLE, **changes})


def published(
    spec: Spec,
    *,
    batch: int | None = None,
    terms: dict[str, Any] | None = None,
    round_: dict[str, Any] | None = None,
    shown: Spec | None = None,
    cohort: str | None = None,
) -> bytes:
    """An encoded publication of a spec's first round; ``terms``, ``round_`` and ``shown`` lie about it."""
    learner = learner_for(spec)
    turn = next_turn(spec, None)
    batch = turn.batch if batch is None else batch
    policy: PartitionPolicy = learner.policy(learner.start(), 1, batch, 7, turn.cohort if cohort is None else cohort)
    size = 64 + policy.mechanism.report_size
    policy = replace(policy, terms=replace(policy.terms, **(terms or {})))
    facts = {
        "experiment": spec.experiment.name,
        "version": 1,
        "model": spec.privacy.model,
        "batch": batch,
        "sealed_size": size,
        "public_key": KEY.public_key().public_bytes_raw(),
    }
    body = (shown or spec).model_dump_json().encode()
    return encode_publication(Publication(Round(**(facts | (round_ or {}))), body, encode(policy)))
