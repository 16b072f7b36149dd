"""A reproduction that was run: what its rows show, its files, and when it need not be run again."""

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
from privateer_lab.pages.plots import save
from privateer_papers.data_files import DATA
from privateer_papers.reproduction import Compared, Effort, Reproduction, Row, Rows

ENDINGS: Final = (".svg", ".png")
_LIBRARIES: Final = ("numpy", "scipy", "matplotlib")


@dataclass(frozen=True)
class RunSetting:
    """What a reproduction was run with: where it is the same, so are its rows."""

    version: str
    quick: bool
    seeds: int
    data: Mapping[str, str]  # digests of the files that it reads, by the option that names them

    @classmethod
    def of(cls, made: Reproduction, effort: Effort) -> "RunSetting":
        """Return with what a reproduction would be run now."""
        data = {name: DATA[name].digest(path) for name, path in effort.given(made).items()}
        return cls(version("privateer-papers"), effort.quick, effort.seeds, data)

    def serves(self, wanted: "RunSetting") -> bool:
        """Whether rows made with this need not be made again: of the same version and data, and not of fewer seeds."""
        return self.seeds >= wanted.seeds and replace(self, seeds=wanted.seeds) == wanted


@dataclass(frozen=True)
class Made:
    """A reproduction that was run."""

    name: str
    title: str
    setting: RunSetting
    verdict: str
    sentence: str
    warnings: list[str]
    compared: list[Compared]
    rows: list[Row]
    whole: bool  # Whether all its rows were made. If not, `verdict` says so, and what is missing is empty.
    # when it was begun, in UTC, and how long it took
    made: str
    seconds: float
    software: dict[str, str] = field(default_factory=dict)  # versions of what computed it

    def write(self, folder: Path) -> None:
        """Write what can be read by machines and by people."""
        (folder / f"{self.name}.txt").write_text(f"{self.title}\n\n{self.verdict}\n")
        (folder / f"{self.name}.json").write_text(json.dumps(self.document))

    @property
    def document(self) -> dict[str, Any]:
        """What a file has of it."""
        return {**asdict(self), "quick": self.setting.quick, "compared": [one._asdict() for one in self.compared]}


def run(made: Reproduction, effort: Effort, folder: Path) -> Made:
    """Run a reproduction, and write its files into a folder. An interrupted run has pictures if its rows are enough."""
    begun, clock = datetime.now(UTC).isoformat(timespec="seconds"), monotonic()
    found = progress(chain(made.rows(effort), (None,)), 0, "rows")
    rows, whole = Rows(row for row in found if row is not None), found[-1] is None
    facts: dict[str, Any] = {"verdict": f"Interrupted after {len(rows)} rows, too few for a verdict."}
    facts |= {"sentence": "", "warnings": [], "compared": []}
    try:
        shown = {name: getattr(made, name)(rows) for name in ("verdict", "sentence", "warnings", "compared")}
        figure = made.draw(made.title, rows)
    except (ArithmeticError, LookupError, ValueError):
        if whole:
            raise
    else:
        said = "" if whole else "Interrupted; the runs until then show: "
        facts = {**shown, "verdict": said + shown["verdict"], "sentence": said + shown["sentence"]}
        save(figure, folder / made.name)
    software = {"python": sys.version.split()[0], **{name: version(name) for name in _LIBRARIES}}
    seconds = round(monotonic() - clock, 1)
    setting = RunSetting.of(made, effort)
    done = Made(
        made.name, made.title, setting, **facts, rows=rows, whole=whole, made=begun, seconds=seconds, software=software
    )
    done.write(folder)
    return done


def kept(made: Reproduction, effort: Effort, folder: Path) -> Made | None:
    """Return what a folder has of a whole run that serves as this one; None if there is nothing like it."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        document = json.loads((folder / f"{made.name}.json").read_text())
        document.pop("quick")
        document |= {
            "setting": RunSetting(**document["setting"]),
            "compared": [Compared(**one) for one in document["compared"]],
        }
        found = Made(**document)
        if found.whole and found.setting.serves(RunSetting.of(made, effort)) and pictures(folder, made.name):
            return found
    return None


def pictures(folder: Path, name: str) -> list[Path]:
    """Return the pictures that a folder has of a reproduction."""
    return [path for ending in ENDINGS if (path := folder / f"{name}{ending}").is_file()]
