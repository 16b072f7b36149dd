"""How much a report tells of each segment, by which layouts of a report are chosen."""

import numpy as np

from privateer.coins import SlotLayout
from privateer.mechanisms.named_symbol import NamedSymbol
from privateer.questions import KeyedHits


def informed(segments: int, answers: int, epsilon: float) -> float:
    """Return the information about each of equal segments in a report that names one of so many answers beside it.

    With q what randomized response keeps, v the probability of a hit and o that of another's symbol: q^2 / v, and v is
    q / J + 2 o a for J segments by a answers. Reports that deal J segments to H buckets hit each with v = 1/H, and have
    no answers beside it: 0.
    """
    keys = segments * answers
    mechanism = NamedSymbol.calibrated(KeyedHits(SlotLayout(0, np.zeros((keys, 0), np.uint32))), epsilon)
    q, o = mechanism.response.gain, mechanism.response.other
    if not mechanism.named:
        return 0.0 if answers > 1 else q**2 * mechanism.buckets
    return q**2 / (q / segments + 2 * o * answers)
