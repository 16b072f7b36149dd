"""The least batches that let reports cost more by themselves than the promise, so that they tell more."""

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

from privateer_core.accounting.amplification import shuffled_delta
from privateer_core.accounting.events import ShuffledResponse
from privateer_core.privacy.terms import allotment_of
from privateer_core.privacy.trust import BATCH_MIN, honest_people
from privateer_core.spec.privacy import BATCH_MAX, Privacy
from privateer_core.spec.spec import Spec
from privateer_lab.planning.plans import Variant

_DELTA: Final = 1e-6


@lru_cache(maxsize=256)
def smallest_batch(privacy: Privacy, epsilon: float, local_epsilon: float, reports: int = 1) -> int | None:
    """Return the smallest batch with which reports of ``local_epsilon`` each keep a promise of ``epsilon`` shuffled.

    So many ``reports`` of a person share the promise. None if no batch that a spec may name is large enough. The number
    is for reports of two symbols, which need the most (docs/privacy.md): larger alphabets, and symbols of vectors, need
    fewer.
    """
    delta = privacy.delta or _DELTA
    share = allotment_of(privacy.trust, epsilon, delta, reports)

    def enough(batch: int) -> bool:
        honest = honest_people(privacy, batch)
        if share is not None and honest:
            return share.covers(ShuffledResponse(local_epsilon, 2, honest))
        return honest > 0 and shuffled_delta(epsilon, local_epsilon, 2, honest) <= delta

    low, high = BATCH_MIN - 1, BATCH_MIN
    while not enough(high):
        if high == BATCH_MAX:
            return None
        low, high = high, min(4 * high, BATCH_MAX)
    while high - low > max(1, low // 1000):
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def batches(wanted: Iterable[Variant]) -> list[dict[str, Any]]:
    """Return, for each promise about a batch, the least ``min_batch`` that doubles a report's epsilon, and at its most.

    Without a batch it would be the promise's, shared by all reports of a person.
    Reports without an epsilon of their own are left out: they are private in a batch of any size or in none.
    """
    return [_batches(one.spec.privacy, one.epsilon, one.spec.reports) for one in wanted if _amplified(one.spec)]


def _amplified(spec: Spec) -> bool:
    terms = spec.planned("")
    return terms is not None and terms.trust.batched and math.isfinite(terms.mechanism.local_epsilon)


def _batches(privacy: Privacy, epsilon: float, reports: int) -> dict[str, Any]:
    limit, double = privacy.local_epsilon_max, 2 * epsilon / reports
    return {
        "epsilon": epsilon,
        "delta": privacy.delta,
        "min_batch_to_double": smallest_batch(privacy, epsilon, double, reports) if double <= limit else None,
        "local_epsilon_max": limit,
        "min_batch_at_max": smallest_batch(privacy, epsilon, limit, reports),
    }
