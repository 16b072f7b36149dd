"""What simulated people accept: any terms that are what they say."""

import math
from collections.abc import Callable
from typing import Final, TypeAlias

from privateer.verification import Limits

LIMITS: Final = Limits(
    epsilon=math.inf,
    delta=0.5,
    local_epsilon=16.0,
    honest_fraction=1.0,
    min_batch=100,
    arms="hidden",
    curator=True,
)
Progress: TypeAlias = Callable[[int], None]
"""Is told how many people more have taken part."""
