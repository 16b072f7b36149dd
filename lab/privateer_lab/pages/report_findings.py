"""Reads what a server says of an experiment, and puts it into words for a page."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from privateer_core.answer import Answer
from privateer_core.answer.estimates import Effect, Estimate
from privateer_core.answer.parts import Contradiction, GuardrailEffects
from privateer_core.answer.policy_view import BinShares, GroupShares, PolicyView, Shares, leading
from privateer_core.privacy.certificate import Certificate
from privateer_core.spec.spec import Spec
from privateer_lab.answer_words import OVER, contradicted, ending, ranked, sentences
from privateer_lab.figures import readable, whole_percent
from privateer_lab.pages.review.promises import promised
from privateer_lab.pages.review.subject import ExperimentStanding, running
from privateer_lab.services.rest import answer_in, ask, policy_in

_REFUSED: Final = 0.05
"""Share of refused reports that is worth a warning."""
_TOLD: Final = 5
"""Findings that are named one by one."""
_STATUS: Final = {
    "open": "The experiment is still running, so what follows may change.",
    "paused": "The experiment is paused: nobody is asked now.",
    "draining": "The experiment asks nobody any more, and waits for late reports.",
    "stopped": "The experiment was stopped.",
    "finished": "The experiment is finished.",
    "failed": "The experiment failed: a round came to no end.",
}
_NOTHING_YET: Final = "No round is complete yet, so nothing has been learned: the policy is the one it began with."
_NOTHING_CAME: Final = "No round was completed, so nothing was learned: no report supports what the policy gives."


class Findings(NamedTuple):
    """All that a report says of an experiment.

    Attributes
    ----------
    spec, standing, origin
        What was asked, where it stands, and the address of its pages.
    policy, answer
        As published.
    rounds
        Rounds that were learned from.
    promise
        The privacy promise in a line.
    """

    spec: Spec
    standing: ExperimentStanding
    origin: str
    policy: PolicyView
    answer: Answer
    rounds: int
    promise: str


def findings(name: str, url: str) -> Findings:
    """Ask a server for an experiment.

    Raises
    ------
    PrivateerError
        If the server does not answer, or has no such experiment, or answers with something else.
    """
    subject = running(name, url)
    page = subject.origin
    assert subject.standing
    return Findings(
        spec=subject.spec,
        standing=subject.standing,
        origin=page,
        policy=policy_in(ask("GET", f"{page}/policy").get("policy")),
        answer=answer_in(ask("GET", f"{page}/state").get("answer")),
        rounds=sum(row.released for part in (subject.record, *subject.record.sources) for row in part.rounds),
        promise=promise_of(subject.certificates),
    )


def promise_of(certificates: Mapping[str, Certificate]) -> str:
    """Return the promise of an experiment's certificates, by cohort, in a line."""
    first = {cohort: certificate.claims[0] for cohort, certificate in certificates.items()}
    return "Nothing is promised to a person." if first[""].epsilon is None else f"{promised(first)}."


def meaning(found: Findings) -> str:
    """Return the paragraph that says what was found."""
    return " ".join(_meaning(found))


def _meaning(found: Findings) -> Iterator[str]:
    standing = found.standing
    people = f"{standing.accepted:,} of at most {standing.planned:,} reports count"
    learned = "1 round was" if found.rounds == 1 else f"{found.rounds:,} rounds were"
    yield f"{people}, and {learned} learned from."
    if not found.answer.ended:
        yield _STATUS[standing.status]
    if not found.rounds:
        yield _NOTHING_CAME if standing.status in OVER else _NOTHING_YET
        return
    yield from _of_the_answer(found.answer) if found.answer.concludes else _of_the_policy(found)


def _of_the_answer(answer: Answer) -> Iterator[str]:
    yield from sentences(answer)
    decided = [_effect_in_words(one) for one in ranked(answer.effects) if one.is_decided]
    if decided:
        more = "" if len(decided) <= _TOLD else f", and {len(decided) - _TOLD:,} more"
        yield f"These effects are decided: {'; '.join(decided[:_TOLD])}{more}."
    elif not answer.effects and answer.recommended is None:
        yield from _of_the_best(answer.estimates)


def _effect_in_words(one: Effect) -> str:
    if one.value is None:
        return one.name
    low, high = (readable(end) if end is not None else "no end" for end in (one.low, one.high))
    return f"{one.name} {readable(one.value)} ({low} to {high})"


def _of_the_best(estimates: tuple[Estimate, ...]) -> Iterator[str]:
    if not estimates:
        return
    best = max(estimates, key=lambda one: one.value)
    about = f"{best.name}, {readable(best.value)} ({readable(best.low)} to {readable(best.high)})"
    if len(estimates) == 1:
        yield f"It estimates {about}."
        return
    rivals = [one.name for one in estimates if one is not best and one.high >= best.low]
    yield f"The highest estimate is that of {about}."
    if rivals:
        named = ", ".join(rivals[:_TOLD]) + ("" if len(rivals) <= _TOLD else f" and {len(rivals) - _TOLD:,} more")
        yield f"Its interval overlaps with that of {named}, so these may be as good."
    else:
        yield "Its interval overlaps with no other."


def _of_the_policy(found: Findings) -> Iterator[str]:
    """Say what a policy of which nothing else is concluded plays."""
    shows = found.policy.shows
    if isinstance(shows, BinShares):
        yield from _of_the_shares([one.arms for one in shows.bins], "bins of people")
    elif isinstance(shows, GroupShares):
        yield from _of_the_shares([one.arms for one in shows.groups], "groups of people")
    else:
        yield "The policy below is what was found."
    if said := ending(found.answer):
        yield said


def _of_the_shares(rows: Sequence[Shares], kind: str) -> Iterator[str]:
    led: dict[str, int] = {}
    for arms in rows:
        ahead = leading(arms) or "none, since several have the same share,"
        led[ahead] = led.get(ahead, 0) + 1
    single = sum(len([share for share in arms.values() if share > 0]) == 1 for arms in rows)
    if len(rows) == 1:
        arm = leading(rows[0])
        most = f"{whole_percent(max(rows[0].values()))} of the people"
        yield f"{arm} is played most, to {most}." if arm else f"No arm is played most: several are, to {most} each."
        return
    counts = ", ".join(f"{arm} in {count:,}" for arm, count in sorted(led.items(), key=lambda one: -one[1]))
    yield f"The policy parts people into {len(rows):,} {kind}; the arm that is played most is {counts}."
    several = len(rows) - single
    if not single:
        yield "In each of them several arms are still tried."
    elif several:
        yield f"In {single:,} of them one arm is in play; in the other {several:,} several are still tried."
    else:
        yield "In each of them one arm is in play."


def warnings(found: Findings) -> list[str]:
    """Return what to look at before anybody acts on the result."""
    return list(_warnings(found))


def _warnings(found: Findings) -> Iterator[str]:
    yield from found.spec.concerns()
    yield from found.answer.warnings
    for moved in found.answer.all_of(Contradiction):
        if moved.found:
            yield contradicted(moved)
    refused = sum(found.standing.refused.values())
    if refused > _REFUSED * (refused + found.standing.accepted):
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in found.standing.refused.items())
        yield f"{refused:,} reports were refused ({reasons}). docs/problems.md says why that happens."
    for part in found.answer.all_of(GuardrailEffects):
        for one in part.effects:
            if one.is_decided:
                yield f"guardrail: {part.name} changes: {_effect_in_words(one)}"
