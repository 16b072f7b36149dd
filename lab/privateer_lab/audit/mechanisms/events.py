"""Attacks on event symbols: alone and shuffled, where coins have them tell of events and where they name the key."""

from typing import Final

from privateer_core.accounting.amplification import amplified_local_epsilon
from privateer_core.mechanisms.event_symbol import EventSymbol
from privateer_core.primitives.public_coins import Layout
from privateer_lab.audit.case import Case, MechanismPart
from privateer_lab.audit.mechanisms.keyed import ELSEWHERE, PAIRS, maker, symbol_part
from privateer_lab.audit.views import Target, batches, mechanism_case, reports

_LAYOUT: Final = Layout.small()
_DELTA, _BATCH, _LOCAL_MAX = 0.1, 100, 12.0
_OF_EVENTS, _OF_NAMES = Layout.ungrouped(3, 5), Layout.ungrouped(3, 11)
"""Rounds in which the coins of a part's people have them tell of events, and name their keys."""


def event_cases(samples: int) -> list[Case]:
    """Return all attacks on event symbols, each with the companions that hide a person least."""
    local = amplified_local_epsilon(1.0, _DELTA, _LAYOUT.keys + 1, _BATCH, _LOCAL_MAX)
    alone, shuffled, others = EventSymbol(_LAYOUT, 3.0), EventSymbol(_LAYOUT, local), maker((2, 0.0))
    found = []
    for pair, (left, right) in PAIRS.items():
        both = maker(left), maker(right)
        target = Target(alone, both)
        found.append(mechanism_case(f"events, {pair}", reports, target, (alone.epsilon, 0.0), 2 * samples))
        target, count = Target(shuffled, both, others, _BATCH), max(2000, samples // 4)
        found.append(mechanism_case(f"batches of events, {pair}", batches, target, (1.0, _DELTA), count))
    return found


def event_parts() -> list[MechanismPart]:
    """Return the symbols of the two kinds of coins as parts."""
    return [
        symbol_part("the symbol of an event", EventSymbol(_OF_EVENTS, 2.0), ((0, 1.0), (0, 0.0))),
        symbol_part("the symbol of people without an event", EventSymbol(_OF_EVENTS, 1.0), ((0, 0.0), (1, 1.0))),
        symbol_part("the symbol that names a key", EventSymbol(_OF_NAMES, 2.0), ELSEWHERE),
    ]
