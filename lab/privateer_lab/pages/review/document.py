"""The review document: its data, its HTML page, and the files of a review pack."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from privateer_core.privacy.record import Record
from privateer_core.privacy.trust import trust_of
from privateer_core.spec.spec import Spec
from privateer_lab.cli.output import open_folder
from privateer_lab.pages.review.evidence import AuditEvidence
from privateer_lab.pages.review.statements import (
    Exposure,
    Kept,
    Party,
    ReviewPoint,
    build_registry_entry,
    format_yaml,
    list_exposures,
    list_points,
    list_stored_data,
    parties,
)
from privateer_lab.pages.review.subject import (
    ExperimentStanding,
    Facts,
    StatedClaim,
    Subject,
    Unknown,
    format_promise,
    list_unknowns,
    state_claims,
    to_builtins,
)
from privateer_lab.pages.templates import exact, render_page
from privateer_lab.render.figures import format_figure
from privateer_lab.render.words import format_list, percent

FORMAT: Final = "privateer/review/1"


class Asked(msgspec.Struct, frozen=True):
    """The questions of the experiment."""

    algorithm: str
    model: str
    options: tuple[str, ...]  # what can be chosen
    features: tuple[str, ...]  # names of what is asked of a person
    # reward_low, reward_high: ends of the reward's range
    reward_low: float
    reward_high: float
    people: int  # the most reports that may come
    reports_per_person: int  # of one person, at most
    conversion_window: float  # seconds from a choice to the report


class Review(msgspec.Struct, frozen=True):
    """The document that a reviewer reads."""

    format: Literal["privateer/review/1"]  # `FORMAT`
    # made, privateer: when, in UTC, and by which version, which also recomputed the claims
    made: str
    privateer: str
    # experiment, origin, standing: what is reviewed, where it comes from, and where it stands; null for a spec that
    # nobody has started
    experiment: str
    origin: str
    standing: ExperimentStanding | None
    # asked, facts, unknown: what it asks, what people say of it, and what nobody has said yet
    asked: Asked
    facts: Facts
    unknown: tuple[Unknown, ...]
    # parties, exposures: who sees what, and what the promise does not cover
    parties: tuple[Party, ...]
    exposures: tuple[Exposure, ...]
    # claims, assumes: the promise and what it leaves an attacker; and what no computation can check
    claims: tuple[StatedClaim, ...]
    assumes: tuple[str, ...]
    evidence: AuditEvidence | None  # of the audit; null if none was run or given
    kept: tuple[Kept, ...]  # what is stored
    points: tuple[ReviewPoint, ...]  # those of NIST SP 800-226
    registry: dict[str, Any] | None  # an entry for the DP deployments registry; null where nothing is promised
    record: Record  # the privacy record, from which anybody recomputes the claims

    @property
    def holds(self) -> bool:
        """Whether every claim was found to hold, and no attack broke one."""
        return all(claim.holds for claim in self.claims) and not (self.evidence and self.evidence.broken)


def make_review(subject: Subject, evidence: AuditEvidence | None, facts: Facts) -> Review:
    """Build the review of an experiment."""
    spec, stated_claims = subject.spec, state_claims(subject.certificates)
    assumes = dict.fromkeys(text for certificate in subject.certificates.values() for text in certificate.assumes)
    return Review(
        format=FORMAT,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        privateer=version("privateer-lab"),
        experiment=spec.name,
        origin=subject.origin,
        standing=subject.standing,
        asked=_describe_questions(spec),
        facts=facts,
        unknown=list_unknowns(facts),
        parties=parties(spec.privacy.trust, subject.with_tokens),
        exposures=list_exposures(spec, subject.with_tokens),
        claims=stated_claims,
        assumes=tuple(assumes),
        evidence=evidence,
        kept=list_stored_data(spec, subject.with_tokens),
        points=list_points(subject, stated_claims, evidence, facts),
        registry=build_registry_entry(subject, stated_claims, facts),
        record=subject.record,
    )


def _describe_questions(spec: Spec) -> Asked:
    """Describe what the experiment asks of people and how."""
    return Asked(
        algorithm=spec.algorithm.name,
        model=spec.privacy.model,
        options=tuple(spec.options),
        features=tuple(spec.features),
        reward_low=spec.reward.low,
        reward_high=spec.reward.high,
        people=spec.planned_reports,
        reports_per_person=spec.experiment.reports_per_person,
        conversion_window=spec.experiment.conversion_window_seconds,
    )


_CONTENTS: Final = (
    ("sees", "Who sees what"),
    ("promise", "The promise, and the risk that is left"),
    ("certificate", "The certificate"),
    ("assumptions", "Assumptions"),
    ("evidence", "Evidence of the audit"),
    ("retention", "What is stored, and for how long"),
    ("points", "NIST SP 800-226"),
    ("registry", "DP deployments registry"),
    ("unknown", "What is unknown"),
    ("asks", "What the experiment asks"),
)


def render_html(review: Review) -> str:
    """Render the review as a page."""
    return render_page(
        "review.html",
        review=review,
        trust=trust_of(review.asked.model),
        contents=_CONTENTS,
        summary=_summary_sentence(review),
        parties=_struct_rows(review.parties),
        verdicts=[
            (
                f"{claim.adversary}{f' ({claim.cohort})' if claim.cohort else ''}",
                exact(claim.epsilon),
                exact(claim.delta),
                exact(float(f"{claim.recomputed_delta:.3g}")),
                format_figure(claim.exact),
                "yes" if claim.holds else "NO",
                claim.proof,
            )
            for claim in review.claims
        ],
        attacks=[
            (
                attack.attack,
                attack.mechanism,
                "" if attack.epsilon is None else exact(attack.epsilon),
                "" if attack.delta is None else exact(attack.delta),
                "" if attack.lower_bound is None else f"{attack.lower_bound:z.3f}",
                attack.samples,
                attack.verdict,
            )
            for attack in (review.evidence.attacks if review.evidence else ())
        ],
        kept=[
            (stored.where, stored.what, stored.until, stored.how, "software" if stored.decided else "people")
            for stored in review.kept
        ],
        guesses=[
            [(guess.candidates, percent(guess.blind), percent(guess.at_most)) for guess in claim.guesses]
            for claim in review.claims
        ],
        crowd=_smallest_batch_clause(review),
        registry=None if review.registry is None else format_yaml(review.registry),
        unknown=_struct_rows(review.unknown),
        said=[
            (key.replace("_", " "), value if isinstance(value, str) else ", ".join(value))
            for key, value in msgspec.structs.asdict(review.facts).items()
            if value
        ],
        chosen=format_list(review.asked.options),
        features=format_list(review.asked.features) or "no features",
    )


def write_pack(review: Review, folder: Path) -> list[Path]:
    """Write a review pack to a folder, and return its files."""
    open_folder(folder, "--out")
    texts = {
        "review.html": render_html(review),
        "review.json": _format_json(to_builtins(review)),
        "record.json": _format_json(to_builtins(review.record)),
    }
    if review.registry is not None:
        texts["registry.yaml"] = format_yaml(review.registry)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in texts]


def _format_json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _summary_sentence(review: Review) -> str:
    """Say in a sentence what is promised and whether all claims hold."""
    trust, first_claim = trust_of(review.asked.model), review.claims[0]
    if first_claim.epsilon is None:
        return f"Nothing is promised to a person: the server sees {trust.sees}."
    state = "All claims were recomputed and hold" if review.holds else "NOT EVERYTHING HOLDS: see the sections below"
    return f"{format_promise({claim.cohort: claim for claim in reversed(review.claims)})}. {state}."


def _struct_rows(structs: Iterable[msgspec.Struct]) -> list[tuple[Any, ...]]:
    return [msgspec.structs.astuple(struct) for struct in structs]


def _smallest_batch_clause(review: Review) -> str:
    """Return the honest reports of the smallest batch as text; empty if the promise needs no honest reports."""
    rows = [row for row in (*review.record.rounds, review.record.planned) if row is not None and row.honest]
    if not rows:
        return ""
    smallest = min(rows, key=lambda row: row.honest)
    return f"{smallest.honest:,} honest reports in a batch of {smallest.batch_size:,}, the smallest"
