"""What a server publishes of an experiment, read by its shape: no algorithm is asked for its name."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from privateer_core.certificate import Certificate
from privateer_core.errors import Unavailable
from privateer_core.result import Contradiction, Result, completed
from privateer_core.spec import Spec
from privateer_lab.rest import NotThere, ask
from privateer_lab.review.promises import promised
from privateer_lab.review.subject import Standing, running


class Findings(NamedTuple):
    """All that a report says of an experiment.

    Attributes
    ----------
    spec, standing, origin
        What was asked, where it stands, and the address of its pages.
    policy, state
        As published.
    result
        None if the algorithm publishes none, or none yet.
    rounds
        Rounds that were learned from.
    promise
        The privacy promise in a line.
    """

    spec: Spec
    standing: Standing
    origin: str
    policy: dict[str, Any]
    state: dict[str, Any]
    result: Result | None
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
    policy, state = ask("GET", f"{page}/policy").get("policy"), ask("GET", f"{page}/state").get("state")
    if not isinstance(policy, dict) or not isinstance(state, dict):
        raise Unavailable("the answer is not a policy", field="--url", remedy="correct the address")
    return Findings(
        spec=subject.spec,
        standing=subject.standing,
        origin=page,
        policy=policy,
        state=state,
        result=_result(page),
        rounds=sum(row.released for part in (subject.record, *subject.record.sources) for row in part.rounds),
        promise=promise_of(subject.certificates),
    )


def promise_of(certificates: Mapping[str, Certificate]) -> str:
    """Return the promise of an experiment's certificates, by cohort, in a line."""
    first = {cohort: certificate.claims[0] for cohort, certificate in certificates.items()}
    return "Nothing is promised to a person." if first[""].epsilon is None else f"{promised(first)}."


def _result(page: str) -> Result | None:
    try:
        return completed(msgspec.convert(ask("GET", f"{page}/result").get("result"), Result))
    except NotThere:
        return None
    except msgspec.ValidationError:
        raise Unavailable("the answer is not a result", field="--url", remedy="correct the address") from None


def contradiction(state: Mapping[str, Any]) -> Contradiction | None:
    """Return what a state says of rewards that move, if it says something."""
    try:
        return msgspec.convert(state["contradiction"], Contradiction)
    except (KeyError, msgspec.ValidationError):
        return None
