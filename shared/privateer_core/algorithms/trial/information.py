"""How much a report tells of each segment, by which layouts of a report are chosen."""

import numpy as np

from privateer_core.coins import SlotLayout
from privateer_core.mechanisms.named_symbol import NamedSymbol
from privateer_core.questions import KeyedHits


def informed(segments: int, answers: int, epsilon: float) -> float:
    """Return the information about each of equal segments in a report that names one of so many answers beside it.

    With q what randomized response keeps, v the probability of a hit and o that of another's symbol: q^2 / v, and v is
    q / J + 2 o a for J segments by a answers. Reports that deal J segments to H buckets hit each with v = 1/H, and have
    no answers beside it: 0.
    """
    mechanism = _calibrated(segments * answers, epsilon)
    q, o = mechanism.response.gain, mechanism.response.other
    if not mechanism.named:
        return 0.0 if answers > 1 else q**2 * mechanism.buckets
    return q**2 / (q / segments + 2 * o * answers)


def multiplied(segments: int, epsilon: float, share: float) -> float:
    """Return by how much the information about the average grows if a share of the people is asked about everybody.

    Where reports deal J segments to H buckets, the sum of J contributions is told with H q^2 / J. An answer about
    everybody hits its own bucket with v = q + 2 o, and tells q^2 / v. Both together: 1 + share * (J / (H v) - 1).
    """
    mechanism = _calibrated(segments + 1, epsilon)
    hit = mechanism.response.gain + 2 * mechanism.response.other
    return 1 + share * (segments / (mechanism.buckets * hit) - 1)


def _calibrated(keys: int, epsilon: float) -> NamedSymbol:
    return NamedSymbol.calibrated(KeyedHits(SlotLayout(0, np.zeros((keys, 0), np.uint32))), epsilon)
