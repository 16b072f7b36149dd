"""What a result means, in plain words, and what somebody should look at first."""

from collections.abc import Iterator
from typing import Any, Final

from privateer_core.result import Estimate, Result, Table
from privateer_lab.commands.experiments import contradicted
from privateer_lab.output import readable, whole_percent
from privateer_lab.report.findings import Findings, contradiction
from privateer_lab.report.shapes import boxes, groups, leading
from privateer_lab.result_tables import GUARDRAIL, INTERVAL, RATIO

_REFUSED: Final = 0.05
"""Share of refused reports that is worth a warning."""
_TOLD: Final = 5
"""Findings that are named one by one."""
_STATUS: Final = {
    "open": "The experiment is still running, so what follows may change.",
    "paused": "The experiment is paused: nobody is asked now.",
    "draining": "The experiment asks nobody any more, and waits for late reports.",
    "stopped": "The experiment was stopped.",
    "finished": "The experiment is finished.",
    "failed": "The experiment failed: a round came to no end.",
}


def meaning(found: Findings) -> str:
    """Return the paragraph that says what was found."""
    return " ".join(_meaning(found))


def _meaning(found: Findings) -> Iterator[str]:
    standing = found.standing
    people = f"{standing.accepted:,} of at most {standing.planned:,} reports count"
    learned = "1 round was" if found.rounds == 1 else f"{found.rounds:,} rounds were"
    yield f"{people}, and {learned} learned from."
    yield _STATUS[standing.status]
    if not found.rounds:
        yield "No round is complete yet, so nothing has been learned: the policy is the one it began with."
        return
    yield from _of_the_result(found.result) if found.result else _of_the_policy(found.policy)


def _of_the_result(result: Result) -> Iterator[str]:
    if result.recommended is not None:
        yield f"It recommends {result.recommended}."
    elif advised := [one for table in result.tables for one in _advised(table)]:
        more = "" if len(advised) <= _TOLD else f", and so on for {len(advised) - _TOLD:,} more"
        yield f"So far it prefers {'; '.join(advised[:_TOLD])}{more}."
    decided = [row for table in result.tables for row in _decided(table)]
    if decided:
        more = "" if len(decided) <= _TOLD else f", and {len(decided) - _TOLD:,} more"
        yield f"These effects are decided: {'; '.join(decided[:_TOLD])}{more}."
    elif any(set(table.columns) >= INTERVAL for table in result.tables):
        yield "No effect is decided yet: every interval leaves both directions open."
    else:
        yield from _of_the_best(result.estimates)


def _decided(table: Table) -> Iterator[str]:
    """Say which effects of a table are decided; guardrails are told apart, as warnings."""
    if table.title.startswith(GUARDRAIL) or not {*INTERVAL, "decided"} <= set(table.columns):
        return
    for row in table.rows:
        cells = dict(zip(table.columns, row, strict=True))
        if cells["decided"]:
            yield _effect(cells)


def _advised(table: Table) -> Iterator[str]:
    """Say which arm a table recommends to whom."""
    if set(table.columns) == {"segment", "arm", "decided"}:
        for row in table.rows:
            cells = dict(zip(table.columns, row, strict=True))
            yield f"{cells['arm']} for {cells['segment']}{'' if cells['decided'] else ' (not decided)'}"


def _effect(cells: dict[str, Any]) -> str:
    names = [str(value) for key, value in cells.items() if key in ("segment", "arm") and value is not None]
    figures = f"{readable(cells['effect'])} ({readable(cells['low'])} to {readable(cells['high'])})"
    return f"{', '.join(names) or 'the effect'} {figures}"


def _of_the_best(estimates: tuple[Estimate, ...]) -> Iterator[str]:
    if not estimates:
        return
    best = max(estimates, key=lambda one: one.value)
    about = f"{best.name}, {readable(best.value)} ({readable(best.low)} to {readable(best.high)})"
    if len(estimates) == 1:
        yield f"It estimates {about}."
        return
    rivals = [one.name for one in estimates if one is not best and one.high >= best.low]
    yield f"The highest estimate is that of {about}."
    if rivals:
        named = ", ".join(rivals[:_TOLD]) + ("" if len(rivals) <= _TOLD else f" and {len(rivals) - _TOLD:,} more")
        yield f"Its interval overlaps with that of {named}, so these may be as good."
    else:
        yield "Its interval overlaps with no other."


def _of_the_policy(policy: dict[str, Any]) -> Iterator[str]:
    """Say what a policy without a result plays."""
    drawn, grouped = boxes(policy), groups(policy)
    rows = [one.arms for one in drawn] or [arms for _, arms in grouped]
    if not rows:
        yield "The algorithm publishes a policy and no result: the policy below is what was found."
        return
    led: dict[str, int] = {}
    for arms in rows:
        led[leading(arms)] = led.get(leading(arms), 0) + 1
    single = sum(len([share for share in arms.values() if share > 0]) == 1 for arms in rows)
    kind = "bins of people" if drawn else "groups of people"
    if len(rows) == 1:
        yield f"{leading(rows[0])} is played most, to {whole_percent(max(rows[0].values()))} of the people."
        return
    told = ", ".join(f"{arm} in {count:,}" for arm, count in sorted(led.items(), key=lambda one: -one[1]))
    yield f"The policy parts people into {len(rows):,} {kind}; the arm that is played most is {told}."
    several = len(rows) - single
    if not single:
        yield "In each of them several arms are still tried."
    elif several:
        yield f"In {single:,} of them one arm is in play; in the other {several:,} several are still tried."
    else:
        yield "In each of them one arm is in play."


def warnings(found: Findings) -> list[str]:
    """Return what to look at before anybody acts on the result."""
    return list(_warnings(found))


def _warnings(found: Findings) -> Iterator[str]:
    yield from found.spec.concerns()
    moved = contradiction(found.state)
    if moved and moved.found:
        yield contradicted(moved)
    refused = sum(found.standing.refused.values())
    if refused > _REFUSED * (refused + found.standing.accepted):
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in found.standing.refused.items())
        yield f"{refused:,} reports were refused ({reasons}). docs/problems.md says why that happens."
    for table in found.result.tables if found.result else ():
        yield from _of_a_table(table)


def _of_a_table(table: Table) -> Iterator[str]:
    if len(table.columns) == 2:
        name, planned = RATIO
        yield from (f"{name}: {row[1]}" for row in table.rows if row[0] == name and row[1] != planned)
    if table.title.startswith(GUARDRAIL) and {*INTERVAL, "decided"} <= set(table.columns):
        for row in table.rows:
            cells = dict(zip(table.columns, row, strict=True))
            if cells["decided"]:
                yield f"{table.title} changes: {_effect(cells)}"
