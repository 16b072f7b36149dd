"""Makes what anybody may read of an experiment from what the server keeps in memory or has stored."""

from datetime import UTC, datetime
from typing import Any, Final
from weakref import WeakKeyDictionary

import msgspec

from privateer_core.algorithms import parse_spec
from privateer_core.answer import Answer
from privateer_core.answer.conclusion import PublishedAnswer
from privateer_core.answer.export import Status
from privateer_core.answer.stored import decode_answer
from privateer_core.codec import decode
from privateer_core.errors import SpecError
from privateer_core.wire.publication import Round, decode_publication, digest
from privateer_server.algorithms import learner_for
from privateer_server.api import models
from privateer_server.experiments.changes import CHANGES, Change, Clone, SpecChange, Verb
from privateer_server.experiments.executor import CarriedOut
from privateer_server.experiments.experiment import Experiment
from privateer_server.rounds.open_round import RoundFacts, read_decider, read_schedule
from privateer_server.store.records import LogLine, RoundRecord

_known: Final[WeakKeyDictionary[Experiment, tuple[tuple[bytes, bytes] | None, frozenset[Verb]]]] = WeakKeyDictionary()
"""What is refused, by the specs of an experiment and of a change that waits."""


def summary(experiment: Experiment) -> models.Summary:
    """Say where the experiment stands."""
    return models.Summary(**_summary(experiment))


def details(experiment: Experiment) -> models.Details:
    """Say where the experiment stands, why reports were refused, and what it was created from."""
    return models.Details(**_standing(experiment), spec=experiment.spec.model_dump(mode="json", exclude_none=True))


def standing(experiment: Experiment) -> models.Standing:
    """Say where the experiment stands, and why reports were refused."""
    return models.Standing(**_standing(experiment))


def _standing(experiment: Experiment) -> dict[str, Any]:
    return {
        **_summary(experiment),
        "refused": dict(experiment.refused),
        "shuffler": experiment.shuffler or None,
        "accepts": accepted_changes(experiment),
        "publishes_result": experiment.current.schedule.learner.publishes_result,
        "draining_until": _time(experiment.current.drain.until) if experiment.current.drain else None,
    }


def _summary(experiment: Experiment) -> dict[str, Any]:
    current = experiment.current
    return {
        **_named(current.round, ("version", "model", "batch")),
        "name": experiment.name,
        "status": experiment.status,
        "algorithm": current.spec.algorithm.name,
        "received": current.received,
        "accepted": experiment.accepted,
        "people": experiment.people,
        "digest": current.digest.hex(),
    }


def public_key(facts: Round) -> models.PublicKey:
    """Name the key of an open round."""
    about = _named(facts, ("experiment", "version"))
    return models.PublicKey(**about, public_key=facts.public_key.hex(), key_id=facts.key_id.hex())


def policy(publication: bytes) -> models.PublishedPolicy:
    """Describe a publication."""
    published = decode_publication(publication)
    spec = parse_spec(msgspec.json.decode(published.spec))
    facts = published.round
    return models.PublishedPolicy(
        **_named(facts, ("experiment", "version", "model", "batch", "sealed_size", "messages")),
        least=facts.fewest,
        deadline=facts.deadline or None,
        key_id=facts.key_id.hex(),
        digest=digest(publication).hex(),
        policy=read_decider(spec, published).view(spec),
    )


def state(experiment: Experiment) -> models.PublishedState:
    """Describe what the learner knew when it made the policy, and how far the round is."""
    current, facts = experiment.current, experiment.current.round
    progress = models.Progress(received=current.received, batch=facts.batch, deadline=facts.deadline or None)
    about = _named(facts, ("experiment", "version"))
    answer = _ended(experiment.answer(current), experiment.status)
    return models.PublishedState(**about, status=experiment.status, round=progress, answer=answer)


def answer(experiment: Experiment, lines: list[LogLine]) -> PublishedAnswer:
    """Return the answer of an experiment with these changes: what follows from what was found, and all of that."""
    current, status = experiment.current, experiment.status
    found = _ended(experiment.answer(current), status)
    return PublishedAnswer(
        experiment=experiment.name,
        version=current.round.version,
        status=status,
        algorithm=current.spec.algorithm.name,
        began=_time(lines[0].at) if lines else None,
        people=None,
        conclusion=experiment.conclusion(current, found),
        found=found,
    )


def published_answer(experiment: Experiment) -> Answer | None:
    """Return the answer in the current publication; None if it has none."""
    published = decode_publication(experiment.current.publication)
    return _ended(decode_answer(published.result), experiment.status) if published.result else None


def _ended(answer: Answer, status: Status) -> Answer:
    """Return an answer that says why nobody is asked any more where its learner does not know it."""
    if status == "stopped" and not answer.ended:
        return msgspec.structs.replace(answer, status="ended", ended="an operator")
    return msgspec.structs.replace(answer, status="failed") if status == "failed" else answer


def changed(experiment: Experiment, lines: list[LogLine], outcome: CarriedOut) -> models.Changed:
    """Say what became of a change."""
    waiting = [_line(line) for line in lines if line.since is None]
    about = _named(experiment.current.round, ("experiment", "version"))
    about |= {"status": experiment.status, "changed": outcome.is_new, "given_up": outcome.is_given_up}
    return models.Changed(**about, waiting=waiting)


def log(name: str, lines: list[LogLine]) -> models.Log:
    """List the changes to an experiment in order."""
    return models.Log(experiment=name, changes=[_line(line) for line in lines])


def _line(line: LogLine) -> models.LogEntry:
    return models.LogEntry(at=_time(line.at), **_named(line, ("action", "detail", "who", "version", "since")))


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def history(name: str, rounds: list[RoundRecord]) -> models.RoundHistory:
    """List the published rounds in order."""
    return models.RoundHistory(experiment=name, rounds=[_row(row, decode(row.facts, RoundFacts)) for row in rounds])


def _row(stored: RoundRecord, facts: RoundFacts) -> models.HistoryRow:
    return models.HistoryRow(
        **_named(stored, ("version", "batch", "received")),
        **_named(facts, ("cohort", "figures")),
        **_named(facts.terms, ("honest", "mechanism")),
        digest=stored.digest.hex(),
    )


def _named(source: object, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(source, name) for name in names}


def accepted_changes(experiment: Experiment) -> list[Verb]:
    """Return the changes that make sense where an experiment stands, and that its algorithm does not refuse.

    One of them may still be refused for its own figures, such as a horizon that is too short.
    """
    status, waiting = experiment.status, experiment.current.plan.spec
    about, refused = _known.get(experiment, (None, frozenset()))
    if about != (experiment.current.schedule.encoded, waiting):
        # What an algorithm refuses follows from the specs, so it is asked once for each, and not at every version.
        refused = frozenset(change.verb for change in CHANGES if _is_refused(experiment, change, waiting))
        _known[experiment] = (experiment.current.schedule.encoded, waiting), refused
    fitting = [change.verb for change in CHANGES if not change.when or status in change.when]
    return [verb for verb in fitting if verb not in refused]


def _is_refused(experiment: Experiment, change: type[Change], waiting: bytes) -> bool:
    """Whether the algorithm refuses a change, beside one that waits: its learner is asked to carry it out."""
    spec, state = experiment.spec, experiment.current.step.state
    try:
        if issubclass(change, SpecChange):
            before = read_schedule(waiting).spec if waiting else spec
            learner_for(change.example(before).respec(before)).changed(state, spec)
        elif issubclass(change, Clone):
            learner = learner_for(spec)
            learner.begun(learner.learned(state), spec)
    except SpecError:
        return True
    return False
