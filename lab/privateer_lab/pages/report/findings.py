"""What a server publishes of an experiment, read by its types: no algorithm is asked for its name."""

from collections.abc import Mapping
from typing import NamedTuple

from privateer_core.answer import Answer
from privateer_core.answer.policy_view import PolicyView
from privateer_core.privacy.certificate import Certificate
from privateer_core.spec.spec import Spec
from privateer_lab.cli.ask.experiment import answer_in, policy_in
from privateer_lab.pages.review.promises import promised
from privateer_lab.pages.review.subject import ExperimentStanding, running
from privateer_lab.services.rest import ask


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
