"""The report of an experiment as one HTML file: what was asked, what was learned, and what it means, for the team."""

from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Final

import msgspec

from privateer_core.answer.parts import BinMeans, EffectsOverTime
from privateer_core.answer.policy_view import BinShares
from privateer_lab.answer_tables import Titled, estimates_of, rows_of, tables_of
from privateer_lab.conclusion_tables import tables_of_conclusion
from privateer_lab.figures import listed, readable
from privateer_lab.pages.report_findings import Findings, meaning, warnings
from privateer_lab.pages.report_pictures import of_answer, of_policy
from privateer_lab.pages.templates import page, written

_ROWS: Final = 60
"""Rows of a table; the commands have the others."""
_LOCAL: Final = "http://127.0.0.1:8000"


def html(found: Findings, url: str) -> str:
    """Return the page; ``url`` is the server's address, for the commands."""
    return page(
        "report.html",
        found=found,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        privateer=version("privateer-lab"),
        meaning=meaning(found),
        warnings=warnings(found),
        options=listed(found.spec.options),
        features=listed(list(found.spec.features)) or "no features",
        policy=[of_policy(found.policy.shows, found.spec)],
        estimates=of_answer(found.answer) if found.rounds else [],
        confidence=_confidence(found),
        policy_facts=[(one.name, readable(one.value)) for one in found.policy.facts],
        policy_tables=[written(one, _ROWS) for one in rows_of(found.policy.shows)],
        tables=[written(one, _ROWS) for one in _tables(found) if one.rows],
        commands=_commands(found, url),
    )


def _confidence(found: Findings) -> str:
    """Return the confidence of intervals that are shown together; empty if there are none."""
    answer = found.answer
    if answer.confidence is None or not (answer.estimates or answer.effects):
        return ""
    return f"{100 * answer.confidence:g} %"


def _tables(found: Findings) -> Iterator[Titled]:
    yield from tables_of_conclusion(found.published.conclusion) if found.rounds else ()
    answer = found.answer if found.rounds else msgspec.structs.replace(found.answer, estimates=(), parts=())
    if answer.estimates and not answer.effects and not found.published.conclusion.estimates:
        yield Titled("estimates", estimates_of(answer.estimates))
    for means in answer.all_of(BinMeans):
        for one in rows_of(means):
            yield one._replace(title=one.title + _of_larger_bins(means, found))
    apart = BinMeans | EffectsOverTime
    others = tuple(part for part in answer.parts if not isinstance(part, apart))
    for one in tables_of(msgspec.structs.replace(answer, parts=others, effects=(), gain=None)):
        decided_first = sorted(one.rows, key=lambda row: row.get("decided") is False)
        yield one._replace(rows=decided_first) if len(one.rows) > _ROWS else one


def _of_larger_bins(means: BinMeans, found: Findings) -> str:
    """Say that the estimates of a bin may be about several of the policy's."""
    shows, rows = found.policy.shows, len(means.bins)
    bins = len(shows.bins) if isinstance(shows, BinShares) else 0
    return f". Reports are about {rows:,} bins; the policy divides them further, into {bins:,}" if rows < bins else ""


def _commands(found: Findings, url: str) -> list[tuple[str, str]]:
    """Return how to get the raw data."""
    at, name = "" if url.rstrip("/") == _LOCAL else f" --url {url}", found.spec.name
    return [
        (f"privateer answer {name}{at} --json", "the answer, and all that was found"),
        (f"privateer answer {name}{at} --as progress --json", "where it stands, the privacy record"),
        (f"privateer answer {name}{at} --as policy --json", "the policy"),
        (f"privateer account experiment {name}{at} --json > record.json", "the privacy record"),
        ("privateer account verify record.json", "recompute its claims"),
        (f"privateer review {name}{at} --out review", "a pack for reviewers"),
        (f"privateer export {name} {name}.json", "policy, result, record and state in one file; needs the admin token"),
    ]
