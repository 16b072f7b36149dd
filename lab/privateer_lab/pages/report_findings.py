"""Reads what a server says of an experiment, and puts it into words for a page."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from privateer_core.answer import Answer
from privateer_core.answer.conclusion import PublishedAnswer
from privateer_core.answer.estimates import Effect
from privateer_core.answer.parts import Contradiction, GuardrailEffects
from privateer_core.answer.policy_view import PolicyView
from privateer_core.privacy.certificate import Certificate
from privateer_core.spec.spec import Spec
from privateer_lab.answer_words import OVER, contradicted, sentences
from privateer_lab.figures import readable
from privateer_lab.pages.review.promises import promised
from privateer_lab.pages.review.subject import ExperimentStanding, running
from privateer_lab.services.rest import ask, policy_in, published_answer

_REFUSED: Final = 0.05
"""Share of refused reports that is worth a warning."""
_STATUS: Final = {
    "open": "The experiment is still running, so what follows may change.",
    "paused": "The experiment is paused: nobody is asked now.",
    "draining": "The experiment asks nobody now, and waits for late reports.",
    "stopped": "The experiment was stopped.",
    "finished": "The experiment is finished.",
    "failed": "The experiment failed: a round came to no end.",
}
_NOTHING_YET: Final = "No round is complete yet, so nothing has been learned: the policy is the one it began with."
_NOTHING_CAME: Final = "No round was completed, so nothing was learned: no report supports what the policy gives."


class Findings(NamedTuple):
    """All that a report says of an experiment."""

    # what was asked, where it stands, and the address of its pages
    spec: Spec
    standing: ExperimentStanding
    origin: str
    # the policy and the answer, as published
    policy: PolicyView
    published: PublishedAnswer
    rounds: int  # rounds that were learned from
    promise: str  # the privacy promise in a line

    @property
    def answer(self) -> Answer:
        """All that the learner found."""
        return self.published.found


def findings(name: str, url: str) -> Findings:
    """Ask a server for an experiment."""
    subject = running(name, url)
    page = subject.origin
    assert subject.standing
    return Findings(
        spec=subject.spec,
        standing=subject.standing,
        origin=page,
        policy=policy_in(ask("GET", f"{page}/policy").get("policy")),
        published=published_answer(url, name),
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
    learned = "1 round was" if found.rounds == 1 else f"{found.rounds:,} rounds were"
    yield f"{found.standing.people.sentence} {learned.capitalize()} learned from."
    if not found.answer.ended:
        yield _STATUS[standing.status]
    if not found.rounds:
        yield _NOTHING_CAME if standing.status in OVER else _NOTHING_YET
        return
    yield from sentences(found.published.conclusion, found.answer)


def _effect_in_words(one: Effect) -> str:
    if one.value is None:
        return one.name
    low, high = (readable(end) if end is not None else "no end" for end in (one.low, one.high))
    return f"{one.name} {readable(one.value)} ({low} to {high})"


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
