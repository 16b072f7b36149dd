"""Privacy records for tests, as a server answers with them."""

import json
from functools import cache
from itertools import islice
from typing import Any

import msgspec

from privateer_core.algorithms import parse_spec
from privateer_core.privacy.record import Row, describe_terms, make_record
from privateer_core.privacy.terms import calibrate
from privateer_core.spec.arms import ArmsSpec, PlannedRound
from privateer_core.spec.spec import Spec
from tests.support.phased import phased_spec
from tests.support.specs import NUMBER, SHUFFLE, linear_spec, make_spec

CENTRAL = {"privacy.model": "central", "privacy.delta": 1e-6}
NONE = {"privacy.model": "none", "privacy.epsilon": None}
SOURCES = [
    {"name": name, "participants": people, "epsilon": epsilon, "shares": [0.5, 0.25, 0.25]}
    for name, epsilon, people in (("clinic", 2.0, 1000), ("abroad", 1.5, 1200))
]
REDUCED = {"recruitment.timeout_seconds": 60, "recruitment.extensions": 0, "recruitment.min_response_rate": 0.6}
SMALL = {"experiment.horizon": 600, "algorithm.alpha": 0.2, "algorithm.participants_factor": 20, "actions.count": 6}


def _of_messages() -> Spec:
    """Reports of three messages, in rounds that soon grow."""
    spec = linear_spec("shuffle", {"x": NUMBER}, {"local_epsilon_max": 16.0}, messages_per_report=3)
    data = spec.model_dump(exclude_none=True)
    data["experiment"]["min_round_fraction"] = 1.0
    return parse_spec(data)


SPECS: dict[str, Spec] = {
    "local": make_spec(),
    "shuffle": make_spec(SHUFFLE),
    "sources": make_spec(SHUFFLE | {"sources": SOURCES}),
    "central": make_spec(CENTRAL),
    "returning": make_spec(SHUFFLE | {"experiment.reports_per_person": 5}),
    "returning-central": make_spec(CENTRAL | {"experiment.reports_per_person": 20}),
    "central-pure": make_spec({"privacy.model": "central"}),
    "hidden": make_spec(SHUFFLE | {"privacy.arm_visibility": "hidden"}),
    "none": make_spec(NONE),
    "messages": _of_messages(),
    "published": make_spec({"algorithm.name": "paper-1-ldpmab", "privacy.epsilon": 16.0}),
    "phased-local": phased_spec(SMALL, "local"),
    "phased-normal": phased_spec(SMALL, "local-normal"),
    "phased-shuffle": phased_spec(SMALL, "shuffle"),
    "phased-reduced": phased_spec(SMALL | REDUCED, "shuffle"),
    "phased-central": phased_spec(SMALL, "central"),
    "phased-none": phased_spec(SMALL, "none"),
    "phased-published": phased_spec({}, "central-published"),
}


def rounds_of(spec: Spec, count: int) -> dict[str, list[Row]]:
    """The first rounds of an experiment by cohort: all released but the last, of which nothing was received yet."""
    first = PlannedRound("", 0, spec.first_batch(""))
    planned = islice(spec.planned_rounds(), count) if isinstance(spec, ArmsSpec) else [first]
    rounds: dict[str, list[Row]] = {}
    for version, turn in enumerate(planned, 1):
        privacy = spec.cohort_privacy(turn.cohort)
        terms = calibrate(
            privacy, turn.batch_size, spec.typical_question(), spec.min_reports(turn.batch_size), spec.reports
        )
        over = version < count
        row = Row(
            version=version,
            received=turn.batch_size * over,
            released=over,
            **msgspec.structs.asdict(describe_terms(terms)),
        )
        rounds.setdefault(turn.cohort, []).append(row)
    return rounds


def record_of(name: str, count: int = 1) -> dict[str, Any]:
    """The record of a spec of `SPECS`, as JSON brings it."""
    return dict(json.loads(_encode_record(name, count)))


@cache
def _encode_record(name: str, count: int) -> str:
    """A record that many tests begin with takes the accountant a while."""
    record = make_record(SPECS[name], rounds_of(SPECS[name], count))
    return json.dumps(msgspec.to_builtins(record), allow_nan=False)
