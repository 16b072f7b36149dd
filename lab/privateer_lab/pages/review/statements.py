"""What a review says of every experiment, from ``statements.toml``: its parties, exposures, stored data and points."""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar

import msgspec

from privateer_core.privacy.record import Record
from privateer_core.privacy.trust import Trust
from privateer_core.spec.spec import Spec
from privateer_lab.figures import percent
from privateer_lab.pages.review.evidence import AuditEvidence
from privateer_lab.pages.review.promises import StatedClaim
from privateer_lab.pages.review.subject import Facts, Subject
from privateer_lab.pages.templates import exact, moment

Flags = Mapping[str, Any]
"""Whether something is so, by its name in ``when``."""
S = TypeVar("S", bound=msgspec.Struct)


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


class ReviewPoint(msgspec.Struct, frozen=True):
    """One point of NIST SP 800-226, Guidelines for Evaluating Differential Privacy Guarantees (March 2025).

    The points follow its evaluation pyramid, from the parameters to the collection of data.
    """

    # topic, question: what the guidelines ask
    topic: str
    question: str
    # answer, source: the answer, and where it comes from
    answer: str
    source: str
    answered: bool = True  # whether there is one; otherwise ``source`` says who has to give it


def parties(row: Trust, with_tokens: bool = False) -> tuple[Party, ...]:
    """Return who sees what under a trust model, and where reports come with upload tokens."""
    return _statements("party", Party, _flags(row, with_tokens), {"sees": row.sees})


def exposures(spec: Spec, with_tokens: bool = False) -> tuple[Exposure, ...]:
    """Return what the promise of an experiment does not cover."""
    privacy, row = spec.privacy, spec.privacy.trust
    flags = _flags(row, with_tokens) | {
        "window": spec.experiment.conversion_window,
        "hides arms": row.hides_arms,
        "arms hidden": privacy.arms == "hidden",
        "as alone": privacy.as_alone,
    }
    share = f"{privacy.honest_fraction:.12g}"
    values = {
        "taker": _taker(row),
        "arm": "The arm by itself says something of the person, since a learned policy plays different arms for "
        "others.",
        "honest": f"The promise counts on a share of {share} honest reports in every batch, which no device can check.",
    }
    return _statements("exposure", Exposure, flags, values)


def retention(spec: Spec, with_tokens: bool = False) -> tuple[Kept, ...]:
    """Return what an experiment stores, and what comes with upload tokens."""
    row, window = spec.privacy.trust, spec.experiment.conversion_window
    flags = _flags(row, with_tokens) | {"window": window}
    return _statements("kept", Kept, flags, {"taker": _taker(row), "window": window})


def points(
    subject: Subject, claims: tuple[StatedClaim, ...], evidence: AuditEvidence | None, facts: Facts
) -> tuple[ReviewPoint, ...]:
    """Return all points about an experiment."""
    row, times = subject.spec.privacy.trust, subject.record.reports_per_person
    flags = _flags(row, subject.with_tokens) | {
        "verified": all(one.holds for one in claims),
        "audited": evidence,
        "unattacked": evidence and evidence.unattacked,
    }
    values = {
        "sees": row.sees,
        "guarantee": _guarantee(subject, claims),
        "reports": "one report" if times == 1 else f"{times} reports, which share the promise",
        "mechanisms": mechanisms_of(subject.record, promises=row.promises),
        "proofs": "; ".join(dict.fromkeys(one.proof for one in claims)),
        "assumed": "; ".join(subject.certificates[""].assumes),
    }
    if evidence is not None:
        when = f"on {moment(evidence.at)}, Privateer {evidence.privateer}"
        found = f"{evidence.broken} of {len(evidence.attacks)} attacks and checks broke a claim, {when}."
        values |= {"audit": found, "origin": evidence.origin, "unattacked": ", ".join(evidence.unattacked)}
    return _statements("point", ReviewPoint, flags, values, facts)


def _guarantee(subject: Subject, claims: tuple[StatedClaim, ...]) -> str:
    privacy = subject.spec.privacy
    if privacy.epsilon is None:
        return "No epsilon is promised: this is no differential privacy."
    apart = f"The best attack tells two records apart {percent(claims[0].guesses[0].at_most)} of the time at most."
    promised = f"Epsilon {exact(privacy.epsilon)}, delta {exact(privacy.delta)}, against {privacy.trust.reader}"
    return f"{promised}. {apart}"


def mechanisms_of(record: Record, *, promises: bool) -> str:
    """Name the mechanisms of all rounds, those of sources included, or those that are planned ahead of them."""
    cohorts = (record, *record.sources)
    rows = [row for one in cohorts for row in (*one.rounds, one.planned) if row is not None]
    types = dict.fromkeys(str(row.mechanism["type"]) for row in rows)
    without = "" if promises else "; under this trust model that noise is 0, and nothing is promised"
    words = _document()["mechanism"]
    return "; ".join(f"{name}: {words.get(name, 'see docs/privacy.md')}" for name in types) + without


def _taker(row: Trust) -> str:
    return "shuffler" if row.shuffled else "server"


def _flags(row: Trust, with_tokens: bool) -> dict[str, Any]:
    return {name: getattr(row, name) for name in ("shuffled", "curated", "batched", "promises")} | {
        "tokens": with_tokens
    }


@cache
def _document() -> dict[str, Any]:
    return tomllib.loads((files("privateer_lab") / "pages/review/statements.toml").read_text(encoding="utf-8"))


def _statements(
    entries: str, kind: type[S], flags: Flags, values: Mapping[str, Any], facts: Facts | None = None
) -> tuple[S, ...]:
    """Return the entries whose flags hold; what a ``fact`` says, people alone can answer."""
    found = []
    for entry in _document()[entries]:
        if not _holds(entry, flags):
            continue
        texts = {key: _text(entry[key], flags, values) for key in kind.__struct_fields__ if key in entry}
        if "fact" in entry:
            said = getattr(facts, entry["fact"])
            texts |= {"answer": said, "source": "the file of --facts"} if said else _UNKNOWN
        found.append(kind(**texts))
    return tuple(found)


_UNKNOWN = {"answer": "Unknown.", "answered": False}


def _holds(entry: Mapping[str, Any], flags: Flags) -> bool:
    return all(bool(flags[name.lstrip("!")]) != name.startswith("!") for name in entry.get("when", ()))


def _text(value: Any, flags: Flags, values: Mapping[str, Any]) -> Any:
    if isinstance(value, list):
        value = next(one["text"] for one in value if _holds(one, flags))
    return value.format_map(values) if isinstance(value, str) else value
