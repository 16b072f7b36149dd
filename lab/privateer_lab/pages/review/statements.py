"""Statements of a review, selected from ``statements.toml``: parties, exposures, stored data, points, registry."""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final, TypeVar

import msgspec
import yaml

from privateer_core.privacy.record import Record
from privateer_core.privacy.trust import Trust
from privateer_core.spec.spec import Spec
from privateer_lab.pages.review.evidence import AuditEvidence
from privateer_lab.pages.review.subject import MISSING, Facts, StatedClaim, Subject
from privateer_lab.pages.templates import exact, moment
from privateer_lab.render.words import percent

Flags = Mapping[str, Any]
"""Conditions of an experiment by their names in ``when``."""
StructT = TypeVar("StructT", bound=msgspec.Struct)


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
    """One point of NIST SP 800-226 (March 2025), in the order of its evaluation pyramid."""

    # topic, question: what the guidelines ask
    topic: str
    question: str
    # answer, source: the answer, and where it comes from
    answer: str
    source: str
    answered: bool = True  # whether there is one; otherwise ``source`` says who has to give it


def parties(trust: Trust, with_tokens: bool = False) -> tuple[Party, ...]:
    """Return the parties of a trust model with the data that each sees, also with upload tokens."""
    return _select_statements("party", Party, _trust_flags(trust, with_tokens), {"sees": trust.sees})


def list_exposures(spec: Spec, with_tokens: bool = False) -> tuple[Exposure, ...]:
    """Return the exposures that the promise of an experiment does not cover."""
    privacy, trust = spec.privacy, spec.privacy.trust
    flags = _trust_flags(trust, with_tokens) | {
        "window": spec.experiment.conversion_window_seconds,
        "hides arms": trust.hides_arms,
        "arms hidden": privacy.arm_visibility == "hidden",
        "as alone": privacy.is_as_local,
    }
    share = f"{privacy.honest_fraction:.12g}"
    values = {
        "taker": _report_receiver(trust),
        "arm": "The arm by itself says something of the person, since a learned policy plays different arms for "
        "others.",
        "honest": f"The promise counts on a share of {share} honest reports in every batch, which no device can check.",
    }
    return _select_statements("exposure", Exposure, flags, values)


def list_stored_data(spec: Spec, with_tokens: bool = False) -> tuple[Kept, ...]:
    """Return the data that an experiment stores, also with upload tokens."""
    trust, window = spec.privacy.trust, spec.experiment.conversion_window_seconds
    flags = _trust_flags(trust, with_tokens) | {"window": window}
    return _select_statements("kept", Kept, flags, {"taker": _report_receiver(trust), "window": window})


def list_points(
    subject: Subject, claims: tuple[StatedClaim, ...], evidence: AuditEvidence | None, facts: Facts
) -> tuple[ReviewPoint, ...]:
    """Return all points of NIST SP 800-226 for an experiment."""
    trust, n_reports = subject.spec.privacy.trust, subject.record.reports_per_person
    flags = _trust_flags(trust, subject.with_tokens) | {
        "verified": all(claim.holds for claim in claims),
        "audited": evidence,
        "unattacked": evidence and evidence.unattacked,
    }
    values = {
        "sees": trust.sees,
        "guarantee": _guarantee_sentence(subject, claims),
        "reports": "one report" if n_reports == 1 else f"{n_reports} reports, which share the promise",
        "mechanisms": describe_mechanisms(subject.record, has_guarantee=trust.promises),
        "proofs": "; ".join(dict.fromkeys(claim.proof for claim in claims)),
        "assumed": "; ".join(subject.certificates[""].assumes),
    }
    if evidence is not None:
        date = f"on {moment(evidence.at)}, Privateer {evidence.privateer}"
        outcome = f"{evidence.broken} of {len(evidence.attacks)} attacks and checks broke a claim, {date}."
        values |= {"audit": outcome, "origin": evidence.origin, "unattacked": ", ".join(evidence.unattacked)}
    return _select_statements("point", ReviewPoint, flags, values, facts)


def _guarantee_sentence(subject: Subject, claims: tuple[StatedClaim, ...]) -> str:
    """State the promise, and how well the best attack tells two records apart."""
    privacy = subject.spec.privacy
    if privacy.epsilon is None:
        return "No epsilon is promised: this is no differential privacy."
    attack = f"The best attack tells two records apart {percent(claims[0].guesses[0].at_most)} of the time at most."
    promised = f"Epsilon {exact(privacy.epsilon)}, delta {exact(privacy.delta)}, against {privacy.trust.reader}"
    return f"{promised}. {attack}"


def describe_mechanisms(record: Record, *, has_guarantee: bool) -> str:
    """Return names and descriptions of the mechanisms of all rounds, of sources, too, run or planned."""
    cohorts = (record, *record.sources)
    rows = [row for cohort in cohorts for row in (*cohort.rounds, cohort.planned) if row is not None]
    types = dict.fromkeys(str(row.mechanism["type"]) for row in rows)
    no_noise_clause = "" if has_guarantee else "; under this trust model that noise is 0, and nothing is promised"
    words = _load_statements()["mechanism"]
    return "; ".join(f"{name}: {words.get(name, 'see docs/privacy.md')}" for name in types) + no_noise_clause


def _report_receiver(trust: Trust) -> str:
    return "shuffler" if trust.shuffled else "server"


def _trust_flags(trust: Trust, with_tokens: bool) -> dict[str, Any]:
    flags = {name: getattr(trust, name) for name in ("shuffled", "curated", "batched", "promises")}
    return flags | {"tokens": with_tokens}


@cache
def _load_statements() -> dict[str, Any]:
    return tomllib.loads((files("privateer_lab") / "pages/review/statements.toml").read_text(encoding="utf-8"))


def _select_statements(
    entries: str, kind: type[StructT], flags: Flags, values: Mapping[str, Any], facts: Facts | None = None
) -> tuple[StructT, ...]:
    """Return the statements whose conditions are satisfied; an entry with a ``fact`` has the team's answer."""
    statements = []
    for entry in _load_statements()[entries]:
        if not _is_applicable(entry, flags):
            continue
        texts = {key: _resolve_text(entry[key], flags, values) for key in kind.__struct_fields__ if key in entry}
        if "fact" in entry:
            fact = getattr(facts, entry["fact"])
            texts |= {"answer": fact, "source": "the file of --facts"} if fact else _UNKNOWN_ANSWER
        statements.append(kind(**texts))
    return tuple(statements)


_UNKNOWN_ANSWER = {"answer": "Unknown.", "answered": False}


def _is_applicable(entry: Mapping[str, Any], flags: Flags) -> bool:
    return all(bool(flags[name.lstrip("!")]) != name.startswith("!") for name in entry.get("when", ()))


def _resolve_text(value: Any, flags: Flags, values: Mapping[str, Any]) -> Any:
    if isinstance(value, list):
        value = next(option["text"] for option in value if _is_applicable(option, flags))
    return value.format_map(values) if isinstance(value, str) else value


_NO_DATE: Final = "1900-01-01"
"""The placeholder of a missing date in the registry's template."""
_YAML_HEADER: Final = f"""\
# An entry for the Differential Privacy Deployments Registry: registry.opendp.org.
# {MISSING}, and the date {_NO_DATE}, stand where people have to say something.
"""
_PRIVACY_UNIT: Final = "person (user level)"


def build_registry_entry(subject: Subject, claims: tuple[StatedClaim, ...], facts: Facts) -> dict[str, Any] | None:
    """Build the entry for the registry; None without a promise, since there is no differential privacy to register."""
    if not subject.spec.privacy.trust.promises:
        return None
    deployment = {
        "basic": _basic_section(subject, facts),
        "dp_variant": _variant_section(subject),
        "privacy_loss": _privacy_loss_section(subject, claims),
        "deployment_model": _deployment_model_section(subject),
        "accounting": _accounting_section(subject, claims),
        "implementation": _implementation_section(subject, facts),
        "administrative": {
            "sources": facts.sources or MISSING,
            "notes": facts.notes or "Made by privateer review.",
            "registry_authors": list(facts.authors) or [MISSING],
        },
    }
    return {"url_slug": subject.spec.name, "status": "Draft", "tier": 3, "deployment": deployment}


class _BlockTextDumper(yaml.SafeDumper):
    """A YAML dumper that writes texts of several lines as blocks."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_BlockTextDumper.add_representer(str, _represent_text)


def format_yaml(entry: dict[str, Any]) -> str:
    """Format an entry as YAML for the registry."""
    return _YAML_HEADER + str(yaml.dump(entry, Dumper=_BlockTextDumper, sort_keys=False, allow_unicode=True, width=110))


def _basic_section(subject: Subject, facts: Facts) -> dict[str, Any]:
    """Build the registry's section on the data product; what is not known is marked as missing."""
    spec = subject.spec
    fields: dict[str, Any] = {
        "name": spec.name,
        "data_curators": list(facts.curators) or [MISSING],
        "intended_use": facts.intended_use or MISSING,
        "data_product_type": "Machine learning model",
        "data_product_region": facts.region or MISSING,
        "description": f"A policy learned from reports of people by the algorithm '{spec.algorithm.name}', and the "
        "estimates that it rests on.",
        "publication_date": facts.publication_date or _NO_DATE,
    }
    return fields | ({"data_product_sector": facts.sector} if facts.sector else {})


def _variant_section(subject: Subject) -> dict[str, Any]:
    """Build the registry's section on the variant of privacy and on what is not protected."""
    spec = subject.spec
    names = ", ".join(spec.features) or "no features"
    return {
        "variant_name": "Approximate DP" if spec.privacy.delta else "Pure DP",
        "data_domain": f"One record a report: the person's features ({names}), what was chosen for them, and a reward "
        f"from {spec.reward.low:.12g} to {spec.reward.high:.12g}.",
        "unprotected_quantities": "Participation, times of reports, the numbers of reports and of refusals by reason.",
    }


def _privacy_loss_section(subject: Subject, claims: tuple[StatedClaim, ...]) -> dict[str, Any]:
    """Build the registry's section on the unit of privacy and its parameters, those of the weakest promise."""
    privacy, record = subject.spec.privacy, subject.record
    # The details have the promise to each source; the parameters are those of the weakest promise.
    weakest = max(subject.spec.cohort_privacy(cohort).epsilon or 0.0 for cohort in subject.certificates)
    parameters = {"epsilon": weakest} | ({"delta": privacy.delta} if privacy.delta else {})
    n_reports = record.reports_per_person
    reports = "one report" if n_reports == 1 else f"{n_reports} reports, which share the promise,"
    return {
        "privacy_unit": _PRIVACY_UNIT,
        "privacy_unit_details": "Neighbours differ in one person's whole record: context, arm and reward. A person's "
        f"device makes {reports} at most to the experiment.",
        "privacy_parameters": parameters,
        "privacy_parameters_details": "\n".join(map(_state_loss, claims)),
    }


def _state_loss(claim: StatedClaim) -> str:
    source = f" (source {claim.cohort})" if claim.cohort else ""
    loss = "nothing is claimed" if claim.epsilon is None else f"epsilon {claim.epsilon:.12g}, delta {claim.delta:.12g}"
    return f"Against {claim.adversary}{source}, about {claim.protects}: {loss}."


def _deployment_model_section(subject: Subject) -> dict[str, Any]:
    """Build the registry's section on who sees what, and on releases."""
    trust = subject.spec.privacy.trust
    actors = [
        f"- {actor.name}: sees {actor.sees}." + (f" It cannot {actor.cannot}." if actor.cannot else "")
        for actor in parties(trust)
    ]
    assumptions = [f"- Assumed: {text}." for text in subject.certificates[""].assumes]
    return {
        "model_name": trust.name.capitalize(),
        "model_name_details": f"The server sees {trust.sees}. The promise is against {trust.reader}.",
        "actors": "\n".join([*actors, *assumptions]),
        "release_type": "Many releases",
        "release_type_details": "A policy is published at the end of each round. Every report is in one round, and a "
        "person's reports to the experiment share one promise, which is not renewed.",
        "data_source_type": "Dynamic",
        "data_source_type_details": "People take part as they come; a round closes when enough reports are there.",
        "access_type": "Non-interactive",
        "access_type_details": "Nobody queries reports. The policy, the result and the counts are published.",
    }


def _accounting_section(subject: Subject, claims: tuple[StatedClaim, ...]) -> dict[str, Any]:
    """Build the registry's section on composition and proofs."""
    proofs = dict.fromkeys(claim.proof for claim in claims if claim.epsilon is not None)
    mode = "in parallel: a person is in one round" if subject.record.reports_per_person == 1 else "as one allotment"
    return {
        "post_processing": "The learner: estimates, intervals, and the next policy are functions of what was released.",
        "composition": f"Rounds compose {mode}. Proofs: {'; '.join(proofs)}.",
    }


def _implementation_section(subject: Subject, facts: Facts) -> dict[str, Any]:
    """Build the registry's section on mechanisms and their noise."""
    rows = (*subject.record.rounds, subject.record.planned)
    mechanism_types = sorted({str(row.mechanism.get("type")) for row in rows if row is not None})
    return {
        "preprocessing_and_hyperparameter_tuning": "Contexts and rewards are clipped to public bounds on the device. "
        f"Whether settings were tuned on data of people: {MISSING}.",
        "mechanisms": f"{', '.join(mechanism_types)}, by Privateer. Noise comes from the operating system, and from "
        "distributions that are exact or whose error is in delta. Timing of processor and network is not measured. "
        "Reports are sealed (HPKE); a round's key is erased with it.",
        "justification": facts.choices or MISSING,
    }
