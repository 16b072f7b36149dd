"""The points of NIST SP 800-226, Guidelines for Evaluating Differential Privacy Guarantees (March 2025), answered.

They follow its evaluation pyramid, from the parameters to the collection of data, each with where its answer is from.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from privateer_core.privacy.record import Record
from privateer_lab.figures import percent
from privateer_lab.pages.review.evidence import AuditEvidence
from privateer_lab.pages.review.promises import StatedClaim
from privateer_lab.pages.review.subject import Facts, Subject
from privateer_lab.pages.templates import exact, moment

_TO_SAY = "Unknown."


class ReviewPoint(msgspec.Struct, frozen=True):
    """One point.

    Attributes
    ----------
    topic, question
        What the guidelines ask.
    answer, source
        The answer, and where it comes from.
    answered
        Whether there is one; otherwise ``source`` says who has to give it.
    """

    topic: str
    question: str
    answer: str
    source: str
    answered: bool = True


def points(
    subject: Subject, claims: tuple[StatedClaim, ...], evidence: AuditEvidence | None, facts: Facts
) -> tuple[ReviewPoint, ...]:
    """Return all points about an experiment."""
    return (
        *_guarantee(subject, claims),
        *_algorithms(subject, claims, evidence, facts),
        *_deployment(subject, facts),
    )


def _guarantee(subject: Subject, claims: tuple[StatedClaim, ...]) -> Iterator[ReviewPoint]:
    privacy, record = subject.spec.privacy, subject.record
    if privacy.epsilon is None:
        answer = "No epsilon is promised: this is no differential privacy."
    else:
        worst = claims[0]
        apart = f"The best attack tells two records apart {percent(worst.guesses[0].at_most)} of the time at most."
        promised = f"Epsilon {exact(privacy.epsilon)}, delta {exact(privacy.delta)}, against {privacy.trust.reader}"
        answer = f"{promised}. {apart}"
    yield ReviewPoint(
        "privacy parameters", "How large are epsilon and delta, and what do they mean?", answer, "certificate"
    )
    times = record.reports_per_person
    reports = "one report" if times == 1 else f"{times} reports, which share the promise"
    unit = f"One person's whole record: context, arm and reward. A device sends {reports} to the experiment at most."
    yield ReviewPoint(
        "unit of privacy", "Whose data does the guarantee protect?", unit, "privacy record; docs/privacy.md"
    )
    neighbours = "Neighbours differ in one record that is replaced (bounded differential privacy)."
    yield ReviewPoint("definition", "Which variant, and which neighbours?", neighbours, "docs/privacy.md")
    limit = "Each device's ledger limits what all experiments together take; the application sets the limits."
    yield ReviewPoint(
        "budget over time", "How does the loss add up over releases and experiments?", limit, "docs/sdk.md"
    )


def _algorithms(
    subject: Subject, claims: tuple[StatedClaim, ...], evidence: AuditEvidence | None, facts: Facts
) -> Iterator[ReviewPoint]:
    named = mechanisms_of(subject.record, promises=subject.spec.privacy.trust.promises)
    proofs = "; ".join(dict.fromkeys(one.proof for one in claims))
    answer, source = f"Mechanisms: {named}. Proofs: {proofs}.", "privacy record; certificate; docs/privacy.md"
    yield ReviewPoint("algorithms and correctness", "Which mechanisms, and why are they private?", answer, source)
    verified = all(one.holds for one in claims)
    words = "Every claim was recomputed from its event and holds." if verified else "A CLAIM DOES NOT HOLD."
    yield ReviewPoint(
        "verification", "Is the guarantee checked?", words, "this document's own computation; privateer account verify"
    )
    yield ReviewPoint("testing", "Was the implementation attacked?", *_of_the_audit(evidence))
    utility = (
        "Intervals of estimates include the noise; privateer plan simulates what it costs before anybody is asked."
    )
    yield ReviewPoint(
        "utility", "Are results accurate enough?", utility, "privateer plan SPEC.toml; privateer report NAME"
    )
    yield _said(
        "bias",
        "Who may be treated worse, by the data, the noise or the policy?",
        facts.bias,
        "The product team has to say it",
    )


def _of_the_audit(evidence: AuditEvidence | None) -> tuple[str, str, bool]:
    if evidence is None:
        return (
            "No audit was run for this document.",
            "Whoever makes it can run privateer review without --no-audit",
            False,
        )
    count = len(evidence.attacks)
    when = f"on {moment(evidence.at)}, Privateer {evidence.privateer}"
    found = f"{evidence.broken} of {count} attacks and checks broke a claim, {when}."
    missing = f" Not attacked: {', '.join(evidence.unattacked)}." if evidence.unattacked else ""
    return f"{found}{missing}", f"audit, {evidence.origin}", not evidence.unattacked


def _deployment(subject: Subject, facts: Facts) -> Iterator[ReviewPoint]:
    row = subject.spec.privacy.trust
    query = "No queries: a policy is published at the end of every round, by rules that the spec fixes."
    yield ReviewPoint("query model", "Who may ask what, and how often?", query, "docs/wire-format.md")
    assumed = f"The server sees {row.sees}. Assumed: " + "; ".join(subject.certificates[""].assumes) + "."
    yield ReviewPoint("trust model", "Who must be trusted with what?", assumed, "certificate; docs/threat-model.md")
    noise = "Noise has exact distributions, or its error counts in delta; random words come from the operating system."
    asked = "Do floating point and random numbers keep the proof?"
    yield ReviewPoint("mechanism implementation", asked, noise, "docs/privacy.md")
    sides = (
        "privateer audit checks sizes, retries, errors and logs; the evidence above lists the checks that were run. "
        "Timing of processor and network is not measured."
    )
    yield ReviewPoint("side channels", "What else tells something?", sides, "docs/audit.md")
    access = (
        "Changes need the admin token at the private listener. Keys, sums and batches are readable by the services' "
        "users alone. Who holds the token, and who may read the disks, is unknown."
    )
    yield ReviewPoint(
        "data security and access control",
        "Who can reach raw data?",
        access,
        "The operator has to say it; docs/operations/ has what the services do",
        False,
    )
    raw = "go to the server, as records" if row.curated else "never leave the device: it randomizes its report"
    exposure = f"Raw values {raw}. Reports are sealed to a key that is erased when the round closes."
    yield ReviewPoint("data collection exposure", "Where do raw data exist?", exposure, "docs/threat-model.md")
    lawyer = "The data controller's lawyer has to say it"
    yield _said("data collection", "On what basis are people asked?", facts.legal_basis, lawyer)
    yield _said("information of people", "How are people told?", facts.information, lawyer)
    operator = "The operator has to say it; the table above has what is stored"
    yield _said("retention", "When is everything deleted?", facts.deletion, operator)


def _said(topic: str, question: str, answer: str, missing: str) -> ReviewPoint:
    """Return a point that people alone can answer."""
    if answer:
        return ReviewPoint(topic, question, answer, "the file of --facts")
    return ReviewPoint(topic, question, _TO_SAY, missing, answered=False)


_IN_WORDS: Final = {
    "signed-symbol": "the device's randomized response over symbols that hide group, arm and reward bit",
    "event-symbol": "the device's randomized response over symbols of a reward in each group, and one of none",
    "grouped-bit": "the device's randomized response to a bit, as exact as the people of its arm allow",
    "named-symbol": "the device's randomized response over symbols that name the group and the answer",
    "vector-symbol": "the device's randomized response over directions, for a bounded vector",
    "gaussian-vectors": "normal noise that the device adds to a bounded vector",
    "bit-vectors": "random bits that the device sends beside those of a bounded vector, coordinate by coordinate",
    "laplace-cells": "Laplace noise that the device adds to every cell",
    "central-sums": "sums of records, with a curator's noise of one scale",
    "cell-pairs": "counts of yes and of no, each with a curator's discrete Laplace noise",
    "cell-triples": "sums of three parts of each number, each with a curator's discrete Laplace noise",
    "cell-products": "sums of products of parts of two numbers, each with a curator's discrete Laplace noise",
    "central-vectors": "sums of bounded vectors, with a curator's normal noise",
    "running-vectors": "sums of vectors, with a curator's normal noise that depends on that of earlier releases",
    "screened-moments": "features that a curator chooses privately, and their second moments with normal noise",
}
"""What makes a release private, by the mechanism's type; docs/privacy.md lists the pages with claims and proofs."""


def mechanisms_of(record: Record, *, promises: bool) -> str:
    """Name the mechanisms of all rounds, those of sources included, or those that are planned ahead of them."""
    cohorts = (record, *record.sources)
    rows = [row for one in cohorts for row in (*one.rounds, one.planned) if row is not None]
    types = dict.fromkeys(str(row.mechanism["type"]) for row in rows)
    without = "" if promises else "; under this trust model that noise is 0, and nothing is promised"
    return "; ".join(f"{name}: {_IN_WORDS.get(name, 'see docs/privacy.md')}" for name in types) + without
