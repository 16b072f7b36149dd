"""Evidence of the audit about one experiment: the results of attacks that were run, now or for a stored audit."""

from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import msgspec

from privateer_core.errors import SpecError
from privateer_core.mechanisms import Mechanism
from privateer_core.privacy.record import Record
from privateer_core.spec.spec import Spec
from privateer_lab.audit.case import FORMAT as AUDIT_FORMAT
from privateer_lab.audit.case import Audit, AuditFinding
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
    """Run the audit on an experiment's mechanisms and algorithm, with about ``samples`` observations a neighbour."""
    from privateer_lab.audit.case import CHANNELS
    from privateer_lab.audit.suite import run_audit, summarize_findings

    targets, privacy = list_audit_targets(spec, record), spec.privacy
    selection = {CHANNELS, *targets}
    total, findings = run_audit(samples, selection, model=privacy.model, calibration=privacy.trust.calibration)
    completed = progress(findings, total, "attacks")
    if len(completed) < total:
        raise KeyboardInterrupt
    document = msgspec.to_builtins(summarize_findings(completed))
    return _select_evidence(_parse_audit(document), spec, targets, "run for this document")


def read_audit(file: Path, spec: Spec, record: Record) -> AuditEvidence:
    """Read the evidence about an experiment from a stored audit; refuse an audit of another version."""
    try:
        document = read_document(file)
    except SpecError as error:
        raise SpecError(error.detail, field=_OPTION, remedy=_REMEDY) from None
    if not isinstance(document, dict) or document.get("format") != AUDIT_FORMAT:
        raise SpecError(f"{file} is no audit of the format {AUDIT_FORMAT}", field=_OPTION, remedy=_REMEDY)
    audit, local_version = _parse_audit(document), version("privateer-lab")
    if audit.privateer != local_version:
        detail = f"{file} has an audit of Privateer {audit.privateer}, and this is {local_version}"
        raise SpecError(detail, field=_OPTION, remedy="run privateer audit --json again")
    return _select_evidence(audit, spec, list_audit_targets(spec, record), file.name)


def _parse_audit(document: dict[str, Any]) -> Audit:
    """Convert a document into an audit; refuse others."""
    try:
        return msgspec.convert(document, Audit)
    except (msgspec.ValidationError, RecursionError) as error:
        raise SpecError(f"is not an audit: {error}", field=_OPTION, remedy=_REMEDY) from None


def list_audit_targets(spec: Spec, record: Record) -> tuple[str, ...]:
    """Return the names of the mechanisms of all rounds, run or planned, and of the algorithm."""
    promises = (record, *record.named_promises)
    rows = [row for promise in promises for row in (*promise.rounds, promise.planned) if row is not None]
    tags = {row.mechanism.get("type") for row in rows}
    serving = spec.privacy.trust.serves[spec.question]
    kinds: Iterable[type[Mechanism]] = serving.mechanisms
    names = {kind.__name__ for kind in kinds if kind.__struct_config__.tag in tags}
    return (*sorted(names), spec.algorithm.name)


def _select_evidence(audit: Audit, spec: Spec, targets: tuple[str, ...], origin: str) -> AuditEvidence:
    """Select the findings of an audit about the spec's mechanisms and channels, and name what was not attacked."""
    from privateer_lab.audit.case import CHANNELS
    from privateer_lab.audit.suite import is_about

    privacy = spec.privacy
    attacks = tuple(
        run
        for run in audit.findings
        if (run.mechanism == CHANNELS and is_about(run.attack, privacy.model))
        or (run.mechanism in targets and (run.model, run.calibration) == (privacy.model, privacy.trust.calibration))
    )
    unattacked = tuple(sorted(set(targets) - {run.mechanism for run in attacks}))
    n_broken = sum(run.verdict == "broken" and not run.unsafe for run in attacks)
    at = audit.at.isoformat(timespec="seconds")
    return AuditEvidence(origin, audit.privateer, at, audit.false_alarm, targets, unattacked, attacks, n_broken)
