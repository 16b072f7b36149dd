"""The subject of a review: an experiment or a spec, and what only people know of it."""

import re
from datetime import date
from pathlib import Path
from typing import Any, Final

import msgspec

from privateer_core.algorithms import parse_spec
from privateer_core.answer.export import Status
from privateer_core.answer.people import People
from privateer_core.errors import SpecError, Unavailable
from privateer_core.privacy.certificate import Certificate
from privateer_core.privacy.record import Record, make_record
from privateer_core.privacy.record_verification import read_certificates
from privateer_core.spec.sections import NAME
from privateer_core.spec.spec import Spec
from privateer_lab.cli.input_files import load_spec
from privateer_lab.services.rest import RemoteError, ask
from privateer_lab.toml_file import read_tables

MISSING: Final = "TO BE FILLED IN"
SECTORS: Final = ("Technology", "Healthcare", "Education", "Government", "Energy", "Finance")
"""Those of the registry's schema."""
_OPTION: Final = "--facts"
_TEXT_MAX: Final = 4000
_ASKED: Final = (
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


def subject_of(named: str, url: str) -> Subject:
    """Return what a name or the path of a TOML file names."""
    return _planned(Path(named)) if named.endswith(".toml") else running(named, url)


def _planned(path: Path) -> Subject:
    spec = load_spec(path, []).without_people()
    record = make_record(spec, {})
    return Subject(spec, record, read_certificates(plain(record)), path.name, None)


def running(name: str, url: str) -> Subject:
    """Return a running experiment; raises what `subject_of` does."""
    if not re.fullmatch(NAME, name):
        raise SpecError("is not the name of an experiment, nor a spec (.toml)", field="NAME", remedy="privateer list")
    page = f"{url.rstrip('/')}/experiments/{name}"
    facts, record = ask("GET", page), ask("GET", f"{page}/privacy")
    certificates = read_certificates(record)
    try:
        spec = parse_spec(facts["spec"])
        standing = msgspec.convert(
            {key: facts[key] for key in ExperimentStanding.__struct_fields__}, ExperimentStanding
        )
        return Subject(spec, msgspec.convert(record, Record), certificates, page, standing, _with_tokens(page))
    except (KeyError, TypeError, SpecError, msgspec.ValidationError):
        remedy = "correct the address, or install the server's version of Privateer here"
        raise Unavailable(
            "the answer is not an experiment that this version knows", field="--url", remedy=remedy
        ) from None


def _with_tokens(page: str) -> bool:
    try:
        ask("GET", f"{page}/token-keys")
    except RemoteError:
        return False
    return True


def plain(value: Any) -> Any:
    """Return a struct as JSON brings it."""
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
    """Read the file that people fill in; without one nothing of it is known."""
    if file is None:
        return Facts()
    tables = read_tables(file, [], _OPTION)
    if unknown := set(tables) - set(Facts.__struct_fields__):
        known = ", ".join(Facts.__struct_fields__)
        raise SpecError("there is no such key", field=f"{_OPTION}: {min(unknown)}", remedy=f"the keys are {known}")
    dated = {key: value.isoformat() if isinstance(value, date) else value for key, value in tables.items()}
    try:
        found = msgspec.convert(dated, Facts)
    except msgspec.ValidationError as error:
        raise SpecError(f"{error}", field=_OPTION, remedy="write text, and lists of text as the page has it") from None
    _check(found)
    return found


def _check(facts: Facts) -> None:
    for key, value in msgspec.structs.asdict(facts).items():
        if any(len(text) > _TEXT_MAX for text in ([value] if isinstance(value, str) else value)):
            raise SpecError(f"has more than {_TEXT_MAX} characters", field=f"{_OPTION}: {key}", remedy="shorten it")
    if facts.sector and facts.sector not in SECTORS:
        raise SpecError(
            "is no sector of the registry", field=f"{_OPTION}: sector", remedy=f"one of {', '.join(SECTORS)}"
        )
    try:
        _ = facts.publication_date and date.fromisoformat(facts.publication_date)
    except ValueError:
        raise SpecError("is no date", field=f"{_OPTION}: publication_date", remedy="write YYYY-MM-DD") from None


def unknowns(facts: Facts) -> tuple[Unknown, ...]:
    """Return what nobody has said yet."""
    return tuple(Unknown(what, who, key) for key, what, who in _ASKED if not getattr(facts, key))
