"""What a trusted curator's releases cost: normal noise on sums of scores and on numbers of people."""

from functools import lru_cache
from typing import Final

from privateer.accounting.gaussian import gaussian_delta, gaussian_standard_deviation
from privateer.sampling.normal import sampling_cost

SENSITIVITY: Final = 2.0
"""L2 change of (sums of scores, people per key) when a person is replaced. A score moves from -1 to 1 in its cell,
by 2, or one cell and one key lose at most 1 each and others gain as much: sqrt(4)."""
RELEASED_MAX: Final = 1 << 20
"""Numbers in a release, at most."""
SAMPLING: Final = sampling_cost(RELEASED_MAX)
"""What drawing the noise adds to delta, in all."""


@lru_cache(maxsize=256)
def curator_standard_deviation(epsilon: float, delta: float) -> float:
    """Deviation of the noise, in scores, whose releases are (epsilon, delta)-private.

    Raises
    ------
    SpecError
        If ``delta`` is too small for what the sampler of the noise is certified for.
    """
    return gaussian_standard_deviation(epsilon, delta - SAMPLING, SENSITIVITY)


def curator_delta(epsilon: float, standard_deviation: float) -> float:
    """Delta at ``epsilon`` of a release with noise of this deviation, in scores."""
    return gaussian_delta(epsilon, standard_deviation, SENSITIVITY) + SAMPLING
