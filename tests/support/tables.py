"""The public tables that additive bandits are measured on: as files with a class, and specs of them.

``python -m tests.support.tables rodents complete.csv FOLDER`` writes ``rodents.csv`` and ``rodents-EDGES-LEVELS.toml``,
with equal or drawn edges and with all levels or fifteen. Rewards are 1 for the arm of a row's class. In
``rodents-rare.toml`` they come with probability .02 there, and .005 elsewhere. The sources are
``complete`` of the R package ratdat, ``gss_wages`` of stevedata and ``MplsStops`` of carData, as CSV files with a
header, UCI Adult's two files without one, every eighth row of ``flights`` of nycflights13, and ``diamonds`` of ggplot2.
"""

import csv
import gzip
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from privateer_lab.drafting.toml_values import format_key, to_toml
from privateer_lab.environments.files import ADULT_COLUMNS

Row = Mapping[str, str]
_MANY: Final = 1000
_FEW: Final = 15
_BOUNDS: Final = (0.01, 0.99)
_BINS: Final = 64
_NONE: Final = ("", "NA", "?")
CLASS: Final = "class"
_RATES: Final = (0.02, 0.005)
"""Probabilities of a rare reward: of the arm of a row's class, and of others."""
_EXPECTED: Final = 0.0085
"""What the specs declare."""


@dataclass(frozen=True)
class ClassTable:
    """A table with a class.

    Attributes
    ----------
    numbers, levels
        Columns that are features.
    label
        Gives the class of a row; None leaves it out.
    made
        More columns, by what makes them of a row.
    every
        One in so many rows is taken.
    """

    numbers: tuple[str, ...]
    levels: tuple[str, ...]
    label: Callable[[Row], str | None]
    derived: Mapping[str, Callable[[Row], str]]
    every: int = 1


def _first(column: str, names: tuple[str, ...]) -> Callable[[Row], str]:
    """Return the class of a column's most frequent values, and of all others."""
    return lambda row: row[column] if row[column] in names else "others"


_OFFICES: Final = {
    "Exec-managerial": "experts",
    "Prof-specialty": "experts",
    "Tech-support": "experts",
    "Adm-clerical": "offices",
    "Sales": "offices",
    "Craft-repair": "crafts",
    "Machine-op-inspct": "crafts",
    "Transport-moving": "crafts",
    "Handlers-cleaners": "crafts",
}
_OCCUPATIONS: Final = ("Professional", "Service", "Office and Administrative Support", "Business/Finance", "Production")
TABLES: Final = {
    "rodents": ClassTable(
        ("month", "year", "hindfoot_length", "weight"),
        ("plot_id", "sex", "plot_type"),
        _first("species_id", ("DM", "PP", "DO", "PB", "RM")),
        {},
    ),
    "occ": ClassTable(
        ("year", "realrinc", "age", "prestg10", "childs"),
        ("wrkstat", "gender", "educcat", "maritalcat"),
        lambda row: row["occrecode"] and _first("occrecode", _OCCUPATIONS)(row).replace("/", " and "),
        {},
    ),
    "adult": ClassTable(
        ("age", "education-num", "capital-gain", "capital-loss", "hours"),
        ("workclass", "education", "marital-status", "relationship", "race", "sex", "native-country", "income"),
        lambda row: _OFFICES.get(row["occupation"], "others"),
        {"income": lambda row: row["income"].rstrip(".")},
    ),
    "stops": ClassTable(
        ("lat", "long", "hour"),
        (
            "MDC",
            "citationIssued",
            "personSearch",
            "vehicleSearch",
            "preRace",
            "race",
            "gender",
            "policePrecinct",
            "neighborhood",
        ),
        lambda row: row["problem"],
        {"hour": lambda row: str(int(row["date"][11:13]) + int(row["date"][14:16]) / 60)},
    ),
    "flights": ClassTable(
        ("distance", "air_time", "dep_time", "arr_time", "month", "dep_delay"), (), lambda row: row["origin"], {}, 8
    ),
    "diamonds": ClassTable(
        ("carat", "depth", "table", "price", "x", "y", "z"), ("color", "clarity"), lambda row: row["cut"], {}
    ),
}


def rows_of(table: ClassTable, files: str) -> Iterator[dict[str, str]]:
    """Yield the rows of CSV files, separated by commas: features and the class; without a value it is empty."""
    for path in files.split(","):
        with gzip.open(path, "rt") if path.endswith(".gz") else open(path, encoding="utf-8") as text:
            named = None if "adult." not in path else ADULT_COLUMNS
            for record in csv.DictReader(text, named, skipinitialspace=True):
                if None in record.values():  # UCI Adult's second file begins with a remark
                    continue
                row = record | {name: make(record) for name, make in table.derived.items()}
                if label := table.label(row):
                    values = {name: row[name] for name in (*table.numbers, *table.levels)}
                    yield {name: "" if value in _NONE else value for name, value in values.items()} | {CLASS: label}


def spec_of(
    name: str, rows: list[dict[str, str]], *, by_quantiles: bool, levels: int, bins: int = _BINS, rare: bool = False
) -> str:
    """Return a spec of all rows, once each."""
    table, classes = TABLES[name], Counter(row[CLASS] for row in rows)
    lines = ["[experiment]", f"name = {to_toml(name)}", f"arms = {to_toml(sorted(classes))}", f"horizon = {len(rows)}"]
    lines += ["", "[context.features]"]
    for column in (*table.numbers, *table.levels):
        values = [row[column] for row in rows if row[column]]
        feature: dict[str, object] = {}
        if column in table.levels:
            feature["levels"] = [level for level, _ in Counter(values).most_common(levels)]
        else:
            numbers = np.array(values, np.float64)
            if by_quantiles:
                feature["quantiles"] = np.quantile(numbers, np.linspace(0, 1, bins + 1)).tolist()
            else:
                feature["low"], feature["high"] = np.quantile(numbers, _BOUNDS).tolist()
        feature |= {"missing": True} if len(values) < len(rows) else {}
        lines.append(f"{format_key(column)} = {to_toml(feature)}")
    lines += ["", "[reward]", f"base_rate = {_EXPECTED}"] if rare else []
    lines += ["", "[privacy]", 'model = "none"', "", "[algorithm]", 'name = "additive"', "", "[population]"]
    lines += ['name = "csv"', f"path = {to_toml(name + '.csv')}", f"label = {to_toml(CLASS)}"]
    if rare:
        by_class = np.where(np.eye(len(classes), dtype=bool), *_RATES).tolist()
        lines.append(f"rewards = {to_toml(by_class)}")
    return "\n".join(lines) + "\n"


def main(name: str, files: str, folder: str) -> None:
    """Write the file and the specs of a table."""
    rows, target = list(rows_of(TABLES[name], files))[:: TABLES[name].every], Path(folder)
    with (target / f"{name}.csv").open("w", encoding="utf-8", newline="") as text:
        writer = csv.DictWriter(text, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    for edges in ("equal", "drawn"):
        for label, levels in (("all", _MANY), ("few", _FEW)):
            spec = spec_of(name, rows, by_quantiles=edges == "drawn", levels=levels)
            (target / f"{name}-{edges}-{label}.toml").write_text(spec, encoding="utf-8")
    spec = spec_of(name, rows, by_quantiles=False, levels=_MANY, rare=True)
    (target / f"{name}-rare.toml").write_text(spec, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
