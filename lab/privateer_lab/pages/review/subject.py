"""The subject of a review: a running experiment or a spec, its claims, and facts that only its team knows."""

import math
import re
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any, Final

import msgspec

from privateer_core.algorithms import parse_spec
from privateer_core.answer.people import People
from privateer_core.errors import SpecError, Unavailable
from privateer_core.experiment_status import Status
from privateer_core.portable import round_up
from privateer_core.privacy.certificate import Certificate, Verdict, recompute
from privateer_core.privacy.certificate import Claim as Certified
from privateer_core.privacy.record import Record, make_record
from privateer_core.privacy.record_verification import read_certificates
from privateer_core.privacy.risk import assess_risks, reconstruction_probability
from privateer_core.spec.sections import NAME
from privateer_core.spec.spec import Spec
from privateer_lab.cli.input_files import load_spec
from privateer_lab.pages.templates import exact
from privateer_lab.render.words import percent
from privateer_lab.services.rest import RemoteError, request_json
from privateer_lab.toml_file import read_tables

MISSING: Final = "TO BE FILLED IN"
SECTORS: Final = ("Technology", "Healthcare", "Education", "Government", "Energy", "Finance")
"""The sectors of the registry's schema."""
_OPTION: Final = "--facts"
_MAX_LENGTH: Final = 4000
_REQUIRED_FACTS: Final = (
    ("curators", "who publishes the experiment and answers for it", "the data controller"),
    ("contact", "whom people can ask about it", "the data controller"),
    ("intended_use", "what the result is for", "the product team"),
    ("region", "where the people are, and whose law applies", "the data controller"),
    ("publication_date", "when the first policy was, or will be, published", "the operator"),
    ("authors", "who fills in the registry's entry", "the reviewer"),
    ("legal_basis", "on what legal basis people are asked", "the data controller's lawyer"),
    ("information", "how people are told of it", "the data controller's lawyer"),
    ("deletion", "when the experiment, backups and exports are deleted", "the operator"),
    ("choices", "why this trust model, epsilon and delta were chosen", "the privacy engineer"),
    ("bias", "whom the outcome may treat worse, and what is done about it", "the product team"),
)


class ExperimentStanding(msgspec.Struct, frozen=True):
    """The progress and status of a running experiment."""

    status: Status
    version: int  # of its policy
    # accepted, people: reports that count, and the account of the people who are planned
    accepted: int
    people: People
    refused: dict[str, int]  # reports that do not count, by reason


class Subject(msgspec.Struct, frozen=True):
    """An experiment under review."""

    spec: Spec  # what it is created from
    record: Record  # its privacy record, as JSON has it; that of a spec has no rounds yet
    certificates: dict[str, Certificate]  # those in the record, by cohort; the experiment's own people are ""
    origin: str  # the address or the file that it comes from
    standing: ExperimentStanding | None  # None for a spec that nobody has started
    # whether its server shows keys of upload tokens for it: its reports then come with tokens
    with_tokens: bool = False


def read_subject(name_or_path: str, url: str) -> Subject:
    """Read the subject of a review: a running experiment by name, or a spec by the path of a TOML file."""
    if not name_or_path.endswith(".toml"):
        return read_running(name_or_path, url)
    path = Path(name_or_path)
    spec = load_spec(path, []).without_people()
    if not spec.privacy.trust.is_served:
        raise SpecError("is for simulation alone", field="privacy.model", remedy="choose another to have it reviewed")
    record = make_record(spec, {})
    return Subject(spec, record, read_certificates(to_builtins(record)), path.name, None)


def read_running(name: str, url: str) -> Subject:
    """Read a running experiment from a server; `Unavailable` if this version does not know the answer."""
    if not re.fullmatch(NAME, name):
        raise SpecError("is not the name of an experiment, nor a spec (.toml)", field="NAME", remedy="privateer list")
    address = f"{url.rstrip('/')}/experiments/{name}"
    facts, record = request_json("GET", address), request_json("GET", f"{address}/privacy")
    certificates = read_certificates(record)
    try:
        spec = parse_spec(facts["spec"])
        standing = msgspec.convert(facts, ExperimentStanding)
        return Subject(spec, msgspec.convert(record, Record), certificates, address, standing, _has_token_keys(address))
    except (KeyError, TypeError, SpecError, msgspec.ValidationError):
        detail = "the answer is not an experiment that this version knows"
        remedy = "correct the address, or install the server's version of Privateer here"
        raise Unavailable(detail, field="--url", remedy=remedy) from None


def _has_token_keys(experiment_url: str) -> bool:
    """Tell whether the server lists token keys of the experiment; an error means no."""
    try:
        request_json("GET", f"{experiment_url}/token-keys")
    except RemoteError:
        return False
    return True


def to_builtins(value: Any) -> Any:
    """Convert a struct to the types that JSON has."""
    return msgspec.json.decode(msgspec.json.encode(value))


class Facts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What no software knows; an empty value is unknown."""

    # curators, contact: who publishes and answers for the experiment, and how to reach them
    curators: tuple[str, ...] = ()
    contact: str = ""
    # intended_use, region, sector, publication_date, authors, sources, notes: as the DP deployments registry has them
    intended_use: str = ""
    region: str = ""
    sector: str = ""
    publication_date: str = ""
    authors: tuple[str, ...] = ()
    sources: str = ""
    notes: str = ""
    # legal_basis, information, deletion: on what basis people are asked, how they are told, and when the experiment is
    # deleted
    legal_basis: str = ""
    information: str = ""
    deletion: str = ""
    choices: str = ""  # why this trust model, epsilon and delta
    bias: str = ""  # whom the outcome may treat worse, and what is done about it


class Unknown(msgspec.Struct, frozen=True):
    """Something that is not known, who has to say it, and under which key of the file."""

    what: str
    who: str
    key: str


def read_facts(file: Path | None) -> Facts:
    """Read the file of facts that the team fills in; all are unknown without a file; refuse unknown keys."""
    if file is None:
        return Facts()
    tables = read_tables(file, [], _OPTION)
    if unknown := set(tables) - set(Facts.__struct_fields__):
        keys = ", ".join(Facts.__struct_fields__)
        raise SpecError("there is no such key", field=f"{_OPTION}: {min(unknown)}", remedy=f"the keys are {keys}")
    values = {key: value.isoformat() if isinstance(value, date) else value for key, value in tables.items()}
    try:
        facts = msgspec.convert(values, Facts)
    except msgspec.ValidationError as error:
        raise SpecError(f"{error}", field=_OPTION, remedy="write text, and lists of text as the page has it") from None
    _check_facts(facts)
    return facts


def _check_facts(facts: Facts) -> None:
    """Refuse facts that are too long, an unknown sector, and a date that is none."""
    for key, value in msgspec.structs.asdict(facts).items():
        if any(len(text) > _MAX_LENGTH for text in ([value] if isinstance(value, str) else value)):
            raise SpecError(f"has more than {_MAX_LENGTH} characters", field=f"{_OPTION}: {key}", remedy="shorten it")
    if facts.sector and facts.sector not in SECTORS:
        remedy = f"one of {', '.join(SECTORS)}"
        raise SpecError("is no sector of the registry", field=f"{_OPTION}: sector", remedy=remedy)
    try:
        _ = facts.publication_date and date.fromisoformat(facts.publication_date)
    except ValueError:
        raise SpecError("is no date", field=f"{_OPTION}: publication_date", remedy="write YYYY-MM-DD") from None


def list_unknowns(facts: Facts) -> tuple[Unknown, ...]:
    """Return the required facts that are missing."""
    return tuple(Unknown(text, owner, key) for key, text, owner in _REQUIRED_FACTS if not getattr(facts, key))


CANDIDATE_COUNTS: Final = (2, 10, 100)
"""Numbers of equally likely records among which an attacker guesses."""


class Guess(msgspec.Struct, frozen=True):
    """The chance that an attacker guesses right."""

    candidates: int  # equally likely records, one of which is the person's
    blind: float  # how often a guess without any report is right
    at_most: float  # how often the best attack is right at most


class StatedClaim(msgspec.Struct, frozen=True):
    """One claim of a certificate, recomputed."""

    cohort: str  # the source whose people it is about; empty for the experiment's own
    # adversary, protects, epsilon, delta, proof, exact: as in the certificate; an epsilon of None claims nothing
    adversary: str
    protects: str
    epsilon: float | None
    delta: float
    proof: str
    exact: bool
    # recomputed_delta, holds: delta as recomputed from the event, and whether the claim stands
    recomputed_delta: float
    holds: bool
    advantage: float  # of membership: the true positive rate less the false positive rate of the best attack, at most
    guesses: tuple[Guess, ...]  # reconstruction: how often records are guessed
    words: str  # the claim in plain words


def state_claims(certificates: Mapping[str, Certificate]) -> tuple[StatedClaim, ...]:
    """Recompute the claims of an experiment's certificates."""
    return tuple(claim for cohort, certificate in certificates.items() for claim in _state_claims(cohort, certificate))


def format_promise(first: Mapping[str, Certified | StatedClaim]) -> str:
    """Return a clause with the promise to participants, by the first claim of each cohort: sources may differ."""
    losses = {cohort: _loss_text(claim) for cohort, claim in first.items()}
    others = {cohort: loss for cohort, loss in losses.items() if loss != losses[""]}
    own_clause = f"promised {losses['']}, against {first[''].adversary}"
    if not others:
        return f"Each person is {own_clause}"
    of_sources = (f"those of {source} {promise}" for source, promise in others.items())
    return "; ".join([f"People of no source or tier are {own_clause}", *of_sources])


def _loss_text(claim: Certified | StatedClaim) -> str:
    if claim.epsilon is None:
        return "nothing"
    return f"epsilon {exact(claim.epsilon)}" + (f", delta {exact(claim.delta)}" if claim.delta else "")


def _state_claims(cohort: str, certificate: Certificate) -> Iterator[StatedClaim]:
    """Recompute each claim of a certificate, and state it with its risks."""
    claim_risks = assess_risks(certificate).risks
    for claim, verdict, risk in zip(certificate.claims, recompute(certificate), claim_risks, strict=True):
        guesses = tuple(Guess(k, 1 / k, reconstruction_probability(claim, k)) for k in CANDIDATE_COUNTS)
        yield StatedClaim(
            cohort=cohort,
            adversary=claim.adversary,
            protects=claim.protects,
            epsilon=claim.epsilon,
            delta=claim.delta,
            proof=verdict.proof,
            exact=verdict.exact,
            recomputed_delta=verdict.recomputed_delta,
            holds=verdict.holds,
            advantage=risk.advantage,
            guesses=guesses,
            words=_explain_claim(claim, verdict, guesses),
        )


def _explain_claim(claim: Certified, verdict: Verdict, guesses: tuple[Guess, ...]) -> str:
    """Say in words what a claim means for a person, and whether it fails."""
    if claim.epsilon is None:
        proof = claim.proof[:1].upper() + claim.proof[1:]
        return f"{proof}. Somebody in this place may know everything about the person's record."
    delta_clause = f", but for a probability of {exact(claim.delta)}" if claim.delta else ""
    factor = f"{round_up(math.exp(claim.epsilon), 3):,.6g} times"
    ratio = f"What they see is at most {factor} as probable with a person's own record as with any other{delta_clause}."
    fewest = guesses[0]
    guess_text = (
        f"Somebody who knows everything else, and for whom {fewest.candidates} records are equally likely, names the "
        f"right one in at most {percent(fewest.at_most)} of all cases; a blind guess does in {percent(fewest.blind)}."
    )
    failures = [] if verdict.holds else ["THE CLAIM DOES NOT HOLD: what was recomputed is above it."]
    return " ".join([ratio, guess_text, *failures])
