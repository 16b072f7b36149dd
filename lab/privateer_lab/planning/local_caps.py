"""Caps on the epsilon of a shuffled report by itself: the people that each takes, and what it means under collusion."""

import math
from collections.abc import Iterable
from typing import Final

import msgspec

from privateer_core.privacy.order import change_promise, is_capped, terms_information
from privateer_core.privacy.trust import LOCAL_EPSILON_MAX, default_local_epsilon
from privateer_core.spec.spec import Spec

CAPS: Final = (4.0, 6.0, 8.0)
"""The caps that a plan compares."""
_COLLUSION_EPSILON_MAX: Final = 6.0
"""Largest cap that a draft chooses: shuffler and server together then guess right 399 times in 400."""
_PEOPLE_RATIO_MAX: Final = 1.05
"""Largest ratio of a draft's people to those of that cap."""


class LocalCap(msgspec.Struct, frozen=True):
    """A cap, with its effect in the largest round."""

    local_epsilon_max: float
    people_per_round: int
    # local_epsilon: epsilon of all reports of a participant without a batch: the batch may ask for less than the cap
    local_epsilon: float
    # people_ratio: people that equally narrow intervals take, over those with the spec's own cap
    people_ratio: float
    # correct_guess_max: largest probability with which shuffler and server together name a participant's record, of two
    # equally likely ones
    correct_guess_max: float


def guess_max(local_epsilon: float) -> float:
    """Return the largest probability of naming a participant's record from reports, of two equally likely records."""
    return 1 / (1 + math.exp(-local_epsilon))


def compare_caps(spec: Spec, caps: Iterable[float] = CAPS) -> list[LocalCap]:
    """Compare the spec's own cap with others, in ascending order; return no rows if a cap has no effect."""
    privacy, batch = spec.privacy, max(spec.extreme_batches, default=0)
    if not batch or not is_capped(spec):
        return []
    values = sorted({privacy.local_epsilon_max, *(cap for cap in caps if privacy.bound <= cap <= LOCAL_EPSILON_MAX)})
    rounds = [change_promise(spec, privacy.model_copy(update={"local_epsilon_max": cap}), batch) for cap in values]
    information = [float(terms_information(*pair, batch)) for pair in rounds]  # JSON takes no numpy numbers
    stated = information[values.index(privacy.local_epsilon_max)]
    costs = [terms.local_epsilon for _, terms in rounds]
    return [
        LocalCap(cap, batch, cost, stated / gained, guess_max(cost))
        for cap, cost, gained in zip(values, costs, information, strict=True)
    ]


def choose_cap(spec: Spec) -> LocalCap | None:
    """Return the smallest cap that takes hardly more people than what a collusion may cost; None if it is the default.

    Its ``people_ratio`` is to the people of the default.
    """
    default = default_local_epsilon(spec.privacy.model, spec.privacy.bound)
    privacy = spec.privacy.model_copy(update={"local_epsilon_max": default})
    steps = (default + step for step in range(1, math.floor(_COLLUSION_EPSILON_MAX - default) + 1))
    rows = compare_caps(spec.model_copy(update={"privacy": privacy}), steps)
    min_ratio = min((cap.people_ratio for cap in rows), default=1.0)
    chosen = next((cap for cap in rows if cap.people_ratio <= _PEOPLE_RATIO_MAX * min_ratio), None)
    return None if chosen is None or chosen.local_epsilon_max == default else chosen
