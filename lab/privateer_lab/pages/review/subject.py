"""What is reviewed: a running experiment, as its server answers, or a spec that nobody has started."""

import re
from pathlib import Path
from typing import Any

import msgspec

from privateer_core.algorithms import parse_spec
from privateer_core.answer.export import Status
from privateer_core.errors import SpecError, Unavailable
from privateer_core.privacy.certificate import Certificate
from privateer_core.privacy.record import Record, make_record
from privateer_core.privacy.record_verification import read_certificates
from privateer_core.spec.spec import NAME, Spec
from privateer_lab.cli.spec_files import load_spec
from privateer_lab.services.rest import RemoteError, ask


class ExperimentStanding(msgspec.Struct, frozen=True):
    """Where a running experiment stands.

    Attributes
    ----------
    version
        Of its policy.
    accepted, planned
        Reports that count, and the most that may come.
    refused
        Reports that do not count, by reason.
    """

    status: Status
    version: int
    accepted: int
    planned: int
    refused: dict[str, int]


class Subject(msgspec.Struct, frozen=True):
    """An experiment under review.

    Attributes
    ----------
    spec
        What it is created from.
    record
        Its privacy record, as JSON has it; that of a spec has no rounds yet.
    certificates
        Those in the record, by cohort; the experiment's own people are "".
    origin
        The address or the file that it comes from.
    standing
        None for a spec that nobody has started.
    with_tokens
        Whether its server shows keys of upload tokens for it: its reports then come with tokens.
    """

    spec: Spec
    record: Record
    certificates: dict[str, Certificate]
    origin: str
    standing: ExperimentStanding | None
    with_tokens: bool = False


def subject_of(named: str, url: str) -> Subject:
    """Return what a name or the path of a TOML file names.

    Raises
    ------
    SpecError
        If the file is not a spec, or the record that the server answers with does not make its certificates.
    PrivateerError
        If the server does not answer, or has no such experiment.
    """
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
