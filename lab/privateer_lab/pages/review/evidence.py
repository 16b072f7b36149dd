"""Evidence of the audit about one experiment: attacks that were run, here or before; never any that were not."""

from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import msgspec

from privateer_core.errors import SpecError
from privateer_core.mechanisms import Mechanism
from privateer_core.privacy.record import Record
from privateer_core.spec.spec import Spec
from privateer_lab.audit.finding import FORMAT, Audit, AuditFinding
from privateer_lab.cli.input_files import read_document
from privateer_lab.cli.output import progress

_OPTION: Final = "--audit"
_REMEDY: Final = "write one with privateer audit --json"


class AuditEvidence(msgspec.Struct, frozen=True):
    """The part of an audit that is about one experiment."""

    origin: str  # ``run for this document``, or the name of the file
    # privateer, at, false_alarm: as in the audit
    privateer: str
    at: str
    false_alarm: float
    # mechanisms and algorithm of which the experiment is made: attacks on others say nothing about it
    wanted: tuple[str, ...]
    unattacked: tuple[str, ...]  # those of ``wanted`` on which the audit has no attack
    # those on ``wanted`` under the experiment's trust model and calibration, and the checks of channels
    attacks: tuple[AuditFinding, ...]
    broken: int  # how many of them broke a claim that the accountant confirms


def run_audit(spec: Spec, record: Record, samples: int) -> AuditEvidence:
    """Attack what an experiment is made of, with about so many observations of each neighbour."""
    from privateer_lab.audit.case import CHANNELS
    from privateer_lab.audit.suite import audit, summary

    wanted, privacy = wanted_of(spec, record), spec.privacy
    chosen = {CHANNELS, *wanted}
    total, findings = audit(samples, chosen, model=privacy.model, calibration=privacy.trust.calibration)
    found = progress(findings, total, "attacks")
    if len(found) < total:
        raise KeyboardInterrupt
    return _about(_converted(msgspec.to_builtins(summary(found))), spec, wanted, "run for this document")


def read_audit(file: Path, spec: Spec, record: Record) -> AuditEvidence:
    """Return what a stored audit says of an experiment."""
    document = _read(file)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise SpecError(f"{file} is no audit of the format {FORMAT}", field=_OPTION, remedy=_REMEDY)
    audit, here = _converted(document), version("privateer-lab")
    if audit.privateer != here:
        detail = f"{file} has an audit of Privateer {audit.privateer}, and this is {here}"
        raise SpecError(detail, field=_OPTION, remedy="run privateer audit --json again")
    return _about(audit, spec, wanted_of(spec, record), file.name)


def _read(file: Path) -> Any:
    try:
        return read_document(file)
    except SpecError as error:
        raise SpecError(error.detail, field=_OPTION, remedy=_REMEDY) from None


def _converted(document: dict[str, Any]) -> Audit:
    try:
        return msgspec.convert(document, Audit)
    except (msgspec.ValidationError, RecursionError) as error:
        raise SpecError(f"is not an audit: {error}", field=_OPTION, remedy=_REMEDY) from None


def wanted_of(spec: Spec, record: Record) -> tuple[str, ...]:
    """Name the mechanisms of the rounds, as they are or as planned, and the algorithm."""
    promises = (record, *record.sources)
    rows = [row for promise in promises for row in (*promise.rounds, promise.planned) if row is not None]
    tags = {row.mechanism.get("type") for row in rows}
    serving = spec.privacy.trust.serves[spec.question]
    kinds: Iterable[type[Mechanism]] = serving.mechanisms
    names = {kind.__name__ for kind in kinds if kind.__struct_config__.tag in tags}
    return (*sorted(names), spec.algorithm.name)


def _about(audit: Audit, spec: Spec, wanted: tuple[str, ...], origin: str) -> AuditEvidence:
    from privateer_lab.audit.case import CHANNELS
    from privateer_lab.audit.suite import is_about

    privacy = spec.privacy
    found = tuple(
        one
        for one in audit.findings
        if (one.mechanism == CHANNELS and is_about(one.attack, privacy.model))
        or (one.mechanism in wanted and (one.model, one.calibration) == (privacy.model, privacy.trust.calibration))
    )
    unattacked = tuple(sorted(set(wanted) - {one.mechanism for one in found}))
    broken = sum(one.verdict == "broken" and not one.unsafe for one in found)
    at = audit.at.isoformat(timespec="seconds")
    return AuditEvidence(origin, audit.privateer, at, audit.false_alarm, wanted, unattacked, found, broken)
