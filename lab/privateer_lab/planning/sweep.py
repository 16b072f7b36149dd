"""Sweeps: runs over combinations of a spec's settings, in a table with which an interrupted sweep resumes."""

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
from privateer_lab.simulation.parallel import Backend, run_tasks
from privateer_lab.simulation.simulate import simulate_without_path
from privateer_lab.simulation.simulation import Run
from privateer_lab.tables.data_column import DataColumn
from privateer_lab.tables.data_table import DataTable

CELLS_MAX: Final = 100_000
_DIGEST: Final = "spec"
"""The column of digests, which may look like numbers."""
_BOOLEANS: Final = {"True": True, "False": False}


@dataclass(frozen=True)
class Cell:
    """A row to be computed: swept settings, the seed, and the resulting spec."""

    settings: tuple[str, ...]
    spec: Spec
    seed: int

    @property
    def key(self) -> tuple[str, int]:
        """The digest of spec and population files, and the seed, which determine the row in every sweep."""
        digest = hashlib.sha256(self.spec.model_dump_json(fallback=repr).encode())
        for population in (self.spec.population, *(source.population for source in self.spec.sources)):
            for path in str((population or {}).get("path", "")).split(","):
                digest.update(_hash_file(path.strip()))
        return digest.hexdigest()[:16], self.seed


@lru_cache
def _hash_file(path: str) -> bytes:
    """Return the digest of a file; empty if it cannot be read, on which the run fails."""
    with suppress(OSError), open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").digest()
    return b""


def parse_axes(options: list[str]) -> dict[str, list[str]]:
    """Parse ``section.key=value,value``; commas in brackets or quotes belong to a value; refuse a repeated key."""
    axes: dict[str, list[str]] = {}
    for option in options:
        key, equals, text = option.partition("=")
        key, values = key.strip(), _split_values(text)
        if not equals or "." not in key or key in axes or not all(values):
            remedy = "write section.key=value,value once for each key"
            raise SpecError(f"cannot read {option!r}", field="--vary", remedy=remedy)
        axes[key] = values
    return axes


def _split_values(text: str) -> list[str]:
    """Split the values of an option at commas outside of brackets and quotes."""
    values, depth, quote = [""], 0, ""
    for letter in text:
        if letter == "," and not depth and not quote:
            values.append("")
            continue
        if letter in "'\"" and quote in ("", letter):
            quote = "" if quote else letter
        elif not quote:
            depth += (letter in "[{") - (letter in "]}")
        values[-1] += letter
    return [value.strip() for value in values]


def make_cells(settings_and_specs: Iterable[tuple[tuple[str, ...], Spec]], seeds: int) -> list[Cell]:
    """Make all cells of a sweep; refuse more than the maximum."""
    all_cells = (Cell(settings, spec, seed) for settings, spec in settings_and_specs for seed in range(seeds))
    limited = list(itertools.islice(all_cells, CELLS_MAX + 1))
    if len(limited) > CELLS_MAX:
        raise SpecError(f"more than {CELLS_MAX} runs", field="--vary", remedy="sweep fewer values")
    return limited


def iterate_combinations(axes: Mapping[str, list[str]]) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Yield the values of each combination, and the ``section.key=value`` settings that make it."""
    for values in iterate_product(axes):
        yield tuple(values.values()), [f"{key}={value}" for key, value in values.items()]


def iterate_product(axes: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Yield the value of every key, for each combination."""
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


class SweepJournal:
    """A locked CSV file of swept keys, seed and figures; a row is a single write; an incomplete last row is dropped."""

    def __init__(self, path: Path, axes: Iterable[str], figures: Iterable[str]) -> None:
        self.path, self.figures = path, list(figures)
        self.columns = [*axes, "seed", *self.figures, _DIGEST]
        self._file = path.open("a+", encoding="utf-8", newline="")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._written_keys = self._recover()
        except BlockingIOError:
            self._file.close()
            remedy = "wait, or name another file"
            raise SpecError(f"another sweep writes {path}", field="--out", remedy=remedy) from None
        except (ValueError, csv.Error):
            self._file.close()
            raise SpecError(f"{path} holds another table", field="--out", remedy="name another file") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()

    def _recover(self) -> set[tuple[str, int]]:
        """Return the keys of the file's rows; start the table if its first line is missing or incomplete."""
        self._file.seek(0)
        text = self._file.read()
        complete_lines = text[: text.rfind("\n") + 1]
        if not complete_lines and _format_line(self.columns).startswith(text):
            self._file.truncate(0)
            self._append(self.columns)
            return set()
        header, *rows = csv.reader(io.StringIO(complete_lines))
        if header != self.columns or any(len(row) != len(header) for row in rows):
            raise ValueError("other columns")
        seed = self.columns.index("seed")
        written_keys = {(row[-1], int(row[seed])) for row in rows}
        self._file.truncate(len(complete_lines.encode()))
        return written_keys

    def _append(self, values: list[Any]) -> None:
        self._file.write(_format_line(values))
        self._file.flush()

    def select_missing(self, cells: list[Cell]) -> list[Cell]:
        """Return the cells without a row, without duplicates of equal specs."""
        return list({cell.key: cell for cell in cells if cell.key not in self._written_keys}.values())

    def append(self, cell: Cell, run: Run) -> None:
        """Add a row."""
        (digest, seed), figures = cell.key, run.figures()
        self._append([*cell.settings, seed, *(figures.get(name, "") for name in self.figures), digest])


def _format_line(values: list[Any]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue()


def run_sweep(cells: list[Cell], journal: SweepJournal, jobs: int | None, backend: Backend) -> Iterator[Cell]:
    """Run the missing cells, append their rows, and yield each cell when it is done."""
    for cell, run in run_tasks(_run_cell, [(cell,) for cell in journal.select_missing(cells)], jobs, backend):
        journal.append(cell, run)
        yield cell


def _run_cell(cell: Cell) -> tuple[Cell, Run]:
    return cell, simulate_without_path(cell.spec, cell.seed)


def read_journal(journal: Path) -> dict[str, list[Any]]:
    """Return the columns of a journal, with numbers parsed except in digests; None for empty cells."""
    columns = DataTable(journal, decimal=".").read().columns
    return {name: column.texts.tolist() if name == _DIGEST else _read_cells(column) for name, column in columns.items()}


def _read_cells(column: DataColumn) -> list[Any]:
    """Read a column's cells as numbers, booleans or texts; gaps between numbers are None."""
    if column.numbers is None:
        return [_BOOLEANS.get(text, text) for text in column.texts.tolist()]
    is_whole = all(text.lstrip("-").isdigit() for text in column.counts)
    cell_values = [*(int(text) if is_whole else float(text) for text in column.values), None]
    return [cell_values[code] for code in column.codes.tolist()]


def write_parquet(journal: Path, path: Path) -> None:
    """Write the table of a journal as Parquet."""
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.table(read_journal(journal)), path)
