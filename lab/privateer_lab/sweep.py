"""Runs over many settings of a spec, in one tidy table that an interrupted sweep goes on with."""

import csv
import fcntl
import hashlib
import io
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from privateer.errors import SpecError
from privateer.experiment import Spec
from privateer_lab.parallel import Backend, each
from privateer_lab.simulation import Run, simulate_in_short

_FIGURES: Final = tuple(field.name for field in fields(Run) if field.name not in ("seed", "path"))
CELLS_MAX: Final = 100_000


@dataclass(frozen=True)
class Cell:
    """One row to be: swept settings, the seed, and the spec that they make."""

    settings: tuple[str, ...]
    spec: Spec
    seed: int

    @property
    def key(self) -> tuple[str, int]:
        """What the row is of: the same spec, files of people and seed give the same row, whatever the sweep."""
        digest = hashlib.sha256(self.spec.model_dump_json().encode())
        for population in (self.spec.population, *(source.population for source in self.spec.sources)):
            for path in getattr(population, "path", "").split(","):
                digest.update(_content(path.strip()))
        return digest.hexdigest()[:16], self.seed


@lru_cache
def _content(path: str) -> bytes:
    """Digest of a file; nothing if there is none, which the run will say."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError:
        return b""


def parse_axes(options: list[str]) -> dict[str, list[str]]:
    """Keys and their values from ``section.key=value,value`` options; commas in brackets or quotes are the value's.

    Raises
    ------
    SpecError
        If an option is not of that form, or a key comes twice.
    """
    axes: dict[str, list[str]] = {}
    for option in options:
        key, equals, text = option.partition("=")
        key, values = key.strip(), _values(text)
        if not equals or "." not in key or key in axes or not all(values):
            raise SpecError(
                f"cannot read {option!r}", field="--vary", remedy="write section.key=value,value once for each key"
            )
        axes[key] = values
    return axes


def _values(text: str) -> list[str]:
    """Of an option: parted at commas outside of brackets and quotes."""
    parts, depth, quote = [""], 0, ""
    for letter in text:
        if letter == "," and not depth and not quote:
            parts.append("")
            continue
        if letter in "'\"" and quote in ("", letter):
            quote = "" if quote else letter
        elif not quote:
            depth += (letter in "[{") - (letter in "]}")
        parts[-1] += letter
    return [part.strip() for part in parts]


def cells(made: Iterable[tuple[tuple[str, ...], Spec]], seeds: int) -> list[Cell]:
    """All rows of a sweep.

    Raises
    ------
    SpecError
        If there are more than `CELLS_MAX`.
    """
    every = (Cell(settings, spec, seed) for settings, spec in made for seed in range(seeds))
    found = list(itertools.islice(every, CELLS_MAX + 1))
    if len(found) > CELLS_MAX:
        raise SpecError(f"more than {CELLS_MAX} runs", field="--vary", remedy="sweep fewer values")
    return found


def combinations(axes: Mapping[str, list[str]]) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Values of each combination, and the ``section.key=value`` settings that make it."""
    for values in itertools.product(*axes.values()):
        yield values, [f"{key}={value}" for key, value in zip(axes, values, strict=True)]


class Journal:
    """A CSV file that rows are appended to as they come, each in one write; held against other sweeps.

    Parameters
    ----------
    path
        Of the file; a row cut off at the end, by a kill, is dropped.
    axes
        Swept keys: the first columns.

    Raises
    ------
    SpecError
        If the file holds another table, or another sweep writes it.
    """

    def __init__(self, path: Path, axes: Iterable[str]) -> None:
        self.path = path
        self.columns = [*axes, "seed", *_FIGURES, "spec"]
        self._file = path.open("a+", encoding="utf-8", newline="")
        try:
            self._hold()
            self._done = self._recover()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()

    def _hold(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SpecError(
                f"another sweep writes {self.path}", field="--out", remedy="wait, or name another file"
            ) from None

    def _recover(self) -> set[tuple[str, int]]:
        """What the file's rows are of; its table begins here if it is empty or was cut off in its first line."""
        try:
            self._file.seek(0)
            text = self._file.read()
            whole = text[: text.rfind("\n") + 1]
            if not whole and _line(self.columns).startswith(text):
                self._file.truncate(0)
                self._append(self.columns)
                return set()
            done = self._keys(whole)
        except (ValueError, csv.Error):
            raise SpecError(f"{self.path} holds another table", field="--out", remedy="name another file") from None
        self._file.truncate(len(whole.encode()))
        return done

    def _keys(self, text: str) -> set[tuple[str, int]]:
        header, *rows = list(csv.reader(io.StringIO(text))) or [[]]
        if header != self.columns or any(len(row) != len(header) for row in rows):
            raise ValueError("other columns")
        seed = self.columns.index("seed")
        return {(row[-1], int(row[seed])) for row in rows}

    def _append(self, values: list[Any]) -> None:
        self._file.write(_line(values))
        self._file.flush()

    def missing(self, wanted: list[Cell]) -> list[Cell]:
        """Rows that are not there yet, each once though two settings make the same spec."""
        return list({cell.key: cell for cell in wanted if cell.key not in self._done}.values())

    def append(self, cell: Cell, run: Run) -> None:
        """Add a row."""
        digest, seed = cell.key
        figures = [getattr(run, name) for name in _FIGURES]
        self._append([*cell.settings, seed, *figures, digest])


def _line(values: list[Any]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue()


def run_cell(cell: Cell) -> tuple[Cell, Run]:
    """Simulate one row."""
    return cell, simulate_in_short(cell.spec, cell.seed)


def sweep(wanted: list[Cell], journal: Journal, jobs: int | None, backend: Backend) -> Iterator[Cell]:
    """Fill in the rows that are missing, one by one as they come."""
    for cell, run in each(run_cell, [(cell,) for cell in journal.missing(wanted)], jobs, backend):
        journal.append(cell, run)
        yield cell


def write_parquet(journal: Path, path: Path) -> None:
    """The table of a journal as Parquet, with numbers for what looks like numbers, but for digests."""
    from pyarrow import csv as tables
    from pyarrow import parquet, string

    options = tables.ConvertOptions(column_types={"spec": string()})
    parquet.write_table(tables.read_csv(journal, convert_options=options), path)
