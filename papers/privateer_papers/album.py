"""All reproductions, run one after the other, on one page that is there from the first on."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final, NamedTuple

import typer

from privateer_core.errors import SpecError, printable
from privateer_lab.cli.output import begin
from privateer_lab.pages.templates import page
from privateer_papers.data_files import DATA
from privateer_papers.made import Made, kept, pictures, run
from privateer_papers.publications import PUBLICATIONS, PaperReference
from privateer_papers.reproduction import Effort, Reproduction

PAGE: Final = "index.html"
_FEW: Final = 12
"""Lines of a table that are shown without being asked for."""
_MEDIA: Final = {".svg": "image/svg+xml", ".png": "image/png"}
_COLUMNS: Final = ("what", "published", "run here", "ours")
_WAITS: Final = "It is not made yet."


class AlbumEntry(NamedTuple):
    """A reproduction on the page: what was made of it, or why there is nothing; and its picture."""

    of: Reproduction
    made: Made | None
    why: str
    picture: str

    @property
    def table(self) -> tuple[list[str], list[list[str]]]:
        """The columns that have anything, and the lines of them."""
        compared = self.made.compared if self.made else []
        used = [place for place in range(len(_COLUMNS)) if any(line[place] for line in compared)]
        return [_COLUMNS[place] for place in used], [[line[place] for place in used] for line in compared]

    @property
    def is_long(self) -> bool:
        """Whether its table is long."""
        return len(self.table[1]) > _FEW


class Chapter(NamedTuple):
    """What the page has of a paper."""

    paper: PaperReference
    entries: list[AlbumEntry]


@dataclass
class Album:
    """Reproductions in a folder, and the page of all."""

    reproductions: Mapping[str, Reproduction]
    effort: Effort
    folder: Path
    problems: dict[str, str] = field(default_factory=dict)  # what is wrong with data that were given, by their option
    made: dict[str, Made] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)

    def run(self, *, quiet: bool) -> bool:
        """Make what is not there yet, and the page anew after each. Return whether all is whole.

        quiet: whether nobody is told what begins.
        """
        self._check_data()
        whole = True
        for name, one in self.reproductions.items():
            if name in self.why:
                continue
            done = kept(one, self.effort, self.folder)
            if done is None:
                if not quiet:
                    begin(one.title, takes(one, self.effort))
                done = run(one, self.effort, self.folder)
            self.made[name], whole = done, done.whole
            self.write()
            if not whole:
                break
        self.write()
        return whole

    def _check_data(self) -> None:
        """Look at all data before anything runs. What cannot be read is as if it were not given."""
        for option, path in self.effort.data.items():
            try:
                DATA[option].check(path)
            except SpecError as problem:
                self.problems[option] = str(problem)
                typer.echo(f"privateer: {printable(str(problem))}", err=True)
        self.effort = self.effort.without(self.problems)
        for name, one in self.reproductions.items():
            if one.needs and one.needs not in self.effort.given(one):
                data = DATA[one.needs]
                wanted = f"It needs --{one.needs}: {data.wanted}. {data.tested}".strip()
                self.why[name] = self.problems.get(one.needs, wanted)

    def write(self) -> None:
        """Write the page of what there is."""
        chapters = [
            Chapter(paper, [self._entry(one) for one in self.reproductions.values() if one.paper == paper.number])
            for paper in PUBLICATIONS
        ]
        seeds = [one.setting.seeds for one in self.made.values()] or [self.effort.seeds]
        text = page(
            "album.html",
            __package__,
            chapters=chapters,
            first=[(one, text) for one in self.made.values() for text in one.warnings],
            problems=self.problems,
            effort=self.effort,
            made=[one for one in self.made.values() if one.whole],
            count=len(self.reproductions),
            few=min(seeds),
            most=max(seeds),
            seconds=duration(sum(one.seconds for one in self.made.values())),
            privateer=version("privateer-papers"),
            now=datetime.now(UTC).isoformat(timespec="seconds"),
            duration=duration,
        )
        (self.folder / PAGE).write_text(text, encoding="utf-8")

    def _entry(self, one: Reproduction) -> AlbumEntry:
        made = self.made.get(one.name)
        return AlbumEntry(one, made, self.why.get(one.name, _WAITS), _picture(self.folder, one.name) if made else "")


def takes(one: Reproduction, effort: Effort) -> str:
    """Say how long a reproduction may take."""
    return "less than a minute" if effort.quick else f"about {duration(60 * _minutes(one, effort))} on two cores"


def take(reproductions: Mapping[str, Reproduction], effort: Effort) -> str:
    """Say how long all reproductions may take."""
    quick = len(reproductions) / 2
    minutes = quick if effort.quick else sum(_minutes(one, effort) for one in reproductions.values())
    return f"about {duration(60 * minutes)} on two cores"


def _minutes(one: Reproduction, effort: Effort) -> float:
    return one.minutes * effort.seeds / 10


def duration(seconds: float) -> str:
    """Write a time as people do."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _picture(folder: Path, name: str) -> str:
    """Return a picture as an address of its own: as vectors or in pixels, whichever is smaller."""
    found = [(path.read_bytes(), _MEDIA[path.suffix]) for path in pictures(folder, name)]
    if not found:
        return ""
    body, media = min(found, key=lambda one: len(one[0]))
    return f"data:{media};base64,{base64.b64encode(body).decode()}"
