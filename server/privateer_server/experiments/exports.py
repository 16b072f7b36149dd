"""Privacy records and exports of experiments, and starts of experiments from an export."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final

import numpy as np

from privateer_core.algorithms import parse_spec
from privateer_core.answer.export import Export, make_export, read_export
from privateer_core.codec import decode, encode
from privateer_core.errors import PrivateerError, SpecError
from privateer_core.policies.gain_policy import check_policy
from privateer_core.privacy.record import PlannedTerms, Record, Row, make_record
from privateer_core.spec.spec import Spec
from privateer_core.wire.publication import decode_publication
from privateer_server.algorithms import learner_for
from privateer_server.api.views import read_published_answer
from privateer_server.experiments.catalog import Start
from privateer_server.experiments.experiment import Experiment
from privateer_server.rounds.loop import Schedule
from privateer_server.rounds.open_round import RoundFacts, read_decider
from privateer_server.store.records import RoundRecord, ShufflerKey

_EXPORT_FIELD: Final = "warm_start"


def build_record(spec: Spec, rounds: list[RoundRecord], shufflers: Mapping[int, ShufflerKey]) -> Record:
    """Return the privacy record of an experiment from its rounds, released or not, and their shufflers."""
    by_cohort = defaultdict[str, list[Row]](list)
    for stored in rounds:
        if stored.batch_size:
            facts = decode(stored.facts, RoundFacts)
            by_cohort[facts.cohort].append(_build_row(stored, facts.terms, shufflers.get(stored.version)))
    return make_record(spec, by_cohort, [stored.version for stored in rounds if not stored.batch_size])


def _build_row(stored: RoundRecord, terms: PlannedTerms, shuffler_key: ShufflerKey | None) -> Row:
    """Return the row of a round in the privacy record; nothing is released below the honest minimum."""
    return Row(
        version=stored.version,
        received=stored.received,
        released=stored.taken and stored.received >= max(1, terms.honest),
        batch_size=terms.batch_size,
        honest=terms.honest,
        mechanism=terms.mechanism,
        shuffler=shuffler_key.shuffler if shuffler_key else None,
        organisation=shuffler_key.organisation if shuffler_key else None,
    )


def build_export(experiment: Experiment, rounds: list[RoundRecord], shufflers: Mapping[int, ShufflerKey]) -> Export:
    """Return the export of an experiment from its rounds and their shufflers."""
    current, spec = experiment.current, experiment.spec
    publication = decode_publication(current.publication)
    return make_export(
        experiment.name,
        current.round.version,
        experiment.status,
        spec=spec.model_dump(mode="json", exclude_none=True),
        policy=read_decider(spec, publication).view(spec),
        result=read_published_answer(experiment),
        record=build_record(spec, rounds, shufflers),
        state=encode(current.step.state),
        publication=current.publication,
    )


def start_from_export(document: dict[str, Any]) -> Start:
    """Return the start of an experiment with the learned state of an export."""
    export = read_export(document, _EXPORT_FIELD)
    old_spec = parse_spec(export.spec)
    detail = f"warm start from {old_spec.name} at version {export.version}"
    return Start(lambda schedule: _read_initial_state(schedule, old_spec, export.state_bytes), "create", detail)


def _read_initial_state(schedule: Schedule, old_spec: Spec, encoded: bytes) -> Any:
    """Decode an untrusted learner state, and check that it leads to a valid policy."""
    if old_spec.algorithm.name != schedule.spec.algorithm.name:
        detail = "differs from that of the experiment to begin with"
        raise SpecError(detail, field="algorithm.name", remedy="make it the same, or begin without")
    try:
        state = decode(encoded, learner_for(old_spec).state_type)
        initial_state = schedule.learner.start_from_state(learner_for(old_spec).extract_learned_state(state), old_spec)
        if _has_nan(state):
            raise ValueError("not a number")
        check_policy(schedule.open(0, 1, initial_state).policy, schedule.spec)
        schedule.learner.answer(initial_state)
    except SpecError:
        raise
    except (PrivateerError, ValueError, TypeError, IndexError, ArithmeticError, AttributeError, AssertionError):
        raise SpecError("its state does not fit its spec", field=_EXPORT_FIELD, remedy="export it again") from None
    return initial_state


def _has_nan(value: Any) -> bool:
    """Whether a state contains a NaN at any depth."""
    if is_dataclass(value):
        return any(_has_nan(getattr(value, state_field.name)) for state_field in fields(value))
    if isinstance(value, tuple | list):
        return any(map(_has_nan, value))
    return isinstance(value, np.ndarray | float) and bool(np.isnan(value).any())
