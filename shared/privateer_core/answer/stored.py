"""Answers as they travel with a publication, and the results that older servers stored in their place."""

import math
from typing import Any, Final, get_args

import msgspec

from privateer_core.answer import Answer, Ending
from privateer_core.answer.estimates import Effect, Estimate, Reason, reason_of
from privateer_core.answer.facts import Cell, Fact, Kind, Table
from privateer_core.answer.parts import (
    AnswerPart,
    EffectPath,
    EffectsOverTime,
    Figures,
    Ground,
    GuardrailEffects,
    Recommendation,
    Recommendations,
)
from privateer_core.errors import Malformed

SIZE_MAX: Final = 4 << 20
"""Bytes of an encoded answer."""
_EVERYBODY: Final = (None, "everybody")
_GUARDRAIL: Final = "guardrail: "
_ENDS: Final = ("effect", "low", "high")
_RATIO: Final = ("sample ratio", "as planned")
_KINDS: Final[dict[str, Kind]] = {"people": "count", "low": "low", "high": "high", "share": "share", "p": "probability"}


class StoredTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table that did not say what its columns hold."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    @property
    def cells(self) -> list[dict[str, Any]]:
        """Its rows by column."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


class StoredResult(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A result as older servers stored it."""

    estimates: tuple[Estimate, ...]
    confidence: float
    recommended: str | None = None
    stopped: bool = False
    tables: tuple[StoredTable, ...] = ()
    effects: tuple[Effect, ...] = ()
    ground: Ground | None = None
    ended: Ending | None = None


def encode_answer(answer: Answer) -> bytes:
    """Serialize an answer as msgpack."""
    return msgspec.msgpack.encode(answer)


def decode_answer(body: bytes) -> Answer:
    """Parse what `encode_answer` made, or what an older server stored.

    Raises
    ------
    Malformed
        If ``body`` is neither, or is above 4 MiB.
    """
    try:
        if len(body) > SIZE_MAX:
            raise ValueError("too large")
        keys = msgspec.msgpack.decode(body, type=dict[str, msgspec.Raw])
        if "stopped" in keys or "status" not in keys:
            return from_stored(msgspec.msgpack.decode(body, type=StoredResult))
        return msgspec.msgpack.decode(body, type=Answer)
    except (msgspec.DecodeError, RecursionError, ValueError, TypeError, KeyError) as error:
        raise Malformed("not a serialized answer", field="result", remedy="fetch the policy again") from error


def read_answer(document: Any) -> Answer:
    """Return the answer that a JSON value is, or that of an older server's result.

    Raises
    ------
    msgspec.ValidationError
        If it is neither.
    """
    if isinstance(document, dict) and "status" not in document:
        try:
            return from_stored(msgspec.convert(document, StoredResult))
        except (ValueError, TypeError, KeyError) as error:
            raise msgspec.ValidationError(str(error)) from None
    return msgspec.convert(document, Answer)


def from_stored(result: StoredResult) -> Answer:
    """Return the answer that an older server's result is: its tables said in words what they were about."""
    stored = {(one.group, one.option): one for one in result.effects}
    over_time = next((table for table in result.tables if {"people", "arm", *_ENDS} <= set(table.columns)), None)
    effects, parts, warnings = list[Effect](), list[AnswerPart](), list[str]()
    for table in result.tables:
        columns = set(table.columns)
        if table is over_time:
            parts.append(_over_time(table))
        elif table.title.startswith(_GUARDRAIL) and {"arm", *_ENDS, "decided"} <= columns:
            found = tuple(_effect(cells, None) for cells in table.cells)
            parts.append(GuardrailEffects(table.title.removeprefix(_GUARDRAIL), found))
        elif {"arm", *_ENDS, "decided"} <= columns:
            earlier = _last_known(over_time)
            effects += [stored.get(_whom(cells)) or _effect(cells, earlier.get(_whom(cells))) for cells in table.cells]
        elif table.columns == ("segment", "arm", "decided", "note") and _are_grounds(table):
            rows = (Recommendation(str(one["segment"]), str(one["arm"]), one["note"]) for one in table.cells)
            parts.append(Recommendations(tuple(rows)))
        elif len(table.columns) == 2:
            parts.append(Figures(table.title, tuple(Fact(str(name), value) for name, value in table.rows)))
            warnings += [f"{name}: {said}" for name, said in table.rows if name == _RATIO[0] and said != _RATIO[1]]
        else:
            parts.append(Table.of(table.title, {name: _kind(table, name) for name in table.columns}, table.rows))
    answer = Answer(
        status="ended" if result.stopped else "learning",
        people=None,
        rounds=None,
        confidence=result.confidence,
        recommended=result.recommended,
        ground=result.ground,
        ended=result.ended,
        estimates=result.estimates,
        effects=tuple(effects) or result.effects,
        warnings=tuple(warnings),
        parts=tuple(parts),
    )
    # Cells of a table had no types.
    return msgspec.convert(msgspec.to_builtins(answer), Answer)


def _whom(cells: dict[str, Any]) -> tuple[str | None, str]:
    group = cells.get("segment")
    return None if group in _EVERYBODY else str(group), str(cells["arm"])


def _last_known(over_time: StoredTable | None) -> dict[tuple[str | None, str], dict[str, Any]]:
    cells = over_time.cells if over_time else []
    return {_whom(one): one for one in cells if one["effect"] is not None}


def _effect(cells: dict[str, Any], earlier: dict[str, Any] | None) -> Effect:
    """Return a row's effect; what is decided and has no figures now has those of the last look with some."""
    decided, people = bool(cells["decided"]), None
    if decided and cells["effect"] is None and earlier:
        cells, people = cells | {name: earlier[name] for name in _ENDS}, int(earlier["people"])
    value, low, high = (None if cells[name] is None else float(cells[name]) for name in _ENDS)
    reason: Reason = "decided at an earlier look" if decided else "too few people beside the noise"
    if value is not None:
        reason = reason_of(-math.inf if low is None else low, math.inf if high is None else high, decided=decided)
    group, option = _whom(cells)
    more = cells.get("p"), cells.get("detectable"), cells.get("contribution")
    return Effect(option, group, value, low, high, reason, people, *more)


def _over_time(table: StoredTable) -> EffectsOverTime:
    """Return the effects of a table that has a row for each at every look."""
    looks = sorted({int(one["people"]) for one in table.cells})
    at = {(_whom(one), int(one["people"])): tuple(one[name] for name in _ENDS) for one in table.cells}
    paths = []
    for group, option in dict.fromkeys(_whom(one) for one in table.cells):
        figures = [at.get(((group, option), look), (None, None, None)) for look in looks]
        values, lows, highs = zip(*figures, strict=True)
        paths.append(EffectPath(option, group, values, lows, highs))
    return EffectsOverTime(tuple(looks), tuple(paths))


def _are_grounds(table: StoredTable) -> bool:
    return all(one["note"] in get_args(Ground) for one in table.cells)


def _kind(table: StoredTable, name: str) -> Kind:
    cells = [one[name] for one in table.cells]
    if any(isinstance(one, str) for one in cells):
        return "words"
    if any(isinstance(one, bool) for one in cells):
        return "yes or no"
    return _KINDS.get(name, "number")
