"""An entry of the Differential Privacy Deployments Registry (registry.opendp.org), as far as the record knows it.

Fields and enumerations are those of ``schemas/deployments-schema.yaml`` of github.com/opendp/deployments-registry-data,
at commit 3e9c812 of 2026-07-15. Where people have to say something, its place says so.
"""

from typing import Any, Final

import yaml

from privateer_lab.pages.review.promises import StatedClaim
from privateer_lab.pages.review.statements import parties
from privateer_lab.pages.review.subject import MISSING, Facts, Subject

_NO_DATE: Final = "1900-01-01"
"""What the registry's own template has where a date has to be filled in."""
_HEAD: Final = f"""\
# An entry for the Differential Privacy Deployments Registry: registry.opendp.org.
# {MISSING}, and the date {_NO_DATE}, stand where people have to say something.
"""
_UNIT: Final = "person (user level)"


def registry(subject: Subject, claims: tuple[StatedClaim, ...], facts: Facts) -> dict[str, Any] | None:
    """Return the entry; None where nothing is promised, so that there is no differential privacy to register."""
    if not subject.spec.privacy.trust.promises:
        return None
    deployment = {
        "basic": _basic(subject, facts),
        "dp_variant": _variant(subject),
        "privacy_loss": _loss(subject, claims),
        "deployment_model": _model(subject),
        "accounting": _accounting(subject, claims),
        "implementation": _implementation(subject, facts),
        "administrative": {
            "sources": facts.sources or MISSING,
            "notes": facts.notes or "Made by privateer review.",
            "registry_authors": list(facts.authors) or [MISSING],
        },
    }
    return {"url_slug": subject.spec.name, "status": "Draft", "tier": 3, "deployment": deployment}


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as such."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def as_yaml(entry: dict[str, Any]) -> str:
    """Write an entry as the registry keeps it."""
    return _HEAD + str(yaml.dump(entry, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110))


def _basic(subject: Subject, facts: Facts) -> dict[str, Any]:
    spec = subject.spec
    known: dict[str, Any] = {
        "name": spec.name,
        "data_curators": list(facts.curators) or [MISSING],
        "intended_use": facts.intended_use or MISSING,
        "data_product_type": "Machine learning model",
        "data_product_region": facts.region or MISSING,
        "description": f"A policy learned from reports of people by the algorithm '{spec.algorithm.name}', and the "
        "estimates that it rests on.",
        "publication_date": facts.publication_date or _NO_DATE,
    }
    return known | ({"data_product_sector": facts.sector} if facts.sector else {})


def _variant(subject: Subject) -> dict[str, Any]:
    spec = subject.spec
    named = ", ".join(spec.features) or "no features"
    return {
        "variant_name": "Approximate DP" if spec.privacy.delta else "Pure DP",
        "data_domain": f"One record a report: the person's features ({named}), what was chosen for them, and a reward "
        f"from {spec.reward.low:.12g} to {spec.reward.high:.12g}.",
        "unprotected_quantities": "Participation, times of reports, the numbers of reports and of refusals by reason.",
    }


def _loss(subject: Subject, claims: tuple[StatedClaim, ...]) -> dict[str, Any]:
    privacy, record = subject.spec.privacy, subject.record
    # The details have the promise to each source; what stands for all people is the weakest.
    weakest = max(subject.spec.privacy_of(cohort).epsilon or 0.0 for cohort in subject.certificates)
    parameters = {"epsilon": weakest} | ({"delta": privacy.delta} if privacy.delta else {})
    details = [
        f"Against {one.against}{f' (source {one.cohort})' if one.cohort else ''}, about {one.about}: "
        + ("nothing is claimed." if one.epsilon is None else f"epsilon {one.epsilon:.12g}, delta {one.delta:.12g}.")
        for one in claims
    ]
    times = record.reports_per_person
    reports = "one report" if times == 1 else f"{times} reports, which share the promise,"
    return {
        "privacy_unit": _UNIT,
        "privacy_unit_details": "Neighbours differ in one person's whole record: context, arm and reward. A person's "
        f"device makes {reports} at most to the experiment.",
        "privacy_parameters": parameters,
        "privacy_parameters_details": "\n".join(details),
    }


def _model(subject: Subject) -> dict[str, Any]:
    row = subject.spec.privacy.trust
    actors = [
        f"- {one.name}: sees {one.sees}." + (f" It cannot {one.cannot}." if one.cannot else "") for one in parties(row)
    ]
    assumed = [f"- Assumed: {text}." for text in subject.certificates[""].assumes]
    return {
        "model_name": row.name.capitalize(),
        "model_name_details": f"The server sees {row.sees}. The promise is against {row.reader}.",
        "actors": "\n".join([*actors, *assumed]),
        "release_type": "Many releases",
        "release_type_details": "A policy is published at the end of each round. Every report is in one round, and a "
        "person's reports to the experiment share one promise, which is not renewed.",
        "data_source_type": "Dynamic",
        "data_source_type_details": "People take part as they come; a round closes when enough reports are there.",
        "access_type": "Non-interactive",
        "access_type_details": "Nobody queries reports. The policy, the result and the counts are published.",
    }


def _accounting(subject: Subject, claims: tuple[StatedClaim, ...]) -> dict[str, Any]:
    proofs = dict.fromkeys(one.proof for one in claims if one.epsilon is not None)
    share = "in parallel: a person is in one round" if subject.record.reports_per_person == 1 else "as one allotment"
    return {
        "post_processing": "The learner: estimates, intervals, and the next policy are functions of what was released.",
        "composition": f"Rounds compose {share}. Proofs: {'; '.join(proofs)}.",
    }


def _implementation(subject: Subject, facts: Facts) -> dict[str, Any]:
    rows = (*subject.record.rounds, subject.record.planned)
    kinds = sorted({str(row.mechanism.get("type")) for row in rows if row is not None})
    return {
        "preprocessing_and_hyperparameter_tuning": "Contexts and rewards are clipped to public bounds on the device. "
        f"Whether settings were tuned on data of people: {MISSING}.",
        "mechanisms": f"{', '.join(kinds)}, by Privateer. Noise comes from the operating system, and from "
        "distributions that are exact or whose error is in delta. Timing of processor and network is not measured. "
        "Reports are sealed (HPKE); a round's key is erased with it.",
        "justification": facts.choices or MISSING,
    }
