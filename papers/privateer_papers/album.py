"""The album: all reproductions in sequence, with a page that is updated after each."""

import base64
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final, NamedTuple

import typer

from privateer_core.errors import SpecError, printable
from privateer_lab.cli.output import announce_task
from privateer_lab.pages.templates import render_page
from privateer_papers.data_files import DATA
from privateer_papers.finished_runs import FinishedRun, list_pictures, read_stored_run, run_reproduction
from privateer_papers.reproduction import Effort, Reproduction


@dataclass(frozen=True)
class PaperReference:
    """The reference of a paper."""

    number: int
    # as the copy that was read has them; no authors if it names nobody
    title: str
    authors: tuple[str, ...]
    venue: str  # where it was published
    link: str  # its address at arXiv or by DOI, without a scheme
    remark: str = ""  # what a reader has to know of the copy that was read; empty if nothing

    @property
    def opening(self) -> str:
        """The opening sentence of every page about the paper."""
        *others, last = self.authors or ("No author named",)
        names = f"{', '.join(others)} and {last}" if others else last
        return " ".join(filter(None, (f"{names}: {self.title}. {self.venue}, {self.link}.", self.remark)))


def _read_references() -> Iterator[PaperReference]:
    document = tomllib.loads(Path(__file__).with_name("papers.toml").read_text(encoding="utf-8"))
    for number, row in enumerate(document["papers"], 1):
        facts = {name: row[name] for name in ("title", "venue", "link", "remark") if name in row}
        yield PaperReference(number, authors=tuple(row["authors"]), **facts)


PUBLICATIONS: Final = tuple(_read_references())
"""The papers in their order."""


PAGE: Final = "index.html"
_MAX_OPEN_LINES: Final = 12
"""Largest number of lines of a table that is open on the page."""
_MEDIA_TYPES: Final = {".svg": "image/svg+xml", ".png": "image/png"}
_COLUMNS: Final = ("what", "published", "run here", "ours")
_PENDING: Final = "It is not made yet."
_QUICK_MINUTES: Final = 1 / 12
"""What a small version takes on two cores with two seeds, on average."""


class AlbumEntry(NamedTuple):
    """A reproduction on the page: its finished run with a picture, or the reason why there is no run."""

    reproduction: Reproduction
    finished: FinishedRun | None
    reason: str
    picture: str

    @property
    def table(self) -> tuple[list[str], list[list[str]]]:
        """The columns that are not empty, and their lines."""
        compared = self.finished.compared if self.finished else []
        columns = [column for column in range(len(_COLUMNS)) if any(line[column] for line in compared)]
        return [_COLUMNS[column] for column in columns], [[line[column] for column in columns] for line in compared]

    @property
    def is_long(self) -> bool:
        """Whether the table is too long to be open on the page."""
        return len(self.table[1]) > _MAX_OPEN_LINES


class Chapter(NamedTuple):
    """The part of the page about a paper."""

    paper: PaperReference
    entries: list[AlbumEntry]


@dataclass
class Album:
    """All reproductions in a folder, and their page."""

    reproductions: Mapping[str, Reproduction]
    effort: Effort
    folder: Path
    problems: dict[str, str] = field(default_factory=dict)  # what is wrong with data that were given, by their option
    finished: dict[str, FinishedRun] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)

    def run(self, *, quiet: bool) -> bool:
        """Run all reproductions without a stored run, and write the page after each. Return whether all are complete.

        quiet: whether reproductions are not announced.
        """
        self._drop_unreadable_data()
        is_done = True
        for name, entry in self.reproductions.items():
            if name in self.reasons:
                continue
            finished = read_stored_run(entry, self.effort, self.folder)
            if finished is None:
                if not quiet:
                    announce_task(entry.title, describe_duration(entry, self.effort))
                finished = run_reproduction(entry, self.effort, self.folder)
            self.finished[name], is_done = finished, finished.whole
            self.write()
            if not is_done:
                break
        self.write()
        return is_done

    def _drop_unreadable_data(self) -> None:
        """Check all data before the first run, and drop data that cannot be read."""
        for option, path in self.effort.data.items():
            try:
                DATA[option].check(path)
            except SpecError as error:
                self.problems[option] = str(error)
                typer.echo(f"privateer: {printable(str(error))}", err=True)
        self.effort = self.effort.without(self.problems)
        for name, entry in self.reproductions.items():
            if entry.needs and entry.needs not in self.effort.select_data(entry):
                data = DATA[entry.needs]
                requirement = f"It needs --{entry.needs}: {data.description}. {data.tested}".strip()
                self.reasons[name] = self.problems.get(entry.needs, requirement)

    def write(self) -> None:
        """Write the page of all finished runs."""
        chapters = [
            Chapter(
                paper, [self._make_entry(entry) for entry in self.reproductions.values() if entry.paper == paper.number]
            )
            for paper in PUBLICATIONS
        ]
        seeds = [finished.setting.seeds for finished in self.finished.values()] or [self.effort.seeds]
        text = render_page(
            "album.html",
            __package__,
            chapters=chapters,
            warnings=[(finished, text) for finished in self.finished.values() for text in finished.warnings],
            problems=self.problems,
            effort=self.effort,
            complete_runs=[finished for finished in self.finished.values() if finished.whole],
            count=len(self.reproductions),
            min_seeds=min(seeds),
            max_seeds=max(seeds),
            total_duration=format_duration(sum(finished.seconds for finished in self.finished.values())),
            privateer_version=version("privateer-papers"),
            current_time=datetime.now(UTC).isoformat(timespec="seconds"),
            format_duration=format_duration,
        )
        (self.folder / PAGE).write_text(text, encoding="utf-8")

    def _make_entry(self, entry: Reproduction) -> AlbumEntry:
        """Return the entry of a reproduction: its finished run, or the reason why there is none."""
        finished = self.finished.get(entry.name)
        return AlbumEntry(
            entry,
            finished,
            self.reasons.get(entry.name, _PENDING),
            _picture_url(self.folder, entry.name) if finished else "",
        )


def describe_duration(entry: Reproduction, effort: Effort) -> str:
    """Return the expected duration of a reproduction in words."""
    return (
        "less than a minute"
        if effort.quick
        else f"about {format_duration(60 * _expected_minutes(entry, effort))} on two cores"
    )


def describe_total_duration(reproductions: Mapping[str, Reproduction], effort: Effort) -> str:
    """Return the expected duration of all reproductions in words."""
    minutes = sum(_expected_minutes(entry, effort) for entry in reproductions.values())
    return f"about {format_duration(60 * minutes)} on two cores"


def _expected_minutes(entry: Reproduction, effort: Effort) -> float:
    return _QUICK_MINUTES * effort.seeds / 2 if effort.quick else entry.minutes * effort.seeds / 10


def format_duration(seconds: float) -> str:
    """Format a duration in seconds, minutes or hours."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _picture_url(folder: Path, name: str) -> str:
    """Return a picture as a data URL, as vectors or in pixels, whichever is smaller."""
    encodings = [(path.read_bytes(), _MEDIA_TYPES[path.suffix]) for path in list_pictures(folder, name)]
    if not encodings:
        return ""
    body, media_type = min(encodings, key=lambda encoding: len(encoding[0]))
    return f"data:{media_type};base64,{base64.b64encode(body).decode()}"
