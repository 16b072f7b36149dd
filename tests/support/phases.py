"""Published phases for tests: as a server makes them, and with lies; and devices' reports for them."""

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from privateer.codec import encode
from privateer.phased import PhasedSpec
from privateer.verification import Limits
from privateer.wire.envelope import Envelope, encode_envelope
from privateer.wire.publication import Publication, encode_publication
from privateer_client.phase import Phase
from privateer_server.rounds import first_round
from tests.support.phased import phased_spec

KEY = X25519PrivateKey.generate()
SMALL = {"experiment.horizon": 600, "algorithm.alpha": 0.2, "algorithm.clients": 20, "actions.count": 6}
UNLIMITED = float("inf")
LIMITS = Limits(epsilon=UNLIMITED, delta=1e-6, local_epsilon=UNLIMITED, honest_fraction=0.9, min_batch=10, curator=True)


def small_spec(trust: str, changes: dict[str, Any] | None = None) -> PhasedSpec:
    """Five phases of 23 to 40 people."""
    return phased_spec({**SMALL, **(changes or {})}, trust)


def published(
    spec: PhasedSpec,
    *,
    terms: dict[str, Any] | None = None,
    policy: dict[str, Any] | None = None,
    round_: dict[str, Any] | None = None,
    shown: PhasedSpec | None = None,
) -> bytes:
    """The publication of a spec's first phase; the changes are lies about it."""
    first = first_round(spec, KEY.public_key().public_bytes_raw(), 1000.0)
    told = replace(first.policy, terms=replace(first.policy.terms, **(terms or {})), **(policy or {}))
    facts = msgspec.structs.replace(first.round, **(round_ or {}))
    return encode_publication(Publication(facts, (shown or spec).model_dump_json().encode(), encode(told)))


def sealed(publication: bytes, people: int, seed: int = 0) -> list[bytes]:
    """What so many people send for a phase, each what one person does."""
    phase = Phase(publication, "test", LIMITS)
    averages = np.random.default_rng(seed).uniform(-1, 1, (people, len(phase.policy.support)))
    return phase.reports(averages)


def body(publication: bytes, reports: list[bytes]) -> bytes:
    """The request that uploads them."""
    return encode_envelope(Envelope(Phase(publication, "test", LIMITS).header, b"".join(reports)))
