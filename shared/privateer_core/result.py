"""What an experiment has found: estimates with intervals, a recommendation, and whether it stopped by itself."""

import math
from typing import Final, Literal, TypeAlias

import msgspec

from privateer_core.errors import Malformed

SIZE_MAX: Final = 4 << 20
"""Bytes of an encoded result."""
ESTIMATES_MAX: Final = 1 << 16
_NAME_MAX: Final = 256


class Estimate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An estimated quantity and its interval.

    Attributes
    ----------
    name
        What is estimated, e.g. an arm: 1 to 256 printable characters.
    value, low, high
        The estimate, in the units of rewards, and the ends of the interval around it.
    """

    name: str
    value: float
    low: float
    high: float

    def __post_init__(self) -> None:
        _check_name(self.name)
        if not (all(map(math.isfinite, (self.low, self.value, self.high))) and self.low <= self.value <= self.high):
            raise ValueError("an estimate must lie in its interval, and all three numbers must be finite")


Reason: TypeAlias = Literal[
    "decided better",
    "decided worse",
    "its interval holds 0",
    "its interval excludes 0, but not after the correction for several effects",
    "its test decided at an earlier look, but its interval holds 0 again",
    "too few people beside the noise",
    "its share of people is not told from 0",
    "too few people since the last look",
]
"""Why an effect is decided, or why not: a closed set, in words that every face shows as they are."""
DECIDED: Final[frozenset[Reason]] = frozenset({"decided better", "decided worse"})
Ground: TypeAlias = Literal[
    "decided against all other options",
    "decided against the control alone",
    "ahead, and not decided",
    "too few people to say",
    "everybody gets it from now on",
]
"""What a recommendation rests on."""
Ending: TypeAlias = Literal["its rule", "its horizon"]
"""What ended an experiment: the rule that it declared, or that all the planned people were asked."""


class Effect(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much better an option is than the control, for whom, and whether that is decided.

    Attributes
    ----------
    option
        The option that is compared with the control.
    group
        Whom it is about; None: everybody.
    value, low, high
        The difference in the units of rewards, and the ends of its interval; None where nothing is known of it.
    reason
        Why it is decided, or why not.
    people
        How many people had reported at the look that the figures are of: the last one that had an interval. What was
        decided of an option that hardly anybody gets any more is of an earlier look.
    """

    option: str
    group: str | None
    value: float | None
    low: float | None
    high: float | None
    reason: Reason
    people: int | None = None

    def __post_init__(self) -> None:
        for name in filter(None, (self.option, self.group)):
            _check_name(name)
        if not all(math.isfinite(one) for one in (self.value, self.low, self.high) if one is not None):
            raise ValueError("figures of an effect must be finite")

    @property
    def is_decided(self) -> bool:
        """Whether it is decided."""
        return self.reason in DECIDED


def reason_of(low: float, high: float, *, decided: bool) -> Reason:
    """Return why an effect is decided or not, from its interval and from what its test says after the correction."""
    if low > 0 or high < 0:
        called: Reason = "decided better" if low > 0 else "decided worse"
        return called if decided else "its interval excludes 0, but not after the correction for several effects"
    return "its test decided at an earlier look, but its interval holds 0 again" if decided else "its interval holds 0"


Cell: TypeAlias = str | bool | int | float | None


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """More that was found, for people: rows of words and figures.

    Attributes
    ----------
    title
        What it is about: 1 to 256 printable characters.
    columns
        Their names.
    rows
        A cell for each column.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def __post_init__(self) -> None:
        for name in (self.title, *self.columns):
            _check_name(name)
        cells = [cell for row in self.rows for cell in row]
        if any(len(row) != len(self.columns) for row in self.rows):
            raise ValueError("a row must have a cell for each column")
        if not all(math.isfinite(cell) for cell in cells if isinstance(cell, float)):
            raise ValueError("figures of a table must be finite")
        for cell in cells:
            if isinstance(cell, str):
                _check_name(cell)


class Result(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a learner publishes beside its policy.

    Attributes
    ----------
    estimates
        At most 65,536, each with a name of its own.
    confidence
        The probability, 0 to 1, with which the intervals hold.
    recommended
        The name of the option that the learner recommends; None as long as it recommends nothing.
    stopped
        Whether the learner asks nobody any more; `ended` says why.
    tables
        Whatever else the algorithm reports.
    effects
        Differences from a control, where the algorithm compares options with one: in the order of its tables.
    ground
        What the recommendation rests on; None without one.
    ended
        Why the learner asks nobody any more; None as long as it does.

    Results that older servers stored have no `effects`, `ground` and `ended`: `completed` derives the first.
    """

    estimates: tuple[Estimate, ...]
    confidence: float
    recommended: str | None = None
    stopped: bool = False
    tables: tuple[Table, ...] = ()
    effects: tuple[Effect, ...] = ()
    ground: Ground | None = None
    ended: Ending | None = None

    def __post_init__(self) -> None:
        if len({estimate.name for estimate in self.estimates}) < len(self.estimates):
            raise ValueError("two estimates must not have the same name")
        if len(self.estimates) > ESTIMATES_MAX or not 0 <= self.confidence <= 1:
            raise ValueError(f"a result has at most {ESTIMATES_MAX} estimates and a confidence of 0 to 1")
        if self.recommended is not None:
            _check_name(self.recommended)


class Contradiction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether recent rounds contradict earlier ones, which says that rewards have moved.

    Attributes
    ----------
    found
        Whether they do.
    evidence
        How many times as probable the releases are if rewards have moved: its decimal logarithm.
    false_alarm_rate
        The probability, at most, that this is ever found in an experiment where nothing moves.
    since
        People who had reported before the rounds that contradict earlier ones; None if none do.
    """

    found: bool
    evidence: float
    false_alarm_rate: float
    since: int | None = None


def _check_name(name: str) -> None:
    # Names are shown on screens.
    if not (0 < len(name) <= _NAME_MAX and name.isprintable()):
        raise ValueError(f"a name must have 1 to {_NAME_MAX} printable characters")


EVERYBODY: Final = "everybody"
"""What tables call the group that has all people."""
_ENDS: Final = ("effect", "low", "high")
_GUARDRAIL: Final = "guardrail: "


def completed(result: Result) -> Result:
    """Return a result with its effects, which are derived from its tables where it was stored without."""
    if result.effects:
        return result
    earlier = {
        (cells["segment"], cells["arm"]): cells
        for table in result.tables
        if {"people", "segment", "arm", *_ENDS} <= set(table.columns)
        for cells in _rows(table)
        if cells["effect"] is not None
    }
    found = tuple(
        _effect(cells, earlier.get((cells.get("segment"), cells["arm"]), {}))
        for table in result.tables
        if {"arm", *_ENDS, "decided"} <= set(table.columns) and not table.title.startswith(_GUARDRAIL)
        for cells in _rows(table)
    )
    return msgspec.structs.replace(result, effects=found) if found else result


def _rows(table: Table) -> list[dict[str, Cell]]:
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def _effect(cells: dict[str, Cell], earlier: dict[str, Cell]) -> Effect:
    """Return a row's effect; what is decided and has no figures now has those of the last look with some."""
    decided, people = bool(cells["decided"]), None
    if decided and cells["effect"] is None and earlier:
        cells, people = cells | {name: earlier[name] for name in _ENDS}, _number(earlier["people"])
    value, low, high = (_number(cells[name]) for name in _ENDS)
    reason: Reason = "too few people beside the noise"
    if value is not None:
        ends = -math.inf if low is None else low, math.inf if high is None else high
        reason = reason_of(*ends, decided=decided)
    group = cells.get("segment")
    named = None if group in (None, EVERYBODY) else str(group)
    return Effect(str(cells["arm"]), named, value, low, high, reason, None if people is None else int(people))


def _number(cell: Cell) -> float | None:
    return float(cell) if isinstance(cell, int | float) and not isinstance(cell, bool) else None


def encode_result(result: Result) -> bytes:
    """Serialize a result as msgpack."""
    return msgspec.msgpack.encode(result)


def decode_result(body: bytes) -> Result:
    """Parse what `encode_result` made.

    Raises
    ------
    Malformed
        If ``body`` is not a result, or is above 4 MiB.
    """
    try:
        if len(body) > SIZE_MAX:
            raise ValueError("too large")
        return msgspec.msgpack.decode(body, type=Result)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise Malformed("not a serialized result", field="result", remedy="fetch the policy again") from error
