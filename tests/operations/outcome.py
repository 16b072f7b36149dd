"""What a fault came to: alerts, readiness, the doctor, the cure, and whether each report counts once."""

import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.operations.alert_history import CALM, CURED, LASTING, FiredAlerts, Phase, find_alerts
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
    remaining_faults
        Faults that are still there after the cure.
    acknowledged, n_lost, n_double
        Reports.
    """

    case: Case
    alerts: FiredAlerts = field(default_factory=lambda: FiredAlerts(set(), {}, set()))
    readiness: Counter[str] = field(default_factory=Counter)
    doctor: list[str] = field(default_factory=list)
    remaining_faults: list[str] = field(default_factory=list)
    acknowledged: int = 0
    n_lost: int = 0
    n_double: int = 0
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
            "; ".join(self.remaining_faults) or "yes",
            f"{self.acknowledged}/{self.n_lost}/{self.n_double}"
            + (f" ({self.given_up} given up)" * bool(self.given_up)),
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
        if self.remaining_faults or self.alerts.after:
            wrong.append(f"not cured: {self.remaining_faults} {sorted(self.alerts.after)}")
        if self.n_lost or self.n_double:
            wrong.append(f"{self.n_lost} reports lost, {self.n_double} doubled")
        return wrong


def run(case: Case, folder: Path, cluster: Cluster | None) -> Outcome:
    """Let a fault happen to a world, and cure it."""
    fault, outcome = case.fault, Outcome(case)
    disks, clocks = ({fault.role} if flag else set() for flag in (fault.disk, fault.clock))
    with operated_world(folder, cluster, disks, clocks) as world:
        world.people()
        fault.prepare(world)
        before = world.watch_until(case.n_held)
        fault.inject(world)
        if fault.restarts:
            world.services[fault.restarts].await_answer()
        timer = threading.Timer(fault.seconds * _DOCTOR_BEGINS, lambda: outcome.doctor.extend(world.doctor()))
        timer.start()
        try:
            during = world.watch(fault.seconds, outcome.readiness)
            timer.join()  # it ends although disk and database stand still
        finally:
            fault.cure(world)
        timer.join()
        outcome.remaining_faults += _remaining_faults(world)
        after = world.watch(_AFTER_SECONDS)
        world.settle()
        world.complete()
        _count(world, outcome)
        outcome.remaining_faults += [line for line in world.doctor() if line.startswith("fail")]
    lasting = LASTING if fault.is_lasting else 0
    outcome.alerts = find_alerts(
        (Phase(before, CALM, skipped=0.0), Phase(during, lasting), Phase(after, CURED)), folder
    )
    return outcome


def _remaining_faults(world: OperatedWorld) -> list[str]:
    """Return the services that are not ready some time after the cure, and whether a full batch waits."""
    deadline, faults = time.monotonic() + _CURE_SECONDS, ["not looked yet"]
    while faults and time.monotonic() < deadline:
        readiness_by_role = {role: service.readiness() for role, service in world.services.items()}
        faults = [f"{role}: {words}" for role, words in readiness_by_role.items() if words != "ready"]
        if f"\n{_NO_FULL_BATCH}\n" not in (world.shuffler.metrics() or ""):
            faults.append("a full batch waits")
        time.sleep(0.5)
    return faults


def _count(world: OperatedWorld, outcome: Outcome) -> None:
    """Compare the acknowledged reports of each version with the reports that the server counted."""
    for name in (PLAIN, MIXED):
        totals, received = world.totals[name], world.received(name)
        newest = max(received)
        learned = world.learned_versions(name) if outcome.case.fault.gives_up else set(received)
        for version, acknowledged in totals.acknowledged.items():
            if name == MIXED and version >= newest:
                continue  # the shuffler holds them
            counted = received.get(version, 0)
            outcome.acknowledged += acknowledged
            if version < newest and version not in learned:
                outcome.given_up += acknowledged
                continue
            outcome.n_lost += max(acknowledged - counted, 0)
            outcome.n_double += max(counted - acknowledged - totals.unknown[version], 0)
