"""Finds why services would refuse an experiment, from its first round and from the largest that may follow."""

from privateer_core.errors import SpecError
from privateer_core.privacy.trust import TIGHT
from privateer_core.serving.admission import ExperimentSize, RoundSize, ServerLimits, ShufflerLimits
from privateer_server.intake.opening import SEALED_SIZE
from privateer_server.rounds.loop import Schedule, Step


def find_experiment_refusals(
    schedule: Schedule, first: Step, server: ServerLimits | None = None, shuffler: ShufflerLimits | None = None
) -> list[SpecError]:
    """Return all reasons for which services with these limits refuse a new experiment."""
    if schedule.spec.privacy.trust.calibration != TIGHT:
        detail, remedy = "is for simulation alone", "choose another here, or use privateer simulate"
        return [SpecError(detail, field="algorithm.name", remedy=remedy)]
    if not first.batch:
        detail = "what was learned before leaves nobody to ask"
        return [SpecError(detail, field="experiment.horizon", remedy="raise it, or begin without")]
    return measure_experiment(schedule, first).find_refusals(server, shuffler)


def measure_experiment(schedule: Schedule, first: Step) -> ExperimentSize:
    """Return the size of an experiment, whichever seed its first step has."""
    spec, learner = schedule.spec, schedule.learner
    rounds = [RoundSize(bulk.people, bulk.messages, SEALED_SIZE + bulk.size) for bulk in learner.bulk(first)]
    return ExperimentSize(spec.smallest_batch, rounds, spec.privacy.trust.shuffled, learner.growth)
