"""The review as one document: everything that the page shows, for machines."""

from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Final, Literal

import msgspec

from privateer_core.privacy.record import Record
from privateer_core.spec.spec import Spec
from privateer_lab.pages.review.evidence import AuditEvidence
from privateer_lab.pages.review.promises import StatedClaim, claims
from privateer_lab.pages.review.registry import registry
from privateer_lab.pages.review.statements import (
    Exposure,
    Kept,
    Party,
    ReviewPoint,
    exposures,
    parties,
    points,
    retention,
)
from privateer_lab.pages.review.subject import ExperimentStanding, Facts, Subject, Unknown, unknowns

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
    """Return the review of an experiment."""
    spec, claimed = subject.spec, claims(subject.certificates)
    assumes = dict.fromkeys(text for one in subject.certificates.values() for text in one.assumes)
    return Review(
        format=FORMAT,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        privateer=version("privateer-lab"),
        experiment=spec.name,
        origin=subject.origin,
        standing=subject.standing,
        asked=_asked(spec),
        facts=facts,
        unknown=unknowns(facts),
        parties=parties(spec.privacy.trust, subject.with_tokens),
        exposures=exposures(spec, subject.with_tokens),
        claims=claimed,
        assumes=tuple(assumes),
        evidence=evidence,
        kept=retention(spec, subject.with_tokens),
        points=points(subject, claimed, evidence, facts),
        registry=registry(subject, claimed, facts),
        record=subject.record,
    )


def _asked(spec: Spec) -> Asked:
    return Asked(
        algorithm=spec.algorithm.name,
        model=spec.privacy.model,
        options=tuple(spec.options),
        features=tuple(spec.features),
        reward_low=spec.reward.low,
        reward_high=spec.reward.high,
        people=spec.planned_reports,
        reports_per_person=spec.experiment.reports_per_person,
        conversion_window=spec.experiment.conversion_window,
    )
