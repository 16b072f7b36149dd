"""Exports with a learned state that nobody has learned: the experiment would start, and could close no round."""

import base64
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privateer_core.algorithms import parse_spec
from privateer_core.codec import decode, encode
from privateer_core.errors import SpecError
from privateer_server.algorithms import learner_for
from privateer_server.experiments.executor import start_from_export
from privateer_server.rounds.schedule import Schedule
from tests.documents.exports import build_export, decode_export, redigest
from tests.documents.vectors import publication_of
from tests.support.specs import tables

Change = Callable[[Any], dict[str, Any]]

SPECS: dict[str, dict[str, Any]] = {
    "partition": {},
    "bandit": {"context": None},
    "additive": {"privacy.epsilon": 4.0},
    "additive with coins": {"privacy.epsilon": 2.0},
}


def change_evidence(change: Callable[[Any], Any]) -> Change:
    """Return a change of all sums of discounted evidence."""
    return lambda discounted: {"evidence": discounted.evidence.map_arrays(change)}


FORGERIES: dict[str, Change] = {
    "a half-life that there is not": lambda _: {"used": 4},
    "a half-life that counts from the end": lambda _: {"used": -1},
    "probabilities of three half-lives": lambda discounted: {"probabilities": discounted.probabilities[:3]},
    "probabilities in two dimensions": lambda _: {"probabilities": np.ones((4, 4))},
    "infinite probabilities": lambda _: {"probabilities": np.full(4, np.inf)},
    "negative probabilities": lambda _: {"probabilities": np.array([-1.0, 1.0, 1.0, 1.0])},
    "no probability": lambda _: {"probabilities": np.zeros(4)},
    "sums of one half-life": change_evidence(lambda values: values[:1]),
    "sums of five half-lives": change_evidence(lambda values: np.concatenate([values, values[:1]])),
    "infinite sums of a half-life that is not in use": change_evidence(
        lambda values: np.concatenate([values[:3], np.full_like(values[:1], np.inf)])
    ),
}


def start_from_changed_export(name: str, change: Change) -> Any:
    """Return the first state of an experiment from an export with changed evidence under half-lives."""
    changes = {"algorithm.name": name.partition(" ")[0], "algorithm.half_life": "auto", **SPECS[name]}
    spec = parse_spec(tables(changes))
    document = decode_export(build_export(spec, publication_of(spec)))
    state: Any = decode(base64.b64decode(document["state"]), learner_for(spec).state_type)
    forged = replace(state, discounted=replace(state.discounted, **change(state.discounted)))
    encoded = base64.b64encode(encode(forged)).decode()
    start = start_from_export(redigest({**document, "state": encoded, "digest": None}))
    assert start.make_state is not None
    return start.make_state(Schedule(spec))


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("forgery", FORGERIES)
def test_evidence_under_half_lives_that_the_spec_has_not_is_refused(name: str, forgery: str) -> None:
    """Devices would spend their reports on a round that no learner can read."""
    with pytest.raises(SpecError, match="does not fit its spec"):
        start_from_changed_export(name, FORGERIES[forgery])


@pytest.mark.parametrize("name", SPECS)
def test_evidence_of_another_experiment_has_none_of_its_reports(name: str) -> None:
    discounted = start_from_changed_export(name, lambda _: {"used": 3, "n_own_reports": 1 << 40}).discounted
    assert (discounted.used, discounted.n_own_reports) == (3, 0)
