"""Attacks on bits of groups, shuffled before an adversary who sees everybody's arm; alone they are parts."""

from dataclasses import replace
from typing import Final

import numpy as np

from privateer_core.mechanisms.grouped_bit import GroupedBit
from privateer_core.primitives.public_coins import Layout
from privateer_core.primitives.questions import KeyedMeans
from privateer_lab.audit.case import Case, MechanismPart
from privateer_lab.audit.mechanisms.keyed import maker, symbol_part
from privateer_lab.audit.views import Target, batches, mechanism_case, model_of

LAYOUT: Final = Layout(5, np.array([[13_107, 45_875]], np.uint32))
"""Three arms, of a fifth, a half and three tenths of the coins."""
_OPPOSITE, _NOTHING = ((0, 1.0), (0, 0.0)), ((0, 1.0), (-1, 0.0))
_DELTA, _BATCH, _LOCAL_MAX = 0.1, 100, 12.0


def group_cases(samples: int) -> list[Case]:
    """Return attacks on a batch from every arm, with the companions that hide a person least."""
    shuffled = GroupedBit.amplified(KeyedMeans(LAYOUT, seen=True), 1.0, _DELTA, _BATCH, _LOCAL_MAX)
    found, others = [], maker((0, 0.0), LAYOUT)
    for what, (left, right) in {"opposite rewards": _OPPOSITE, "nothing to tell": _NOTHING}.items():
        both, count = (maker(left, LAYOUT), maker(right, LAYOUT)), max(2000, samples // 4)
        for arm in range(LAYOUT.groups):
            target = Target(shuffled, both, others, _BATCH, arm)
            name = f"batches whose arms are seen, arm {arm}, {what}"
            found.append(mechanism_case(name, batches, target, (1.0, _DELTA), count))
    return found


def group_parts() -> list[MechanismPart]:
    """Return the bit of a person, and that of somebody with nothing to tell, as parts."""
    one = GroupedBit(LAYOUT, (2.0, 2.0, 2.0))
    found = [
        symbol_part("the bit of a group", one, _OPPOSITE),
        symbol_part("the bit of people without a value", one, _NOTHING),
    ]
    return [replace(part, model=model_of(batches)) for part in found]
