"""Privacy records for tests, as a server answers with them."""

import json
from dataclasses import replace
from typing import Any

from privateer.families import AnySpec
from privateer_server.api.promises import privacy
from privateer_server.rounds import first_round, following_round, record
from privateer_server.store import RoundRecord
from tests.support.phased import phased_spec
from tests.support.phases import KEY, small_spec
from tests.support.specs import SHUFFLE, make_spec

CENTRAL = {"privacy.model": "central", "privacy.delta": 1e-6}
NONE = {"privacy.model": "none", "privacy.epsilon": None}
SOURCES = [
    {"name": name, "people": people, "epsilon": epsilon, "shares": [0.5, 0.25, 0.25]}
    for name, epsilon, people in (("clinic", 2.0, 1000), ("abroad", 1.5, 1200))
]
REDUCED = {"asking.seconds": 60, "asking.when_short": "reduce", "asking.least_share": 0.6}
SPECS: dict[str, AnySpec] = {
    "local": make_spec(),
    "shuffle": make_spec(SHUFFLE),
    "sources": make_spec(SHUFFLE | {"sources": SOURCES}),
    "central": make_spec(CENTRAL),
    "none": make_spec(NONE),
    "published": make_spec({"privacy.calibration": "published", "privacy.epsilon": 16.0}),
    "phased-local": small_spec("local"),
    "phased-normal": small_spec("local-normal"),
    "phased-shuffle": small_spec("shuffle"),
    "phased-reduced": small_spec("shuffle", REDUCED),
    "phased-central": small_spec("central"),
    "phased-none": small_spec("none"),
    "phased-published": phased_spec({}, "central-published"),
}


def rounds_of(spec: AnySpec, count: int) -> list[RoundRecord]:
    """The first rounds of an experiment: all released but the last, of which nothing was received yet."""
    current = first_round(spec, KEY.public_key().public_bytes_raw(), 1000.0)
    rounds = [record(current, None)]
    for _ in range(count - 1):
        rounds[-1] = replace(rounds[-1], received=rounds[-1].batch, taken=True)
        current = following_round(
            replace(current, received=current.round.batch), KEY.public_key().public_bytes_raw, 1000.0
        )
        rounds.append(record(current, None))
    return rounds


def record_of(name: str, count: int = 1) -> dict[str, Any]:
    """The record of a spec of `SPECS`, as JSON brings it."""
    spec = SPECS[name]
    return dict(json.loads(json.dumps(privacy(spec, rounds_of(spec, count)), allow_nan=False)))
