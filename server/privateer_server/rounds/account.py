"""The account of an experiment's people where it stands: of a server's rounds, and of simulated ones."""

from collections.abc import Mapping

from privateer_core.answer.people import GIVEN_UP, HeldReports, People
from privateer_server.rounds.loop import Schedule, Step


def account_of(
    schedule: Schedule,
    step: Step,
    closed: int,
    held: HeldReports | None = None,
    refused: Mapping[str, int] | None = None,
    *,
    is_replaced: bool = False,
    is_draining: bool = False,
    is_unknown: bool = False,
) -> People:
    """Return the account where a step is open, or nobody is asked any more.

    closed: reports of all closed rounds, those that were given up among them.
    held, refused: what waits, and what was refused by reason.
    is_replaced: whether others are asked in the place of the refused.
    is_draining: whether late reports alone are awaited, so that nobody else is asked.
    is_unknown: whether a shuffler may hold reports for the open round, which cannot be seen here.
    """
    held, refused, spec = held or HeldReports(), refused or {}, schedule.spec
    cohort = schedule.learner.planned_round(step.state).cohort
    earlier = spec.cohorts[: spec.cohorts.index(cohort)]
    people = sum(source.people for source in spec.sources if source.name in earlier)
    of_earlier = min(closed - step.seen, people)
    lost = closed - step.seen - of_earlier
    replaced = sum(refused.values()) if is_replaced else 0
    if (draw := step.policy.draw) is not None:  # people are drawn for a round, and those who do not come are lost to it
        beyond = max(0, draw.start - closed)
    else:
        beyond, replaced = people - of_earlier + schedule.learner.out_of_reach(step.state), replaced + lost
    return People.from_parts(
        spec.planned_reports,
        step.seen + of_earlier,
        held=held,
        refused={**refused, GIVEN_UP: lost} if lost else refused,
        replaced=replaced,
        out_of_reach=spec.planned_reports if is_draining else beyond,
        is_unknown=is_unknown,
    )
