"""Runs over many settings of a spec, in one tidy table; an interrupted sweep goes on with it."""

import csv
import fcntl
import hashlib
import io
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from privateer_core.errors import SpecError
from privateer_core.spec.spec import Spec
from privateer_lab.simulation.parallel import Backend, each
from privateer_lab.simulation.simulate import Run, simulate_in_short
from privateer_lab.tables.data_column import DataColumn
from privateer_lab.tables.data_table import DataTable

CELLS_MAX: Final = 100_000
_DIGEST: Final = "spec"
"""The column of digests, of which some have digits alone."""
_WORDS: Final = {"True": True, "False": False}


@dataclass(frozen=True)
class Cell:
    """One row of the table to be: swept settings, the seed, and the spec that they make."""

    settings: tuple[str, ...]
    spec: Spec
    seed: int

    @property
    def key(self) -> tuple[str, int]:
        """What makes the row: the same spec, files of people and seed give the same row in every sweep."""
        digest = hashlib.sha256(self.spec.model_dump_json(fallback=repr).encode())
        for population in (self.spec.population, *(source.population for source in self.spec.sources)):
            for path in str((population or {}).get("path", "")).split(","):
                digest.update(_content(path.strip()))
        return digest.hexdigest()[:16], self.seed


@lru_cache
def _content(path: str) -> bytes:
    """Return the digest of a file, or nothing if it cannot be read: the run will say so."""
    with suppress(OSError), open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").digest()
    return b""


def parse_axes(options: list[str]) -> dict[str, list[str]]:
    """Read keys and their values from ``section.key=value,value``; commas in brackets or quotes belong to the value."""
    axes: dict[str, list[str]] = {}
    for option in options:
        key, equals, text = option.partition("=")
        key, values = key.strip(), _values(text)
        if not equals or "." not in key or key in axes or not all(values):
            remedy = "write section.key=value,value once for each key"
            raise SpecError(f"cannot read {option!r}", field="--vary", remedy=remedy)
        axes[key] = values
    return axes


def _values(text: str) -> list[str]:
    """Split the values of an option at commas outside of brackets and quotes."""
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
    """Return all rows of a sweep."""
    every = (Cell(settings, spec, seed) for settings, spec in made for seed in range(seeds))
    found = list(itertools.islice(every, CELLS_MAX + 1))
    if len(found) > CELLS_MAX:
        raise SpecError(f"more than {CELLS_MAX} runs", field="--vary", remedy="sweep fewer values")
    return found


def combinations(axes: Mapping[str, list[str]]) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Yield the values of each combination, and the ``section.key=value`` settings that make it."""
    for made in product_of(axes):
        yield tuple(made.values()), [f"{key}={value}" for key, value in made.items()]


def product_of(axes: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Yield the value of every key, for each combination."""
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


class SweepJournal:
    """A CSV file to which rows are appended as they come, each in one write; it is locked against other sweeps.

    path: the file; a row at the end that was cut off, by a kill, is dropped.
    axes: swept keys: the first columns.
    figures: names of what runs measure: the columns after the seed.
    """

    def __init__(self, path: Path, axes: Iterable[str], figures: Iterable[str]) -> None:
        self.path, self.figures = path, list(figures)
        self.columns = [*axes, "seed", *self.figures, _DIGEST]
        self._file = path.open("a+", encoding="utf-8", newline="")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._done = self._recover()
        except BlockingIOError:
            self._file.close()
            raise SpecError(
                f"another sweep writes {path}", field="--out", remedy="wait, or name another file"
            ) from None
        except (ValueError, csv.Error):
            self._file.close()
            raise SpecError(f"{path} holds another table", field="--out", remedy="name another file") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()

    def _recover(self) -> set[tuple[str, int]]:
        """Return the keys of the file's rows; begin the table if it is empty or was cut off in its first line."""
        self._file.seek(0)
        text = self._file.read()
        whole = text[: text.rfind("\n") + 1]
        if not whole and _line(self.columns).startswith(text):
            self._file.truncate(0)
            self._append(self.columns)
            return set()
        header, *rows = csv.reader(io.StringIO(whole))
        if header != self.columns or any(len(row) != len(header) for row in rows):
            raise ValueError("other columns")
        seed = self.columns.index("seed")
        done = {(row[-1], int(row[seed])) for row in rows}
        self._file.truncate(len(whole.encode()))
        return done

    def _append(self, values: list[Any]) -> None:
        self._file.write(_line(values))
        self._file.flush()

    def missing(self, wanted: list[Cell]) -> list[Cell]:
        """Return the rows that are not there yet, each once even if two settings make the same spec."""
        return list({cell.key: cell for cell in wanted if cell.key not in self._done}.values())

    def append(self, cell: Cell, run: Run) -> None:
        """Add a row."""
        (digest, seed), found = cell.key, run.figures()
        self._append([*cell.settings, seed, *(found.get(name, "") for name in self.figures), digest])


def _line(values: list[Any]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue()


def sweep(wanted: list[Cell], journal: SweepJournal, jobs: int | None, backend: Backend) -> Iterator[Cell]:
    """Fill in the missing rows, one by one as they come."""
    for cell, run in each(_run, [(cell,) for cell in journal.missing(wanted)], jobs, backend):
        journal.append(cell, run)
        yield cell


def _run(cell: Cell) -> tuple[Cell, Run]:
    return cell, simulate_in_short(cell.spec, cell.seed)


def read_journal(journal: Path) -> dict[str, list[Any]]:
    """Return the columns of a journal: what looks like a number is one, except for digests; None where nothing is."""
    columns = DataTable(journal, decimal=".").read().columns
    return {name: column.texts.tolist() if name == _DIGEST else _cells(column) for name, column in columns.items()}


def _cells(column: DataColumn) -> list[Any]:
    if column.numbers is None:
        return [_WORDS.get(text, text) for text in column.texts.tolist()]
    is_whole = all(text.lstrip("-").isdigit() for text in column.counts)
    each = [*(int(text) if is_whole else float(text) for text in column.values), None]
    return [each[place] for place in column.places.tolist()]


def write_parquet(journal: Path, path: Path) -> None:
    """Write the table of a journal as Parquet."""
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.table(read_journal(journal)), path)
