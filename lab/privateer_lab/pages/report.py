"""The report of an experiment for its team, as an HTML page: questions, result, policy and commands for raw data."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Final, NamedTuple

import msgspec

from privateer_core.answer import Answer
from privateer_core.answer.conclusion import PublishedAnswer
from privateer_core.answer.estimates import Effect
from privateer_core.answer.parts import BinMeans, DriftTest, EffectsOverTime, GuardrailEffects
from privateer_core.answer.policy_view import BinShares, PolicyView
from privateer_core.privacy.certificate import Certificate
from privateer_core.spec.spec import Spec
from privateer_lab.pages.review.subject import ExperimentStanding, format_promise, read_running
from privateer_lab.pages.templates import format_table, render_page
from privateer_lab.render.conclusion_tables import list_conclusion_tables
from privateer_lab.render.figures import format_figure
from privateer_lab.render.report_pictures import draw_answer, draw_policy
from privateer_lab.render.tables import TitledTable, answer_tables, estimate_rows, part_tables
from privateer_lab.render.words import FINAL_STATUSES, describe_conclusion, format_drift, format_list
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
    return " ".join(_iter_summary(findings))


def _iter_summary(findings: ReportFindings) -> Iterator[str]:
    """Yield sentences on participants and status, and the conclusion's if the policy has learned."""
    standing = findings.standing
    rounds_clause = "1 round was" if findings.rounds == 1 else f"{findings.rounds:,} rounds were"
    yield f"{findings.standing.people.sentence} {rounds_clause.capitalize()} learned from."
    if not findings.answer.stop_reason:
        yield _STATUS_SENTENCES[standing.status]
    if not findings.rounds:
        yield _NO_ROUND_COMPLETED if standing.status in FINAL_STATUSES else _NO_ROUND_YET
        return
    yield from describe_conclusion(findings.published.conclusion, findings.answer)


def _describe_effect(effect: Effect) -> str:
    """Write an effect with its interval, or its name alone if it is not known."""
    if effect.value is None:
        return effect.name
    low, high = (format_figure(end) if end is not None else "no end" for end in (effect.low, effect.high))
    return f"{effect.name} {format_figure(effect.value)} ({low} to {high})"


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
        decided = (_describe_effect(effect) for effect in part.effects if effect.is_decided)
        warnings += [f"guardrail: {part.name} changes: {effect}" for effect in decided]
    return warnings


_MAX_ROWS: Final = 60
"""Largest number of rows of a table; the commands for raw data have all."""
_LOCAL_URL: Final = "http://127.0.0.1:8000"


def render_html(findings: ReportFindings, url: str) -> str:
    """Render the report; ``url`` is the server's address, for the commands."""
    return render_page(
        "report.html",
        found=findings,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        privateer=version("privateer-lab"),
        meaning=summary_paragraph(findings),
        warnings=list_warnings(findings),
        options=format_list(findings.spec.options),
        features=format_list(list(findings.spec.features)) or "no features",
        policy=[draw_policy(findings.policy.shows, findings.spec)],
        estimates=draw_answer(findings.answer) if findings.rounds else [],
        confidence=_confidence_level(findings),
        policy_facts=[(fact.name, format_figure(fact.value)) for fact in findings.policy.facts],
        policy_tables=[format_table(table, _MAX_ROWS) for table in part_tables(findings.policy.shows)],
        tables=[format_table(table, _MAX_ROWS) for table in _iter_tables(findings) if table.rows],
        commands=_list_commands(findings, url),
    )


def _confidence_level(findings: ReportFindings) -> str:
    """Return the confidence level of the intervals as text; empty if there are no intervals."""
    answer = findings.answer
    if answer.confidence is None or not (answer.estimates or answer.effects):
        return ""
    return f"{100 * answer.confidence:g} %"


def _iter_tables(findings: ReportFindings) -> Iterator[TitledTable]:
    """List the report's tables: the conclusion, bins, and other parts, cut to the length of a page."""
    yield from list_conclusion_tables(findings.published.conclusion) if findings.rounds else ()
    answer = findings.answer if findings.rounds else msgspec.structs.replace(findings.answer, estimates=(), parts=())
    if answer.estimates and not answer.effects and not findings.published.conclusion.estimates:
        yield TitledTable("estimates", estimate_rows(answer.estimates))
    for means in answer.all_of(BinMeans):
        for table in part_tables(means):
            yield table._replace(title=table.title + _finer_bins_note(means, findings))
    excluded = BinMeans | EffectsOverTime
    other_parts = tuple(part for part in answer.parts if not isinstance(part, excluded))
    for table in answer_tables(msgspec.structs.replace(answer, parts=other_parts, effects=(), gain=None)):
        decided_first = sorted(table.rows, key=lambda row: row.get("decided") is False)
        yield table._replace(rows=decided_first) if len(table.rows) > _MAX_ROWS else table


def _finer_bins_note(means: BinMeans, findings: ReportFindings) -> str:
    """Return a clause if the policy has more bins than the reports; else nothing."""
    shows, rows = findings.policy.shows, len(means.bins)
    bins = len(shows.bins) if isinstance(shows, BinShares) else 0
    return f". Reports are about {rows:,} bins; the policy divides them further, into {bins:,}" if rows < bins else ""


def _list_commands(findings: ReportFindings, url: str) -> list[tuple[str, str]]:
    """Return commands that print or export the raw data, with descriptions."""
    url_option, name = "" if url.rstrip("/") == _LOCAL_URL else f" --url {url}", findings.spec.name
    return [
        (f"privateer answer {name}{url_option} --json", "the answer, and all that was found"),
        (f"privateer answer {name}{url_option} --as progress --json", "where it stands, the privacy record"),
        (f"privateer answer {name}{url_option} --as policy --json", "the policy"),
        (f"privateer account experiment {name}{url_option} --json > record.json", "the privacy record"),
        ("privateer account verify record.json", "recompute its claims"),
        (f"privateer review {name}{url_option} --out review", "a pack for reviewers"),
        (f"privateer export {name} {name}.json", "policy, result, record and state in one file; needs the admin token"),
    ]
