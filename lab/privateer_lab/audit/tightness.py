"""Tightness: how near each bound is to the largest delta of a known attack, and why some are not near."""

import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from privateer_core.accounting.accountant import account
from privateer_core.accounting.allotment import allot, allotted_local_epsilon
from privateer_core.accounting.amplification import amplified_local_epsilon
from privateer_core.accounting.events import (
    Event,
    GroupedResponse,
    Parallel,
    Repeated,
    ShuffledResponse,
    ShuffledSubset,
)
from privateer_core.accounting.grouped_bits import grouped_local_epsilon
from privateer_core.accounting.numerics import largest_local_epsilon
from privateer_lab.audit.crowds import crowd_delta, group_delta, lemma_delta

NEAR: Final = 1.01
"""A bound is near if its epsilon is at most this many times one that an attack refutes."""
CASE: Final = ("batch_size", "symbols", "reports", "share")
"""Columns that say what a row of `tightness` is about."""
_RESOLUTION: Final = 1e-3
_SLACK_MIN: Final = 1e-15


class Gap(NamedTuple):
    """A reason why an epsilon is not near the truth."""

    name: str  # name of the gap
    applies: Callable[[Any], bool]  # whether a bound of an event has it
    max_ratio: float  # largest ratio of the epsilon to one that an attack refutes, at the promised delta
    reason: str  # why the bound is no better
    remedy: str  # what would close the gap


GAPS: Final = (
    Gap(
        "a symbol of two",
        lambda event: isinstance(event, ShuffledResponse) and event.symbols == 2,
        1.45,
        "coins change the bit, and then only the blanket is proved",
        "a proof that no coins are worse than the worst crowd of bits",
    ),
    Gap(
        "a small blanket",
        lambda event: isinstance(event, ShuffledResponse | ShuffledSubset) and _mean_blanket(event) < 100,
        1.12,
        "the lemma shows which of the others' reports are their own symbols, which hide a participant, too",
        "the worst crowd of three symbols or more",
    ),
    Gap(
        "an arm group",
        lambda event: isinstance(event, GroupedResponse),
        1.12,
        "the number of people in a group is rounded down, and the known attack has a crowd with one bit",
        "more sizes, which take longer, or a proof that delta is convex in the size; the worst crowd's attack",
    ),
    Gap(
        "several reports",
        lambda event: isinstance(event, Repeated),
        1.5,
        "the budget of a report is a curve of normal noise, as rounds may differ; worst for two reports at epsilon 4",
        "a budget with the curve of the smallest batch's own symbol",
    ),
)
"""All bounds of shuffled messages that are not near, the first that applies."""


def _mean_blanket(event: ShuffledResponse | ShuffledSubset) -> float:
    """Return the mean number of messages that are uniform whatever the record says."""
    symbols = event.symbols / event.own if isinstance(event, ShuffledSubset) else event.symbols
    return event.honest * symbols / (math.exp(event.local_epsilon) + symbols - 1)


def find_gap(event: Event) -> Gap | None:
    """Return the reason why the bound of an event, or of one of its parts, is not near; None if it is."""
    parts = event.events if isinstance(event, Parallel) else (event,)
    return next((gap for gap in GAPS if any(map(gap.applies, parts))), None)


def attacked_delta(event: Event, epsilon: float) -> float | None:
    """Return the largest delta at ``epsilon`` of an event that is known to be possible; None if no attack is known.

    It is the delta of a crowd for shuffled responses, the lemma's where no crowd is known, and an exact curve's.
    """
    match event:
        case ShuffledResponse(local_epsilon, symbols, honest):
            return crowd_delta(epsilon, local_epsilon, symbols, honest)
        case ShuffledSubset(local_epsilon, symbols, n_own, honest):
            compute_delta = crowd_delta if symbols >= 3 * n_own else lemma_delta
            return compute_delta(epsilon, local_epsilon, symbols / n_own, honest)
        case GroupedResponse(local_epsilon, honest, share):
            return group_delta(epsilon, local_epsilon, honest, share)
        case Parallel(events):
            deltas = [attacked_delta(part, epsilon) for part in events]
            return max((delta for delta in deltas if delta is not None), default=None)
    curve = account(event)
    return curve.delta(epsilon) if curve.exact else None


def tightness(
    promise: tuple[float, float], batch: int, symbols: int, limit: float, reports: int = 1, share: float | None = None
) -> dict[str, float]:
    """Compare local epsilons of a report: allowed, that of the lemma without rounding, and too large.

    promise: epsilon and delta of all reports together.
    batch, symbols, limit: as of `amplified_local_epsilon`.
    reports: number of a participant's reports that share the promise.
    share: probability of a participant's arm group, for bits in groups; else None.

    Returns ``allowed``, ``lemma`` and ``never_above``, local epsilons: above the last, the delta of a crowd exceeds the
    promise; and ``variance``, that of a mean of reports at the first over that at the last: what a perfect proof could
    still save at most. For several reports the lemma is composed, and no crowd is; for an arm group it is that of the
    group's mean size.
    """
    epsilon, delta = promise

    def search(compute_delta: Callable[[float], float], min_epsilon: float) -> float:
        return largest_local_epsilon(compute_delta, delta, min(min_epsilon, limit), limit, _RESOLUTION)

    if share is not None:
        allowed = grouped_local_epsilon(epsilon, delta, batch, limit, share)
        lemma = search(lambda local: lemma_delta(epsilon, local, 2, max(1, int(share * batch))), epsilon)
        never_above = search(lambda local: group_delta(epsilon, local, batch, share), allowed)
    elif reports > 1:
        allowed = allotted_local_epsilon(allot(epsilon, delta, reports, _SLACK_MIN), symbols, batch, limit)
        lemma = search(lambda local: _composed_delta(local, symbols, batch, reports, epsilon), allowed)
        never_above = lemma
    else:
        allowed = amplified_local_epsilon(epsilon, delta, symbols, batch, limit)
        lemma = search(lambda local: lemma_delta(epsilon, local, symbols, batch), epsilon)
        never_above = search(lambda local: crowd_delta(epsilon, local, symbols, batch), allowed)
    gains = [math.expm1(local) / (math.exp(local) + symbols - 1) for local in (allowed, never_above)]
    row = dict(zip(CASE, (batch, symbols, reports, share), strict=True))
    compared = {"allowed": allowed, "lemma": lemma, "never_above": never_above, "variance": (gains[1] / gains[0]) ** 2}
    return {key: value for key, value in (row | compared).items() if value is not None}


def _composed_delta(local_epsilon: float, symbols: int, batch: int, reports: int, epsilon: float) -> float:
    """Return delta of all reports, each with the curve of the privacy blanket."""
    return account(Repeated(ShuffledResponse(local_epsilon, symbols, batch), reports)).delta(epsilon)
