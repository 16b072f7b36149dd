"""Views of an experiment from the server's memory and store: its answer, its privacy record, its export and others."""

from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final
from weakref import WeakKeyDictionary

import msgspec

from privateer_core.algorithms import parse_spec
from privateer_core.answer import Answer
from privateer_core.answer.conclusion import PublishedAnswer, decode_answer
from privateer_core.answer.export import Export, make_export
from privateer_core.codec import decode, encode
from privateer_core.errors import SpecError
from privateer_core.experiment_status import Status
from privateer_core.privacy.record import PlannedTerms, Record, Row, make_record
from privateer_core.spec.spec import Spec
from privateer_core.wire.publication import Round, decode_publication, digest
from privateer_server.algorithms import learner_for
from privateer_server.api import models
from privateer_server.experiments.changes import CHANGES, Change, Clone, SpecChange, Verb
from privateer_server.experiments.executor import ChangeResult
from privateer_server.experiments.experiment import Experiment
from privateer_server.rounds.open_round import RoundFacts, read_decider, read_schedule
from privateer_server.rounds.states import RoundState
from privateer_server.store.records import LogLine, RoundRecord, ShufflerKey

_cache: Final[WeakKeyDictionary[Experiment, tuple[tuple[bytes, bytes] | None, frozenset[Verb]]]] = WeakKeyDictionary()
"""The refused changes of each experiment, with its spec and the spec of a pending change."""


def build_summary(experiment: Experiment) -> models.Summary:
    """Return the status and progress of an experiment."""
    current = experiment.current
    return models.Summary(
        **_select(current.round, ("version", "model", "batch_size")),
        name=experiment.name,
        status=experiment.status,
        algorithm=current.spec.algorithm.name,
        received=current.received,
        accepted=experiment.n_accepted,
        people=experiment.people,
        digest=current.digest.hex(),
    )


def build_details(experiment: Experiment) -> models.Details:
    """Return the status and progress of an experiment, its refusals by reason, and its spec."""
    return models.Details(
        **dict(build_summary(experiment)),
        refused=dict(experiment.refused),
        shuffler=experiment.shuffler or None,
        allowed_changes=list_allowed_changes(experiment),
        publishes_result=experiment.current.schedule.learner.publishes_result,
        draining_until=_format_time(experiment.current.drain.until) if experiment.current.drain else None,
        spec=experiment.spec.model_dump(mode="json", exclude_none=True),
    )


def build_sealing_key(facts: Round) -> models.SealingKey:
    """Return the public key to which reports of an open round are sealed."""
    round_fields = _select(facts, ("experiment", "version"))
    return models.SealingKey(**round_fields, public_key=facts.public_key.hex(), key_id=facts.key_id.hex())


def build_policy(publication: bytes) -> models.PublishedPolicy:
    """Return the view of a publication."""
    decoded = decode_publication(publication)
    spec = parse_spec(msgspec.json.decode(decoded.spec))
    facts = decoded.round
    return models.PublishedPolicy(
        **_select(facts, ("experiment", "version", "model", "batch_size", "sealed_size", "messages")),
        least=facts.fewest,
        deadline=facts.deadline or None,
        key_id=facts.key_id.hex(),
        digest=digest(publication).hex(),
        policy=read_decider(spec, decoded).view(spec),
    )


def build_state(experiment: Experiment) -> models.PublishedState:
    """Return the learner's answer at the start of the open round, and the progress of that round."""
    current, facts = experiment.current, experiment.current.round
    progress = models.Progress(received=current.received, batch_size=facts.batch_size, deadline=facts.deadline or None)
    round_fields = _select(facts, ("experiment", "version"))
    answer = _with_final_stage(experiment.answer(current), experiment.status)
    return models.PublishedState(**round_fields, status=experiment.status, round=progress, answer=answer)


def build_answer(experiment: Experiment, lines: list[LogLine]) -> PublishedAnswer:
    """Return the conclusion and the learner's answer of an experiment with the given log."""
    current, status = experiment.current, experiment.status
    result = _with_final_stage(experiment.answer(current), status)
    return PublishedAnswer(
        experiment=experiment.name,
        version=current.round.version,
        status=status,
        algorithm=current.spec.algorithm.name,
        began=_format_time(lines[0].at) if lines else None,
        people=None,
        conclusion=experiment.conclusion(current, result),
        result=result,
    )


def read_published_answer(experiment: Experiment) -> Answer | None:
    """Return the answer in the current publication, if it has an answer."""
    decoded = decode_publication(experiment.current.publication)
    return _with_final_stage(decode_answer(decoded.result), experiment.status) if decoded.result else None


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
        released=stored.round_state is RoundState.CLOSED and stored.received >= max(1, terms.honest),
        batch_size=terms.batch_size,
        honest=terms.honest,
        mechanism=terms.mechanism,
        calibration=terms.calibration,
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


def _with_final_stage(answer: Answer, experiment_status: Status) -> Answer:
    """Return an answer with the stage and reason of an end that its learner does not know."""
    if experiment_status is Status.STOPPED and not answer.stop_reason:
        return msgspec.structs.replace(answer, stage="ended", stop_reason="an operator")
    return msgspec.structs.replace(answer, stage="failed") if experiment_status is Status.FAILED else answer


def build_change_result(experiment: Experiment, lines: list[LogLine], outcome: ChangeResult) -> models.Changed:
    """Return the result of a change, with all pending changes."""
    pending = [_build_log_entry(line) for line in lines if line.since is None]
    response_fields = _select(experiment.current.round, ("experiment", "version"))
    response_fields |= {"status": experiment.status, "changed": outcome.is_new, "round_given_up": outcome.is_given_up}
    return models.Changed(**response_fields, pending_changes=pending)


def build_log(name: str, lines: list[LogLine]) -> models.Log:
    """List the changes to an experiment in order."""
    return models.Log(experiment=name, changes=[_build_log_entry(line) for line in lines])


def _build_log_entry(line: LogLine) -> models.LogEntry:
    facts = _select(line, ("action", "detail", "version"))
    return models.LogEntry(at=_format_time(line.at), operator=line.who, since_version=line.since, **facts)


def _format_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def build_history(name: str, rounds: list[RoundRecord]) -> models.RoundHistory:
    """List the published rounds in order."""
    return models.RoundHistory(experiment=name, rounds=[_build_history_row(stored) for stored in rounds])


def _build_history_row(stored: RoundRecord) -> models.HistoryRow:
    facts = decode(stored.facts, RoundFacts)
    return models.HistoryRow(
        **_select(stored, ("version", "batch_size", "received")),
        **_select(facts, ("cohort", "figures")),
        **_select(facts.terms, ("honest", "mechanism")),
        digest=stored.digest.hex(),
    )


def _select(source: object, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(source, name) for name in names}


def list_allowed_changes(experiment: Experiment) -> list[Verb]:
    """Return the changes that status and algorithm accept; a change may still be refused for its own values."""
    status, pending_spec = experiment.status, experiment.current.plan.spec
    spec_pair, refused_verbs = _cache.get(experiment, (None, frozenset()))
    if spec_pair != (experiment.current.schedule.encoded_spec, pending_spec):
        # An algorithm's refusals follow from the specs, so they are computed once for each pair of specs.
        refused_verbs = frozenset(change.verb for change in CHANGES if _is_refused(experiment, change, pending_spec))
        _cache[experiment] = (experiment.current.schedule.encoded_spec, pending_spec), refused_verbs
    possible_verbs = [change.verb for change in CHANGES if not change.statuses() or status in change.statuses()]
    return [verb for verb in possible_verbs if verb not in refused_verbs]


def _is_refused(experiment: Experiment, change: type[Change], pending_spec: bytes) -> bool:
    """Whether the algorithm refuses a change on top of a pending change, as a trial with its learner shows."""
    spec, state = experiment.spec, experiment.current.step.state
    try:
        if issubclass(change, SpecChange):
            current_spec = read_schedule(pending_spec).spec if pending_spec else spec
            learner_for(change.example(current_spec).apply_to_spec(current_spec)).apply_spec_change(state, spec)
        elif issubclass(change, Clone):
            learner = learner_for(spec)
            learner.start_from_state(learner.extract_learned_state(state), spec)
    except SpecError:
        return True
    return False
