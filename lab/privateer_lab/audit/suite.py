"""Runs the attacks and collects what they find."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Final, Literal

import msgspec

from privateer_core.plugins import Plugins
from privateer_core.privacy.trust import TRUST
from privateer_lab.audit.case import ANY, CHANNELS, Case
from privateer_lab.audit.finding import FORMAT, AuditFinding
from privateer_lab.audit.lower_bounds import attack
from privateer_lab.audit.mechanisms.bounded_vectors import vector_cases
from privateer_lab.audit.mechanisms.events import event_cases
from privateer_lab.audit.mechanisms.groups import group_cases
from privateer_lab.audit.mechanisms.hits import hit_cases
from privateer_lab.audit.mechanisms.keyed import keyed_cases
from privateer_lab.audit.mechanisms.moments import moment_cases
from privateer_lab.audit.mechanisms.running_sums import running_cases
from privateer_lab.audit.network.channels import channels
from privateer_lab.audit.network.sealed_reports import wire_cases
from privateer_lab.audit.parts import MechanismPart, parts
from privateer_lab.audit.whole_experiments import experiment_cases

FALSE_ALARM: Final = 1e-4
"""Chance that an audit of true claims reports any of them as broken."""
ATTACKS: Final = Plugins[Callable[[int], list[Case]]]("privateer.attacks", "distribution that brings it", "--mechanism")
"""What returns attacks with about so many observations of each neighbour, by the name of what is attacked."""


def cases(samples: int) -> list[Case]:
    """Return all attacks, with about ``samples`` observations of each neighbour where these are cheap."""
    return [
        *wire_cases(samples),
        *keyed_cases(samples),
        *event_cases(samples),
        *group_cases(samples),
        *hit_cases(samples),
        *vector_cases(samples),
        *running_cases(samples),
        *moment_cases(samples),
        *attacks_of_algorithms(samples),
        *experiment_cases(samples),
    ]


def mechanisms() -> set[str]:
    """Return the names of what can be attacked: mechanisms, algorithms and channels."""
    return {mechanism for mechanism, _, _ in attacked()} | {CHANNELS}


def attacked() -> set[tuple[str, str, str]]:
    """Return mechanism or algorithm, trust model and calibration of every claim that is attacked."""
    attacks: list[Case | MechanismPart] = [*cases(1000), *parts()]
    return {(one.mechanism, one.model, one.calibration) for one in attacks if one.model != ANY}


def audit(
    samples: int, chosen: set[str], *, model: str | None = None, calibration: str | None = None
) -> tuple[int, Iterator[AuditFinding]]:
    """Return the number of attacks, and their findings one by one.

    Parameters
    ----------
    chosen
        Names out of `mechanisms`.
    model, calibration
        Attack claims under this trust model and calibration alone, where given.
    """

    def wanted(one: Case | MechanismPart) -> bool:
        same = model in (None, one.model) and calibration in (None, one.calibration)
        return one.mechanism in chosen and (same or one.model == ANY)

    attacks, pieces = list(filter(wanted, cases(samples))), list(filter(wanted, parts()))
    checks = {name: check for name, check in channels().items() if is_about(name, model)} if CHANNELS in chosen else {}
    # A part has a bound and a law.
    alarm = FALSE_ALARM / max(1, len(attacks) + 2 * len(pieces))

    def findings() -> Iterator[AuditFinding]:
        for name, check in checks.items():
            yield _checked(name, check)
        for part in pieces:
            yield _examined(part, alarm)
        for case in attacks:
            yield _attacked(case, alarm)

    return len(checks) + len(pieces) + len(attacks), findings()


def is_about(channel: str, model: str | None) -> bool:
    """Whether the check of a channel is about a trust model: its name may end with that of another one."""
    named = channel.rpartition(", ")[2]
    return model is None or named not in TRUST or named == model


def _attacked(case: Case, alarm: float) -> AuditFinding:
    left, right = (case.sample(who, case.count) for who in (0, 1))
    found = attack(left, right, case.event, case.epsilon, case.delta, alarm)
    return AuditFinding(
        attack=case.name,
        mechanism=case.mechanism,
        model=case.model,
        calibration=case.calibration,
        epsilon=case.epsilon,
        delta=case.delta,
        lower_bound=found.lower_bound,
        confidence=1 - FALSE_ALARM,
        samples=case.count,
        verdict="holds" if found.stands(case.epsilon) else "broken",
        unsafe=case.unsafe,
    )


def _examined(part: MechanismPart, alarm: float) -> AuditFinding:
    found = part.examine(alarm)
    return AuditFinding(
        attack=f"part: {part.name}",
        mechanism=part.mechanism,
        model=part.model,
        calibration=part.calibration,
        epsilon=part.epsilon,
        delta=None if part.event is None else part.delta,
        lower_bound=found.evidence.lower_bound if found.evidence else None,
        confidence=1 - FALSE_ALARM,
        samples=part.count,
        verdict="holds" if found.holds else "broken",
        law=found.law,
    )


def _checked(name: str, check: Callable[[], bool]) -> AuditFinding:
    verdict: Literal["holds", "broken"] = "holds" if check() else "broken"
    return AuditFinding(name, CHANNELS, ANY, ANY, None, None, None, None, 1, verdict)


def summary(findings: list[AuditFinding]) -> dict[str, Any]:
    """Return figures over findings, and what found them and when; what is known to be unsafe counts apart."""
    wrong = [finding for finding in findings if not finding.holds]
    broken, known = (sorted({one.mechanism for one in wrong if one.unsafe is unsafe}) for unsafe in (False, True))
    return {
        "format": FORMAT,
        "privateer": version("privateer-lab"),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "holds": not broken,
        "broken": broken,
        "unsafe": known,
        "attacks": len(findings),
        "false_alarm": FALSE_ALARM,
        "findings": [msgspec.structs.asdict(finding) for finding in findings],
    }


def attacks_of_algorithms(samples: int) -> list[Case]:
    """Return the attacks that installed distributions bring."""
    return [case for attacks in ATTACKS.values() for case in attacks(samples)]
