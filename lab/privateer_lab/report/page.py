"""The report as one HTML file."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Final, NamedTuple

import msgspec

from privateer_core.features import Numeric
from privateer_core.spec import Spec
from privateer_lab.bin_map import chosen_by, people_in
from privateer_lab.effect_report import draw_over_time
from privateer_lab.output import readable
from privateer_lab.plots import panels
from privateer_lab.report import pictures, shapes
from privateer_lab.report.findings import Findings
from privateer_lab.report.pictures import Picture
from privateer_lab.report.shapes import Box
from privateer_lab.report.words import meaning, warnings
from privateer_lab.result_tables import is_over_time, rows_of
from privateer_lab.result_words import Drawn, rows_drawn
from privateer_lab.templates import page

_ROWS: Final = 60
"""Rows of a table; the commands have the others."""
_NAMES: Final = 40
_MAPPED: Final = 2
"""Columns of bins that are drawn as a map."""
_ABOVE: Final = {"algorithm", "version", "columns"}
"""What a policy says of itself that is told above it."""
_LOCAL: Final = "http://127.0.0.1:8000"


class Shown(NamedTuple):
    """A table as the page has it."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    more: int


def html(found: Findings, url: str) -> str:
    """Return the page; ``url`` is the server's address, for the commands."""
    drawn, tables = list(_pictures(found)), [table for table in _tables(found) if table.rows]
    return page(
        "report.html",
        found=found,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        privateer=version("privateer-lab"),
        meaning=meaning(found),
        warnings=warnings(found),
        options=_listed(found.spec.options),
        features=_listed(list(found.spec.features)) or "no features",
        policy=[one for kind, one in drawn if kind == "policy"],
        estimates=[one for kind, one in drawn if kind == "estimates"],
        confidence="" if found.result is None else f"{100 * found.result.confidence:g} %",
        policy_facts=_facts(found.policy),
        policy_tables=list(_document_tables(found.policy)),
        tables=tables,
        commands=_commands(found, url),
    )


def _pictures(found: Findings) -> Iterator[tuple[str, Picture]]:
    arms = list(found.spec.options)
    if boxes := shapes.boxes(found.policy):
        columns = [str(name) for name in found.policy.get("columns", [])] or ["first", "second"]
        yield (
            "policy",
            pictures.of_boxes(_in_units(boxes, found.spec, columns), columns, _all(arms, [one.arms for one in boxes])),
        )
    elif grouped := shapes.groups(found.policy):
        yield "policy", pictures.of_groups(grouped, _all(arms, [one for _, one in grouped]))
    elif numbers := shapes.coefficients(found.policy):
        yield "policy", pictures.of_coefficients(numbers)
    if counted := shapes.counts(found.policy):
        yield "policy", pictures.of_counts(counted)
    if found.result is not None:
        yield from _of_the_result(found)
    elif found.rounds and (estimated := shapes.estimates(found.state)):
        yield "estimates", pictures.of_estimates([Drawn(*one) for one in estimated], "about 95 %")


def _in_units(boxes: list[Box], spec: Spec, columns: Sequence[str]) -> list[Box]:
    """Return boxes of a map with corners in the units of the spec's numbers; other columns run from 0 to 1."""
    features = [spec.features.get(name) for name in columns]
    if any(len(one.lower) != len(columns) or len(columns) > _MAPPED for one in boxes):
        return boxes

    def shown(corner: list[float]) -> list[float]:
        pairs = zip(corner, features, strict=True)
        return [one.value_at(place) if isinstance(one, Numeric) else place for place, one in pairs]

    return [one._replace(lower=shown(one.lower), upper=shown(one.upper)) for one in boxes]


def _of_the_result(found: Findings) -> Iterator[tuple[str, Picture]]:
    assert found.result is not None
    tables, confidence = msgspec.to_builtins(found.result.tables), f"{100 * found.result.confidence:g} %"
    if rows := rows_drawn(found.result):
        yield "estimates", pictures.of_estimates(rows, confidence, len(found.result.effects))
    for table in filter(is_over_time, tables):
        points = [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]
        if len({row["people"] for row in points}) > 1:
            figure, axes = panels(1, "")
            draw_over_time(axes[0], points)
            alt = "Curves of the effects over the number of people, with their intervals."
            yield "estimates", pictures.framed(figure, alt, "How the first effects came about, with their intervals.")


def _all(arms: list[str], rows: Sequence[dict[str, float]]) -> list[str]:
    """Return all arms that are named, those of the spec first."""
    return list(dict.fromkeys([*arms, *(name for row in rows for name in row)]))


def _tables(found: Findings) -> Iterator[Shown]:
    bounds = (found.spec.reward.low, found.spec.reward.high)
    # Before the first round a state holds what was assumed, which is no finding.
    rows = shapes.box_estimates(found.state, found.spec.features, bounds) if found.rounds else []
    yield _shown(_of_boxes(len(rows), len(shapes.boxes(found.policy))), rows)
    for table in msgspec.to_builtins(found.result.tables) if found.result else ():
        if not is_over_time(table):
            rows = rows_of(table)
            # A table that is cut off keeps what is decided.
            yield _shown(str(table["title"]), sorted(rows, key=_is_undecided) if len(rows) > _ROWS else rows)


def _is_undecided(row: dict[str, Any]) -> bool:
    return row.get("decided") is False


def _of_boxes(rows: int, bins: int) -> str:
    """Return the title of the estimates by bin; those of a bin may be about several of the policy's."""
    title = "Estimates by bin, with intervals of about 95 %"
    shared = f". Reports are about {rows:,} bins; the policy divides them further, into {bins:,}"
    return title + (shared if 0 < rows < bins else "")


def _document_tables(document: dict[str, Any]) -> Iterator[Shown]:
    """Return what a document lists, as tables."""
    for name, value in document.items():
        if isinstance(value, dict) and value and all(isinstance(one, dict) for one in value.values()):
            yield _shown(name, [{"name": key, **one} for key, one in value.items()])
        elif isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
            yield _shown(name, _in_words(value))


def _in_words(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows as they are; of bins, which people are in each and what they get, by the first feature."""
    if not all(isinstance(row.get("where"), dict) for row in rows):
        return rows
    return [_bin_in_words(row) for row in sorted(rows, key=shapes.corner)]


def _bin_in_words(row: dict[str, Any]) -> dict[str, Any]:
    told = {key: one for key, one in row.items() if key not in ("lower", "upper", "where")}
    arms = {"arms": chosen_by(row["arms"])} if shapes.is_shares(row.get("arms")) else {}
    return {"people": people_in(row["where"]), **told, **arms}


def _facts(document: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what a document says in single figures and short lists."""
    tables = {table.title for table in _document_tables(document)}
    told = [(key, value) for key, value in document.items() if key not in tables | _ABOVE]
    return [(key.replace("_", " "), readable(value)) for key, value in told]


def _shown(title: str, rows: Sequence[dict[str, Any]]) -> Shown:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[readable(row.get(name, "")) for name in columns] for row in rows[:_ROWS]]
    return Shown(title, columns, cells, max(0, len(rows) - _ROWS))


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMES])
    return shown if len(names) <= _NAMES else f"{shown}, ... ({len(names):,} in all)"


def _commands(found: Findings, url: str) -> list[tuple[str, str]]:
    """Return how to get the raw data."""
    at, name = "" if url.rstrip("/") == _LOCAL else f" --url {url}", found.spec.name
    commands = [
        (f"privateer show {name}{at} --json", "where it stands, the result, the privacy record"),
        (f"privateer policy {name}{at} --json", "the policy"),
        (f"privateer account experiment {name}{at} --json > record.json", "the privacy record"),
        ("privateer account verify record.json", "recompute its claims"),
        (f"privateer review {name}{at} --out review", "a pack for reviewers"),
        (f"privateer export {name} {name}.json", "policy, result, record and state in one file; needs the admin token"),
    ]
    if found.result is not None:
        commands.insert(2, (f"privateer effects {name}{at} --json", "the result"))
    return commands
