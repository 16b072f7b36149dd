"""Documents of what an experiment has found and promised: its privacy record, its export, and a start with one."""

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
from privateer_server.api.views import published_answer
from privateer_server.experiments.catalog import Start
from privateer_server.experiments.experiment import Experiment
from privateer_server.rounds.loop import Schedule
from privateer_server.rounds.open_round import RoundFacts, read_decider
from privateer_server.store.records import RoundRecord, ShufflerKey

_FIELD: Final = "warm_start"


def privacy(spec: Spec, rounds: list[RoundRecord], closers: Mapping[int, ShufflerKey]) -> Record:
    """Return the record of an experiment with these rounds, released or not, and whose batches they took."""
    by_cohort = defaultdict[str, list[Row]](list)
    for stored in rounds:
        if stored.batch:
            facts = decode(stored.facts, RoundFacts)
            by_cohort[facts.cohort].append(_row(stored, facts.terms, closers.get(stored.version)))
    return make_record(spec, by_cohort, [stored.version for stored in rounds if not stored.batch])


def _row(stored: RoundRecord, terms: PlannedTerms, closer: ShufflerKey | None) -> Row:
    # Nothing is released below the honest minimum.
    return Row(
        version=stored.version,
        received=stored.received,
        released=stored.taken and stored.received >= max(1, terms.honest),
        batch=terms.batch,
        honest=terms.honest,
        mechanism=terms.mechanism,
        shuffler=closer.shuffler if closer else None,
        organisation=closer.organisation if closer else None,
    )


def exported(experiment: Experiment, rounds: list[RoundRecord], closers: Mapping[int, ShufflerKey]) -> Export:
    """Return the document of an experiment with these rounds, and whose batches they took."""
    current, spec = experiment.current, experiment.spec
    published = decode_publication(current.publication)
    return make_export(
        experiment.name,
        current.round.version,
        experiment.status,
        spec=spec.model_dump(mode="json", exclude_none=True),
        policy=read_decider(spec, published).view(spec),
        result=published_answer(experiment),
        record=privacy(spec, rounds, closers),
        state=encode(current.step.state),
        publication=current.publication,
    )


def start_with(document: dict[str, Any]) -> Start:
    """Return how an experiment begins with what an exported one has learned."""
    found = read_export(document, _FIELD)
    before = parse_spec(found.spec)
    detail = f"warm start from {before.name} at version {found.version}"
    return Start(lambda schedule: _begun(schedule, before, found.learned), "create", detail)


def _begun(schedule: Schedule, before: Spec, encoded: bytes) -> Any:
    """Read a state that somebody wrote, and see that a policy follows from it."""
    if before.algorithm.name != schedule.spec.algorithm.name:
        detail = "differs from that of the experiment to begin with"
        raise SpecError(detail, field="algorithm.name", remedy="make it the same, or begin without")
    try:
        state = decode(encoded, learner_for(before).state_type)
        begun = schedule.learner.begun(learner_for(before).learned(state), before)
        if _has_nan(state):
            raise ValueError("not a number")
        check_policy(schedule.open(0, 1, begun).policy, schedule.spec)
        schedule.learner.answer(begun)
    except SpecError:
        raise
    except (PrivateerError, ValueError, TypeError, IndexError, ArithmeticError, AttributeError, AssertionError):
        raise SpecError("its state does not fit its spec", field=_FIELD, remedy="export it again") from None
    return begun


def _has_nan(value: Any) -> bool:
    """Whether a number of a state, or of any part of it, is none."""
    if is_dataclass(value):
        return any(_has_nan(getattr(value, one.name)) for one in fields(value))
    if isinstance(value, tuple | list):
        return any(map(_has_nan, value))
    return isinstance(value, np.ndarray | float) and bool(np.isnan(value).any())
