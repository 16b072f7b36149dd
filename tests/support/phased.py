"""Phased experiments for tests: small specs with changes, and devices' reports for their rounds."""

from copy import deepcopy
from typing import Any

import numpy as np

from privateer_client.participation import Participation
from privateer_core.algorithms import parse_spec
from privateer_core.algorithms.phased import PhasedSpec
from privateer_core.privacy.terms_verification import Limits
from privateer_core.spec.spec import Spec
from privateer_core.wire.publication import Envelope, encode_envelope
from tests.support.publications import KEY

_PLAIN: dict[str, Any] = {
    "experiment": {"name": "test", "horizon": 20_000, "participants": 5_000},
    "actions": {"count": 30, "dimension": 4, "seed": 2},
    "reward": {"low": -1.0, "high": 1.0},
    "privacy": {"model": "none"},
    "algorithm": {"name": "phased"},
    "population": {"name": "linear"},
}
TRUST: dict[str, dict[str, Any]] = {
    "none": {},
    "central": {"model": "central", "epsilon": 4.0, "delta": 1e-6},
    "central-published": {"model": "central", "epsilon": 4.0, "delta": 1e-6},
    "local": {"model": "local", "epsilon": 4.0},
    "local-normal": {"model": "local", "epsilon": 1.0, "delta": 0.25},
    "local-published": {"model": "local", "epsilon": 4.0, "delta": 1e-6},
    "shuffle": {"model": "shuffle", "epsilon": 4.0, "delta": 1e-6, "min_batch": 2, "honest_fraction": 0.6},
    "shuffle-published": {"model": "shuffle", "epsilon": 4.0, "delta": 1e-6, "min_batch": 2, "honest_fraction": 1.0},
}


def tables(changes: dict[str, Any] | None = None, trust: str = "none") -> dict[str, Any]:
    """The tables of a valid spec; ``changes`` maps dotted names to values, None removes a key."""
    data = deepcopy(_PLAIN)
    if trust != "none":
        data["privacy"] = dict(TRUST[trust])
    if trust.endswith("-published"):
        data["algorithm"] = {"name": "paper-5-dp-dpe"}
    for name, value in (changes or {}).items():
        *path, last = name.split(".")
        table = data
        for part in path:
            table = table.setdefault(part, {})
        if value is None:
            table.pop(last, None)
        else:
            table[last] = value
    return data


def phased_spec(changes: dict[str, Any] | None = None, trust: str = "none") -> PhasedSpec:
    """A valid phased spec under a trust model of `TRUST`, changed as in `tables`."""
    spec = parse_spec(tables(changes, trust))
    assert isinstance(spec, PhasedSpec)
    return spec


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
