"""Phased experiments for tests of services: small specs, and devices' reports for their rounds."""

from typing import Any

import numpy as np

from privateer_client.participation import Participation
from privateer_core.privacy.terms_verification import Limits
from privateer_core.spec.spec import Spec
from privateer_core.wire.publication import Envelope, encode_envelope
from tests.support.phased import phased_spec
from tests.support.publications import KEY

SMALL = {"experiment.horizon": 600, "algorithm.alpha": 0.2, "algorithm.participants_factor": 20, "actions.count": 6}
UNLIMITED = float("inf")
LIMITS = Limits(
    epsilon=UNLIMITED, delta=1e-6, local_epsilon=UNLIMITED, honest_fraction=0.9, min_batch=10, allow_central=True
)

__all__ = ["KEY", "LIMITS", "SMALL", "body", "sealed", "small_spec"]


def small_spec(trust: str, changes: dict[str, Any] | None = None) -> Spec:
    """Five phases of 23 to 40 people."""
    return phased_spec({**SMALL, **(changes or {})}, trust)


def sealed(publication: bytes, people: int, seed: int = 0) -> list[bytes]:
    """Make the reports of so many participants for a round, a report each."""
    round_ = Participation(publication, "test", LIMITS)
    contexts, coins = np.zeros((people, 0)), round_.draw_coins(people)
    plays = round_.decide(contexts, coins)
    averages = np.random.default_rng(seed).uniform(-1, 1, (people, len(plays.actions)))
    return round_.make_reports(contexts, coins, plays, averages)


def body(publication: bytes, reports: list[bytes]) -> bytes:
    """The request that uploads them."""
    return encode_envelope(Envelope(Participation(publication, "test", LIMITS).header, b"".join(reports)))
