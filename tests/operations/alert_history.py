"""Evaluates with promtool which rules of deploy/prometheus/alerts.yml fire on the metrics of services.

A fault of a test takes seconds, and rules wait for minutes or hours. So the second half of what was seen of a phase is
repeated until the phase is long enough: gauges take the same values again, counters and ages go on at the same rate.
What would change later, such as longer pauses between attempts, is not seen.
"""

import json
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

RULES = Path(__file__).parents[2] / "deploy" / "prometheus" / "alerts.yml"
STEP = 15
"""Seconds between scrapes in deploy/prometheus/prometheus.yml."""
CALM, LASTING, CURED = 60, 150, 90
"""Minutes of the phases: longer than any rule waits that a fault of a test can make fire."""
_LATER = 15
"""Minutes after a fault that passes, within which what it left behind makes rules fire."""
_CLOCKS, _TIMES = "_time_seconds", ("_timestamp_seconds", "_time_seconds")
"""Endings of names whose values are seconds since 1970."""
_FIRING = 'ALERTS{alertstate="firing"}'
_RESULT = re.compile(r'\{alertname="(\w+)", phase="(\d)"\} ([\d.E+]+)')


class Sample(NamedTuple):
    """The name of a series."""

    name: str
    labels: tuple[tuple[str, str], ...]


class Reading(NamedTuple):
    """A value of a series; counters only rise."""

    value: float
    is_counter: bool


Page = dict[Sample, Reading]


@dataclass(frozen=True)
class Scrape:
    """What services showed at a time, by job; None: no answer."""

    time: float
    pages: dict[str, str | None]

    def readings(self) -> Page:
        """All values, with ``up`` as Prometheus makes it."""
        readings = {}
        for job, text in self.pages.items():
            target = (("job", f"privateer-{job}"), ("instance", job))
            readings[Sample("up", target)] = Reading(float(text is not None), is_counter=False)
            for family in text_string_to_metric_families(text or ""):
                for row in family.samples:
                    sample = Sample(row.name, (*target, *row.labels.items()))
                    readings[sample] = Reading(row.value, family.type in ("counter", "histogram"))
        return readings


@dataclass(frozen=True)
class Phase:
    """Scrapes in order of time, and for how many minutes they are repeated; 0: they are all there was.

    Attributes
    ----------
    skipped
        The share of the scrapes that came before things stood as they stayed.
    """

    scrapes: list[Scrape]
    minutes: int
    skipped: float = 0.5

    @property
    def first(self) -> int:
        """The index of the first scrape that is repeated."""
        return int(len(self.scrapes) * self.skipped) if self.minutes else 0

    @property
    def steps(self) -> int:
        return self.minutes * 60 // STEP or ceil(self.seconds / STEP)

    @property
    def seconds(self) -> float:
        """The time in which counters rose to what they were at the end of it."""
        return max(self.scrapes[-1].time - self.scrapes[max(self.first - 1, 0)].time, 1.0)


class FiredAlerts(NamedTuple):
    """Alerts: before a fault, minutes after its beginning, and long after its cure."""

    before: set[str]
    during: dict[str, int]
    after: set[str]


class Series:
    """Values of series at every step of several phases; None: there was none.

    Parameters
    ----------
    ahead
        Steps without a value before the first: time begins at 1970 here, and no time is before that.
    """

    def __init__(self, empty_steps: int = 0) -> None:
        self.values: defaultdict[Sample, list[float | None]] = defaultdict(list)
        self.steps, self._empty_steps = 0, empty_steps
        self._levels: dict[Sample, float] = {}
        self._previous: dict[Sample, float] = {}

    def add(self, phase: Phase) -> None:
        """Add a phase."""
        pages = [scrape.readings() for scrape in phase.scrapes]
        for page in pages[: phase.first]:
            for sample, rise in self._rises(page).items():
                self._levels[sample] += rise
        rises: defaultdict[Sample, float] = defaultdict(float)
        for page in pages[phase.first :]:
            for sample, rise in self._rises(page).items():
                rises[sample] += rise
        per_step = STEP / phase.seconds if phase.minutes else 1 / phase.steps
        moving = _moving(pages[phase.first :])
        for step in range(phase.steps):
            for sample, rise in rises.items():
                self._levels[sample] += rise * per_step
            index = phase.first + step % len(pages[phase.first :])
            fixed = self._time - step * STEP - phase.scrapes[phase.first].time
            self._append(pages[index], fixed, self._time - phase.scrapes[index].time, moving)

    @property
    def _time(self) -> float:
        """The time of the next step."""
        return (self._empty_steps + self.steps) * STEP

    def _rises(self, page: Page) -> dict[Sample, float]:
        """Return each counter's increase since the last page with it; a counter that was reset rose by its value."""
        rises = {}
        for sample, reading in page.items():
            if not reading.is_counter:
                continue
            previous = self._previous.get(sample)
            if previous is None:
                self._levels[sample] = reading.value
            else:
                rises[sample] = reading.value - (previous if reading.value >= previous else 0.0)
            self._previous[sample] = reading.value
        return rises

    def _append(self, page: Page, fixed: float, now: float, moving: set[Sample]) -> None:
        """Add a step: times that stand still are as far from the phase's begin as they were, others from now."""
        for sample, reading in page.items():
            row = self.values[sample]
            row += [None] * (self.steps - len(row))
            if reading.is_counter:
                row.append(self._levels[sample])
            elif not sample.name.endswith(_TIMES):
                row.append(reading.value + (now - fixed if sample in moving else 0.0))
            elif reading.value:
                row.append(reading.value + (now if sample in moving else fixed))
            else:
                row.append(0.0)  # no time
        self.steps += 1

    def document(self) -> list[dict[str, str]]:
        """What promtool takes as ``input_series``."""
        prefix = f"_x{self._empty_steps} " if self._empty_steps else ""
        return [{"series": _selector(sample), "values": prefix + _notation(row)} for sample, row in self.values.items()]


def _moving(pages: list[Page]) -> set[Sample]:
    """Ages and clocks, which rise as time does, and times of what came and went, such as a batch that was delivered."""
    values: defaultdict[Sample, list[float]] = defaultdict(list)
    for page in pages:
        for sample, reading in page.items():
            if sample.name.endswith("_seconds") and not reading.is_counter:
                values[sample].append(reading.value)
    return {sample for sample, row in values.items() if _moves(sample.name, row)}


def _moves(name: str, row: list[float]) -> bool:
    if name.endswith(_CLOCKS):
        return True
    if name.endswith(_TIMES) and 0.0 in row:
        return True
    return len(row) > 2 and all(earlier < later for earlier, later in pairwise(row))


def _selector(sample: Sample) -> str:
    return sample.name + "{" + ",".join(f"{label}={json.dumps(value)}" for label, value in sample.labels) + "}"


def _notation(row: list[float | None]) -> str:
    """Values as promtool reads them: a series that goes is stale at once, as after a scrape that failed."""
    return " ".join(_runs([*row, None]))


def _runs(row: list[float | None]) -> Iterator[str]:
    was_there = False
    for value, group in groupby(row):
        count = len(list(group))
        if value is None:
            yield from ["stale", *["_"] * (count - 1)] if was_there else ["_"] * count
        else:
            yield f"{value:.6f}x{count - 1}" if count > 1 else f"{value:.6f}"
        was_there = value is not None


def promtool() -> str | None:
    """The program; None if it is not on this machine."""
    return shutil.which("promtool")


def find_alerts(phases: tuple[Phase, Phase, Phase], folder: Path) -> FiredAlerts:
    """Which alerts fire in a calm phase, in a fault and after its cure."""
    empty_steps = _steps_since_oldest_backup(phases)
    series, ends = Series(empty_steps), []
    for phase in phases:
        series.add(phase)
        ends.append((empty_steps + series.steps) * STEP // 60)
    begin, cure, end = ends
    late = cure if phases[1].minutes else cure + _LATER
    questions = [
        (begin, f"min_over_time(timestamp({_FIRING})[{CALM}m:1m])"),
        (late, f"min_over_time(timestamp({_FIRING})[{late - begin}m:1m])"),
        (end, f"timestamp({_FIRING})"),
    ]
    seconds_by_phase: dict[int, dict[str, float]] = {0: {}, 1: {}, 2: {}}
    for phase_number, name, seconds in _ask(series, questions, folder / "alerts.json"):
        seconds_by_phase[phase_number][name] = seconds
    during = {name: round((seconds - begin * 60) / 60) for name, seconds in seconds_by_phase[1].items()}
    return FiredAlerts(set(seconds_by_phase[0]), during, set(seconds_by_phase[2]))


def _steps_since_oldest_backup(phases: tuple[Phase, Phase, Phase]) -> int:
    """The steps from the oldest time of a backup to the first scrape."""
    ages = [
        phase.scrapes[0].time - reading.value
        for phase in phases
        for sample, reading in phase.scrapes[-1].readings().items()
        if sample.name == "privateer_last_backup_timestamp_seconds" and reading.value
    ]
    return ceil(max(*ages, 0.0, 0.0) / STEP)


def _ask(series: Series, questions: list[tuple[int, str]], path: Path) -> Iterator[tuple[int, str, float]]:
    """Which question has which alert, and its value: promtool tells it since none is expected."""
    expressions = [
        {
            "expr": f'label_replace(min by (alertname) ({question}), "phase", "{number}", "", "")',
            "eval_time": f"{minutes}m",
            "exp_samples": [],
        }
        for number, (minutes, question) in enumerate(questions)
    ]
    tests = [{"interval": f"{STEP}s", "input_series": series.document(), "promql_expr_test": expressions}]
    document: dict[str, Any] = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}
    path.write_text(json.dumps(document))  # which is YAML, too
    program = promtool()
    assert program, "promtool is not on this machine"
    completed = subprocess.run([program, "test", "rules", str(path)], check=False, capture_output=True, text=True)
    rows = _RESULT.findall(completed.stdout + completed.stderr)
    assert rows or completed.returncode == 0, f"promtool: {(completed.stdout + completed.stderr)[-2000:]}"
    for name, number, seconds in rows:
        yield int(number), name, float(seconds)
