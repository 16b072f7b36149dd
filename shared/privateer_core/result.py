"""What an experiment has found: estimates with intervals, a recommendation, and whether it stopped by itself."""

import math
from typing import Final, TypeAlias

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
        Whether the learner has found what it was looking for and asks nobody any more.
    tables
        Whatever else the algorithm reports.
    """

    estimates: tuple[Estimate, ...]
    confidence: float
    recommended: str | None = None
    stopped: bool = False
    tables: tuple[Table, ...] = ()

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
