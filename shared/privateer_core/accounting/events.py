"""Events: releases of a participant's record, as input of the accountant.

Events read and write as JSON (``{"event": "gaussian", "standard_deviation": 2.0, "sensitivity": 1.0}``), so that a
certificate can hold them. Neighbours differ in one participant's whole record (replacement).
"""

from typing import Any, Final, TypeAlias

import msgspec

from privateer_core.accounting.numerics import check
from privateer_core.errors import SpecError
from privateer_core.prepared_types import cache_decoder

EPSILON_MAX: Final = 64.0
COUNT_MAX: Final = 100_000
"""Largest number of events of a composition, repetitions included."""
DEPTH_MAX: Final = 32


class _Event(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="event"):
    """Base class of events."""


class Pure(_Event, frozen=True, tag="pure"):
    """A message or release of pure epsilon: randomized response, subset selection, Laplace noise in any dimension."""

    epsilon: float


class Choice(_Event, frozen=True, tag="choice"):
    """A release by the exponential mechanism: losses lie in a range of width ``epsilon`` around 0."""

    epsilon: float


class Gaussian(_Event, frozen=True, tag="gaussian"):
    """A release with normal noise, rounded or not; ``sensitivity`` in L2."""

    standard_deviation: float
    sensitivity: float = 1.0


class Laplace(_Event, frozen=True, tag="laplace"):
    """A release of one number with Laplace noise. For several numbers use `Pure`, which dominates."""

    scale: float
    sensitivity: float = 1.0


class ShuffledResponse(_Event, frozen=True, tag="shuffled-response"):
    """A k-ary randomized response among ``honest`` shuffled responses, with public coins."""

    local_epsilon: float
    symbols: int
    honest: int


class GroupedResponse(_Event, frozen=True, tag="grouped-response"):
    """A randomized response to a bit among ``honest`` shuffled responses in public groups that coins alone choose.

    Coins do not change the bit within a group. ``share`` is the probability with which another participant is in the
    participant's group.
    """

    local_epsilon: float
    honest: int
    share: float


class ShuffledSubset(_Event, frozen=True, tag="shuffled-subset"):
    """A response of subset selection among ``honest`` shuffled responses, with public coins.

    Of the symbols ``own_symbols`` are a participant's, at most half of them.
    """

    local_epsilon: float
    symbols: int
    own_symbols: int
    honest: int


class ShuffledMessage(_Event, frozen=True, tag="shuffled-message"):
    """A message of any randomizer of pure local epsilon among ``honest`` shuffled messages."""

    local_epsilon: float
    honest: int


class ShuffledBits(_Event, frozen=True, tag="shuffled-bits"):
    """A sum of integers of 0..levels in each coordinate, hidden by Bin(trials, probability) bits of honest reports."""

    trials: int
    probability: float
    levels: int
    coordinates: int


class Approximate(_Event, frozen=True, tag="approximate"):
    """A release of which only (epsilon, delta)-privacy is known."""

    epsilon: float
    delta: float


class Sequential(_Event, frozen=True, tag="sequential"):
    """Events on the same record. An event's input may depend on earlier results, but its parameters may not."""

    events: tuple["Event", ...]


class Repeated(_Event, frozen=True, tag="repeated"):
    """An event repeated ``count`` times on the same record. A later repetition may depend on earlier results.

    If the event is `Parallel`, the participant's group may depend on them, too.
    """

    of: "Event"
    count: int


class Parallel(_Event, frozen=True, tag="parallel"):
    """Events on disjoint groups of participants. The groups must not depend on the records."""

    events: tuple["Event", ...]


Event: TypeAlias = (
    Pure
    | Choice
    | Gaussian
    | Laplace
    | ShuffledResponse
    | GroupedResponse
    | ShuffledSubset
    | ShuffledMessage
    | ShuffledBits
    | Approximate
    | Sequential
    | Repeated
    | Parallel
)


def read_event(value: Any) -> Event:
    """Return the event that parsed JSON or TOML describes.

    Raises
    ------
    SpecError
        If the value is not an event, the kind is not known, or a number is out of range.
    """
    try:
        event: Event = msgspec.convert(value, cache_decoder(Event))
    except (msgspec.ValidationError, RecursionError, UnicodeError) as error:
        raise SpecError(f"this is not an event: {error}", field="event", remedy="see docs/accounting.md") from None
    check_event(event)
    return event


def check_event(event: Event) -> None:
    """Refuse an event that contains an unknown kind, a number out of range, or too many events to compose.

    Raises
    ------
    SpecError
        Naming the field.
    """
    _check_and_count(event, 0)


def _check_and_count(event: Event, depth: int) -> int:
    """Check an event, and return its number of composed events."""
    if not isinstance(event, Event):
        raise SpecError("the kind of the event is not known", field="event", remedy="see docs/accounting.md")
    if depth > DEPTH_MAX:
        raise SpecError(f"events are nested more than {DEPTH_MAX} deep", field="event", remedy="flatten it")
    match event:
        case Repeated(repeated, count):
            _check_number("count", count)
            size = count * _check_and_count(repeated, depth + 1)
        case Sequential(events):
            size = sum(_check_and_count_all(events, depth))
        case Parallel(events):
            _check_and_count_all(events, depth)
            size = 1
        case _:
            size = 1
            for field in msgspec.structs.fields(event):
                _check_number(field.name, getattr(event, field.name))
    if isinstance(event, ShuffledSubset):
        check("own_symbols", event.own_symbols, 2 * event.own_symbols <= event.symbols, "at most half of the symbols")
    if size > COUNT_MAX:
        raise SpecError(f"this composes {size:g} events, and the most is {COUNT_MAX}", field="count", remedy="lower it")
    return size


_RANGES: Final = {
    "epsilon": (0.0, EPSILON_MAX),
    "local_epsilon": (1e-9, 30.0),
    "delta": (0.0, 1.0),
    "standard_deviation": (1e-9, 1e12),
    "scale": (1e-9, 1e12),
    "sensitivity": (1e-12, 1e12),
    "symbols": (2, 1 << 15),
    "own_symbols": (1, 1 << 14),
    "honest": (1, 10**9),
    "share": (2.0**-16, 1.0),
    "trials": (1, 10**10),
    "probability": (1e-9, 0.5),
    "levels": (1, 1 << 20),
    "coordinates": (1, 1 << 20),
    "count": (1, COUNT_MAX),
}


def _check_and_count_all(events: tuple[Event, ...], depth: int) -> list[int]:
    if not 1 <= len(events) <= COUNT_MAX:
        raise SpecError(f"must be a list of 1 to {COUNT_MAX} events", field="events", remedy="list them")
    return [_check_and_count(event, depth + 1) for event in events]


def _check_number(name: str, value: float) -> None:
    low, high = _RANGES[name]
    check(name, value, low <= value <= high, f"{low:g} to {high:g}")
