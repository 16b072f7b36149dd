"""The review document: its data, its HTML page, and the files of a review pack."""

import json
import tomllib
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import yaml

from privateer_core.privacy.record import Record
from privateer_core.privacy.trust import trust_of
from privateer_core.spec.spec import Spec
from privateer_lab.cli.output import open_folder
from privateer_lab.pages.review.evidence import AuditEvidence
from privateer_lab.pages.review.subject import (
    MISSING,
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
from privateer_lab.pages.templates import render_page, render_toml

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

    @classmethod
    def from_spec(cls, spec: Spec) -> "Asked":
        """Describe what an experiment asks of people and how."""
        return cls(
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


class Party(msgspec.Struct, frozen=True):
    """Somebody who takes part in an experiment or looks on."""

    name: str  # who it is
    # has, sees: what it holds, and what it learns of a person by the protocol
    has: str
    sees: str
    cannot: str  # what the protocol keeps it from


class Exposure(msgspec.Struct, frozen=True):
    """Something that the promise does not cover."""

    what: str  # in two or three words
    words: str  # who learns it, and what helps


class Kept(msgspec.Struct, frozen=True):
    """Something that is stored."""

    where: str  # the party and the place
    what: str  # what is stored
    until: str  # when it is gone
    how: str  # how it goes, or what protects it
    decided: bool  # whether the software decides until when; False: people have to

    @property
    def decider(self) -> str:
        """Return who decides how long the data are stored."""
        return "software" if self.decided else "people"


class ReviewPoint(msgspec.Struct, frozen=True):
    """One point of NIST SP 800-226 (March 2025), in the order of its evaluation pyramid."""

    # topic, question: what the guidelines ask
    topic: str
    question: str
    # answer, source: the answer, and where it comes from
    answer: str
    source: str
    answered: bool = True  # whether there is one; otherwise ``source`` says who has to give it


class _Statements(msgspec.Struct, frozen=True):
    """What the template says of an experiment, by kind."""

    party: tuple[Party, ...]
    exposure: tuple[Exposure, ...]
    kept: tuple[Kept, ...]
    point: tuple[ReviewPoint, ...]


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

    @property
    def promise(self) -> str:
        """The clause with the promise to participants."""
        return format_promise({claim.cohort: claim for claim in reversed(self.claims)})

    @property
    def registry_yaml(self) -> str:
        """The registry's entry as YAML."""
        return _YAML_HEADER + str(
            yaml.dump(self.registry, Dumper=_BlockTextDumper, sort_keys=False, allow_unicode=True, width=110)
        )


def make_review(subject: Subject, evidence: AuditEvidence | None, facts: Facts) -> Review:
    """Build the review of an experiment."""
    spec, record, claims = subject.spec, subject.record, state_claims(subject.certificates)
    rows = [row for part in (record, *record.named_promises) for row in (*part.rounds, part.planned) if row is not None]
    values = {"spec": spec, "record": record, "claims": claims, "facts": facts}
    values |= {"assumes": subject.certificates[""].assumes, "evidence": evidence, "with_tokens": subject.with_tokens}
    values["mechanisms"] = list(dict.fromkeys(str(row.mechanism["type"]) for row in rows))
    statements = msgspec.convert(_render("statements", values), _Statements)
    weakest = max(spec.cohort_privacy(cohort).epsilon or 0.0 for cohort in subject.certificates)
    entry = _render("registry", values | {"parties": statements.party, "weakest": weakest, "missing": MISSING})
    return Review(
        format=FORMAT,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        privateer=version("privateer-lab"),
        experiment=spec.name,
        origin=subject.origin,
        standing=subject.standing,
        asked=Asked.from_spec(spec),
        facts=facts,
        unknown=list_unknowns(facts),
        parties=statements.party,
        exposures=statements.exposure,
        claims=claims,
        assumes=tuple(dict.fromkeys(text for each in subject.certificates.values() for text in each.assumes)),
        evidence=evidence,
        kept=statements.kept,
        points=statements.point,
        registry=entry if spec.privacy.trust.promises else None,
        record=record,
    )


def _render(name: str, values: dict[str, Any]) -> dict[str, Any]:
    return tomllib.loads(render_toml(f"review/{name}.toml.j2", **values))


_YAML_HEADER: Final = f"""\
# An entry for the Differential Privacy Deployments Registry: registry.opendp.org.
# {MISSING}, and the date 1900-01-01, stand where people have to say something.
"""


class _BlockTextDumper(yaml.SafeDumper):
    """A YAML dumper that writes texts of several lines as blocks."""


_BlockTextDumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
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
    batches = [row for row in (*review.record.rounds, review.record.planned) if row is not None and row.honest]
    return render_page(
        "review.html",
        review=review,
        trust=trust_of(review.asked.model),
        contents=_CONTENTS,
        smallest_batch=min(batches, key=lambda row: row.honest, default=None),
        stated_facts={key: value for key, value in msgspec.structs.asdict(review.facts).items() if value},
    )


def write_pack(review: Review, folder: Path) -> list[Path]:
    """Write a review pack to a folder, and return its files."""
    open_folder(folder, "--out")
    texts = {
        "review.html": render_html(review),
        "review.json": json.dumps(to_builtins(review), indent=2, ensure_ascii=False) + "\n",
        "record.json": json.dumps(to_builtins(review.record), indent=2, ensure_ascii=False) + "\n",
    }
    if review.registry is not None:
        texts["registry.yaml"] = review.registry_yaml
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in texts]
