"""The status of a report after each response of the endpoint."""

import msgspec
import pytest

from privateer_client.delivery import EndpointAnswer, judge_answer, refusal_status
from privateer_client.states import ReportStatus
from privateer_core.errors import PrivateerError, ReportRefused
from privateer_core.wire.problem import problem_type


def endpoint_response(status: int, slug: str = "", **members: object) -> EndpointAnswer:
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
        (endpoint_response(409, "duplicate-report"), "accepted", None),
        (endpoint_response(409, "round-closed"), "late", "round-closed"),
        (endpoint_response(500, "round-closed"), "pending", "round-closed"),
        (endpoint_response(200, "round-closed"), "pending", "round-closed"),
        (endpoint_response(409, "round-unknown"), "pending", "round-unknown"),
        (endpoint_response(429, "malformed-report"), "pending", "malformed-report"),
        (endpoint_response(400, "malformed-report"), "refused", "malformed-report"),
        (endpoint_response(404, "not-found"), "pending", "not-found"),
        (endpoint_response(503, "unavailable"), "pending", "unavailable"),
    ],
)
def test_only_a_verdict_on_the_report_is_final(answer: EndpointAnswer | None, outcome: str, reason: str | None) -> None:
    assert judge_answer(answer) == (outcome, reason)


def test_every_refusal_of_a_report_is_final_but_those_that_are_not_about_the_report() -> None:
    """A reason that is added to the errors has to be judged here, too."""
    waits = {slug for slug in slugs(ReportRefused) if refusal_status(slug) is ReportStatus.PENDING}
    tokens = {f"token-{reason}" for reason in ("refused", "missing", "invalid", "wrong-audience", "expired", "spent")}
    assert waits == {"round-unknown", "sender-refused"} | tokens
    others = slugs(PrivateerError) - slugs(ReportRefused)
    assert {slug for slug in others if refusal_status(slug) is not ReportStatus.PENDING} == {
        "too-large",
        "terms-refused",
        "spec-invalid",
        "deleted",
    }
