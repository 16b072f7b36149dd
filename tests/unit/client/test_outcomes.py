"""What answers decide about one report."""

import msgspec
import pytest

from privateer_client.delivery import EndpointAnswer, judge, outcome_of
from privateer_client.states import Outcome
from privateer_core.errors import PrivateerError, ReportRefused
from privateer_core.wire.problem import problem_type


def told(status: int, slug: str = "", **members: object) -> EndpointAnswer:
    return EndpointAnswer(status, msgspec.json.encode({"type": problem_type(slug)} | members))


def slugs(error: type[PrivateerError]) -> set[str]:
    return {error.slug}.union(*(slugs(kind) for kind in error.__subclasses__() if kind.__module__ == error.__module__))


@pytest.mark.parametrize(
    ("answer", "outcome", "reason"),
    [
        (None, "pending", None),
        (EndpointAnswer(202), "accepted", None),
        (EndpointAnswer(200, b"<html>"), "pending", "unknown"),
        (EndpointAnswer(204), "pending", "unknown"),
        (EndpointAnswer(307), "pending", "unknown"),
        (EndpointAnswer(400, b"<html>"), "pending", "unknown"),
        (told(409, "duplicate-report"), "accepted", None),
        (told(409, "round-closed"), "late", "round-closed"),
        (told(500, "round-closed"), "pending", "round-closed"),
        (told(200, "round-closed"), "pending", "round-closed"),
        (told(409, "round-unknown"), "pending", "round-unknown"),
        (told(429, "malformed-report"), "pending", "malformed-report"),
        (told(400, "malformed-report"), "refused", "malformed-report"),
        (told(404, "not-found"), "pending", "not-found"),
        (told(503, "unavailable"), "pending", "unavailable"),
    ],
)
def test_only_a_verdict_on_the_report_is_final(answer: EndpointAnswer | None, outcome: str, reason: str | None) -> None:
    assert judge(answer) == (outcome, reason)


def test_every_refusal_of_a_report_is_final_but_those_that_are_not_about_the_report() -> None:
    """A reason that is added to the errors has to be judged here, too."""
    waits = {slug for slug in slugs(ReportRefused) if outcome_of(slug) is Outcome.PENDING}
    tokens = {f"token-{why}" for why in ("refused", "missing", "invalid", "elsewhere", "expired", "spent")}
    assert waits == {"round-unknown", "sender-refused"} | tokens
    others = slugs(PrivateerError) - slugs(ReportRefused)
    assert {slug for slug in others if outcome_of(slug) is not Outcome.PENDING} == {
        "too-large",
        "terms-refused",
        "spec-invalid",
        "deleted",
    }
