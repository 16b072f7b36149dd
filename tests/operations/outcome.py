"""What a fault came to: alerts, readiness, the doctor, the cure, and whether each report counts once."""

import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.operations.alert_history import CALM, CURED, LASTING, Fired, Phase, fired
from tests.operations.catalog import Case
from tests.operations.operated_world import MIXED, PLAIN, OperatedWorld, operated_world
from tests.support.postgres import Cluster

_AFTER_SECONDS = 8.0
_CURE_SECONDS = 120.0
_NO_FULL_BATCH = "privateer_shuffler_full_batch_timestamp_seconds 0.0"
_DOCTOR_BEGINS = 0.3
"""When the doctor is asked, as a share of the time for which a fault is watched."""


@dataclass
class Outcome:
    """One line of the table.

    Attributes
    ----------
    readiness, doctor
        What they said while the fault was there.
    left
        What is still wrong after the cure; empty if it cured.
    acknowledged, lost, doubled
        Reports.
    """

    case: Case
    alerts: Fired = field(default_factory=lambda: Fired(set(), {}, set()))
    readiness: Counter[str] = field(default_factory=Counter)
    doctor: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    acknowledged: int = 0
    lost: int = 0
    doubled: int = 0
    given_up: int = 0

    def row(self) -> list[str]:
        """Cells of the table."""
        alerts = ", ".join(f"{name.removeprefix('Privateer')} ({minutes} min)" for name, minutes in self.during())
        fault = self.case.fault
        return [
            str(self.case.seed),
            f"{fault.name}, {self.case.store}",
            alerts or f"none: {fault.why_silent or 'SILENT'}",
            "; ".join(self.readiness) or "all ready",
            "; ".join(self.doctor) or "all ok",
            "; ".join(self.left) or "yes",
            f"{self.acknowledged}/{self.lost}/{self.doubled}" + (f" ({self.given_up} given up)" * bool(self.given_up)),
        ]

    def during(self) -> list[tuple[str, int]]:
        """Alerts in the order in which they fire."""
        return sorted(self.alerts.during.items(), key=lambda row: (row[1], row[0]))

    def faults(self) -> list[str]:
        """What should be otherwise."""
        fault, wrong = self.case.fault, []
        if early := self.alerts.before - set(fault.alerts if fault.began_earlier else ()):
            wrong.append(f"alerts before the fault: {sorted(early)}")
        if fault.alerts and not set(fault.alerts) & set(self.alerts.during):
            wrong.append(f"none of {fault.alerts} fires")
        if not fault.alerts and self.alerts.during:
            wrong.append(f"alerts: {self.alerts.during}")
        if fault.says and not (self.readiness or self.doctor):
            wrong.append("neither readiness nor the doctor says anything")
        if not any(fault.doctor_says in line for line in ["", *self.doctor]):
            wrong.append(f"the doctor does not say that something {fault.doctor_says}")
        if self.left or self.alerts.after:
            wrong.append(f"not cured: {self.left} {sorted(self.alerts.after)}")
        if self.lost or self.doubled:
            wrong.append(f"{self.lost} reports lost, {self.doubled} doubled")
        return wrong


def run(case: Case, folder: Path, cluster: Cluster | None) -> Outcome:
    """Let a fault happen to a world, and cure it."""
    fault, outcome = case.fault, Outcome(case)
    disks, clocks = ({fault.role} if flag else set() for flag in (fault.disk, fault.clock))
    with operated_world(folder, cluster, disks, clocks) as world:
        world.people()
        fault.prepare(world)
        before = world.watch_until(case.held)
        fault.inject(world)
        if fault.restarts:
            world.services[fault.restarts].await_answer()
        asked = threading.Timer(fault.seconds * _DOCTOR_BEGINS, lambda: outcome.doctor.extend(world.doctor()))
        asked.start()
        try:
            during = world.watch(fault.seconds, outcome.readiness)
            asked.join()  # it ends although disk and database stand still
        finally:
            fault.cure(world)
        asked.join()
        outcome.left += _left(world)
        after = world.watch(_AFTER_SECONDS)
        world.settle()
        world.complete()
        _count(world, outcome)
        outcome.left += [line for line in world.doctor() if line.startswith("fail")]
    lasting = LASTING if fault.is_lasting else 0
    outcome.alerts = fired((Phase(before, CALM, skipped=0.0), Phase(during, lasting), Phase(after, CURED)), folder)
    return outcome


def _left(world: OperatedWorld) -> list[str]:
    """What is not ready a while after the cure, or has not delivered what it held."""
    deadline, seen = time.monotonic() + _CURE_SECONDS, ["not looked yet"]
    while seen and time.monotonic() < deadline:
        said = {role: service.readiness() for role, service in world.services.items()}
        seen = [f"{role}: {words}" for role, words in said.items() if words != "ready"]
        if f"\n{_NO_FULL_BATCH}\n" not in (world.shuffler.metrics() or ""):
            seen.append("a full batch waits")
        time.sleep(0.5)
    return seen


def _count(world: OperatedWorld, outcome: Outcome) -> None:
    """Compare what people were told with what the server counted, version by version."""
    for name in (PLAIN, MIXED):
        totals, received = world.totals[name], world.received(name)
        newest = max(received)
        learned = world.learned(name) if outcome.case.fault.gives_up else set(received)
        for version, acknowledged in totals.acknowledged.items():
            if name == MIXED and version >= newest:
                continue  # the shuffler holds them
            counted = received.get(version, 0)
            outcome.acknowledged += acknowledged
            if version < newest and version not in learned:
                outcome.given_up += acknowledged
                continue
            outcome.lost += max(acknowledged - counted, 0)
            outcome.doubled += max(counted - acknowledged - totals.unknown[version], 0)
