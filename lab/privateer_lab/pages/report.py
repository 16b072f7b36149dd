"""The report of an experiment for its team, as an HTML page: questions, result, policy and commands for raw data."""

from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Final, NamedTuple

from privateer_core.answer import Answer
from privateer_core.answer.conclusion import PublishedAnswer
from privateer_core.answer.parts import BinMeans, DriftTest, GuardrailEffects
from privateer_core.answer.policy_view import BinShares, PolicyView
from privateer_core.privacy.certificate import Certificate
from privateer_core.spec.spec import Spec
from privateer_lab.pages.review.subject import ExperimentStanding, format_promise, read_running
from privateer_lab.pages.templates import render_page
from privateer_lab.render.documents import write_details
from privateer_lab.render.pictures import draw_answer
from privateer_lab.render.policy_pictures import draw_policy
from privateer_lab.render.tables import part_tables
from privateer_lab.render.words import FINAL_STATUSES, describe_conclusion, format_drift, format_figure
from privateer_lab.services.rest import fetch_answer, parse_policy, request_json

_MIN_WARNED_REFUSAL_SHARE: Final = 0.05
"""Least share of refused reports that causes a warning."""
_STATUS_SENTENCES: Final = {
    "open": "The experiment is still running, so what follows may change.",
    "paused": "The experiment is paused: nobody is asked now.",
    "draining": "The experiment asks nobody now, and waits for late reports.",
    "stopped": "The experiment was stopped.",
    "finished": "The experiment is finished.",
    "failed": "The experiment failed: a round came to no end.",
}
_NO_ROUND_YET: Final = "No round is complete yet, so nothing has been learned: the policy is the one it began with."
_NO_ROUND_COMPLETED: Final = "No round was completed, so nothing was learned: no report supports what the policy gives."


class ReportFindings(NamedTuple):
    """The content of a report: an experiment's spec, status, policy and result."""

    # spec, progress and status, and the URL of the experiment
    spec: Spec
    standing: ExperimentStanding
    origin: str
    # the policy and the answer, as published
    policy: PolicyView
    published: PublishedAnswer
    rounds: int  # number of rounds that the learner has used
    promise: str  # the privacy promise as a sentence

    @property
    def answer(self) -> Answer:
        """The learner's result."""
        return self.published.result


def read_findings(name: str, url: str) -> ReportFindings:
    """Read the content of a report from a server."""
    subject = read_running(name, url)
    experiment_url = subject.origin
    assert subject.standing
    return ReportFindings(
        spec=subject.spec,
        standing=subject.standing,
        origin=experiment_url,
        policy=parse_policy(request_json("GET", f"{experiment_url}/policy").get("policy")),
        published=fetch_answer(url, name),
        rounds=sum(row.released for part in (subject.record, *subject.record.sources) for row in part.rounds),
        promise=promise_sentence(subject.certificates),
    )


def promise_sentence(certificates: Mapping[str, Certificate]) -> str:
    """Return a sentence with the privacy promise of an experiment's certificates, by cohort."""
    claims = {cohort: certificate.claims[0] for cohort, certificate in certificates.items()}
    return "Nothing is promised to a person." if claims[""].epsilon is None else f"{format_promise(claims)}."


def summary_paragraph(findings: ReportFindings) -> str:
    """Return a paragraph that summarizes progress and result."""
    standing, n_rounds = findings.standing, findings.rounds
    rounds = "1 round was" if n_rounds == 1 else f"{n_rounds:,} rounds were"
    sentences = [f"{standing.people.sentence} {rounds} learned from."]
    if not findings.answer.stop_reason:
        sentences.append(_STATUS_SENTENCES[standing.status])
    if n_rounds:
        sentences += describe_conclusion(findings.published.conclusion, findings.answer)
    else:
        sentences.append(_NO_ROUND_COMPLETED if standing.status in FINAL_STATUSES else _NO_ROUND_YET)
    return " ".join(sentences)


def list_warnings(findings: ReportFindings) -> list[str]:
    """Return the warnings about spec, result and refused reports."""
    answer, standing = findings.answer, findings.standing
    warnings = [*findings.spec.concerns(), *answer.warnings]
    warnings += [format_drift(drift) for drift in answer.all_of(DriftTest) if drift.detected]
    n_refused = sum(standing.refused.values())
    if n_refused > _MIN_WARNED_REFUSAL_SHARE * (n_refused + standing.accepted):
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in standing.refused.items())
        warnings.append(f"{n_refused:,} reports were refused ({reasons}). docs/problems.md says why that happens.")
    for part in answer.all_of(GuardrailEffects):
        for effect in (effect for effect in part.effects if effect.is_decided):
            low, high = ("no end" if end is None else format_figure(end) for end in (effect.low, effect.high))
            figures = "" if effect.value is None else f" {format_figure(effect.value)} ({low} to {high})"
            warnings.append(f"guardrail: {part.name} changes: {effect.name}{figures}")
    return warnings


_LOCAL_URL: Final = "http://127.0.0.1:8000"


def render_html(findings: ReportFindings, url: str) -> str:
    """Render the report; ``url`` is the server's address, for the commands."""
    spec, answer, conclusion, shows = (
        findings.spec,
        findings.answer,
        findings.published.conclusion,
        findings.policy.shows,
    )
    document = write_details(conclusion, answer, with_conclusion=True) if findings.rounds else None
    n_report_bins = max((len(means.bins) for means in answer.all_of(BinMeans)), default=0) if document else 0
    return render_page(
        "report.html",
        found=findings,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        privateer=version("privateer-lab"),
        meaning=summary_paragraph(findings),
        warnings=list_warnings(findings),
        policy=draw_policy(shows, spec),
        estimates=draw_answer(spec.name, answer) if document else [],
        confidence=answer.confidence if answer.estimates or answer.effects else None,
        n_report_bins=n_report_bins,
        n_policy_bins=len(shows.bins) if isinstance(shows, BinShares) else 0,
        policy_tables=part_tables(shows),
        tables=[table for table in document.tables if table.rows] if document else [],
        options=f"{spec.name}{'' if url.rstrip('/') == _LOCAL_URL else f' --url {url}'}",
    )
