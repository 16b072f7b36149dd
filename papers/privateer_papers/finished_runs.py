"""Finished runs of reproductions, with their files."""

import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from time import monotonic
from typing import Any, Final

from privateer_lab.cli.output import progress
from privateer_lab.render.pictures import save_figure
from privateer_papers.data_files import DATA
from privateer_papers.reproduction import Effort, Reproduction, Row, Rows, TableLine

PICTURE_SUFFIXES: Final = (".svg", ".png")
_LIBRARIES: Final = ("numpy", "scipy", "matplotlib")


@dataclass(frozen=True)
class RunSetting:
    """The setting of a run, which determines its rows."""

    version: str
    quick: bool
    seeds: int
    data: Mapping[str, str]  # digests of the files that it reads, by the option that names them

    @classmethod
    def from_effort(cls, entry: Reproduction, effort: Effort) -> "RunSetting":
        """Return the setting of a run now."""
        data = {name: DATA[name].digest(path) for name, path in effort.select_data(entry).items()}
        return cls(version("privateer-papers"), effort.quick, effort.seeds, data)

    def is_sufficient_for(self, required: "RunSetting") -> bool:
        """Whether rows of this setting can be reused: of the same version and data, and with at least as many seeds."""
        return self.seeds >= required.seeds and replace(self, seeds=required.seeds) == required


@dataclass(frozen=True)
class FinishedRun:
    """A finished or interrupted run of a reproduction."""

    name: str
    title: str
    setting: RunSetting
    verdict: str
    sentence: str
    remarks: list[str]
    warnings: list[str]
    compared: list[TableLine]
    rows: list[Row]
    whole: bool  # Whether all its rows were made. If not, `verdict` says so, and what is missing is empty.
    # when it was begun, in UTC, and how long it took
    made: str
    seconds: float
    software: dict[str, str] = field(default_factory=dict)  # versions of what computed it

    def write(self, folder: Path) -> None:
        """Write the run as JSON and its verdict as text."""
        (folder / f"{self.name}.txt").write_text(f"{self.title}\n\n{self.verdict}\n")
        (folder / f"{self.name}.json").write_text(json.dumps(self.document))

    @property
    def document(self) -> dict[str, Any]:
        """The run as a JSON document."""
        return {**asdict(self), "quick": self.setting.quick, "compared": [line._asdict() for line in self.compared]}


def run_reproduction(entry: Reproduction, effort: Effort, folder: Path) -> FinishedRun:
    """Run a reproduction, and write its files into a folder. An interrupted run has pictures if its rows are enough."""
    start, clock = datetime.now(UTC).isoformat(timespec="seconds"), monotonic()
    streamed_rows = progress(chain(entry.rows(effort), (None,)), 0, "rows")
    rows, complete = Rows(row for row in streamed_rows if row is not None), streamed_rows[-1] is None
    results: dict[str, Any] = {"verdict": f"Interrupted after {len(rows)} rows, too few for a verdict."}
    results |= {"sentence": "", "remarks": [], "warnings": [], "compared": []}
    try:
        names = ("verdict", "sentence", "remarks", "warnings", "compared")
        texts = {name: getattr(entry, name)(rows) for name in names}
        figure = entry.draw(entry.title, rows)
    except (ArithmeticError, LookupError, ValueError):
        if complete:
            raise
    else:
        prefix = "" if complete else "Interrupted; the runs until then show: "
        results = {**texts, "verdict": prefix + texts["verdict"], "sentence": prefix + texts["sentence"]}
        save_figure(figure, folder / entry.name)
    versions = {"python": sys.version.split()[0], **{name: version(name) for name in _LIBRARIES}}
    seconds = round(monotonic() - clock, 1)
    setting = RunSetting.from_effort(entry, effort)
    finished = FinishedRun(
        entry.name,
        entry.title,
        setting,
        **results,
        rows=rows,
        whole=complete,
        made=start,
        seconds=seconds,
        software=versions,
    )
    finished.write(folder)
    return finished


def read_stored_run(entry: Reproduction, effort: Effort, folder: Path) -> FinishedRun | None:
    """Read a complete run with a sufficient setting from a folder; None if there is none."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        document = json.loads((folder / f"{entry.name}.json").read_text())
        document.pop("quick")
        document |= {
            "setting": RunSetting(**document["setting"]),
            "compared": [TableLine(**line) for line in document["compared"]],
        }
        stored = FinishedRun(**document)
        if (
            stored.whole
            and stored.setting.is_sufficient_for(RunSetting.from_effort(entry, effort))
            and list_pictures(folder, entry.name)
        ):
            return stored
    return None


def list_pictures(folder: Path, name: str) -> list[Path]:
    """Return the paths of a reproduction's pictures in a folder."""
    return [path for suffix in PICTURE_SUFFIXES if (path := folder / f"{name}{suffix}").is_file()]
