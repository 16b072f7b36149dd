"""How the coins of a bin are shared out over its arms."""

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from privateer_core.coins import UNIT

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(16)


def best_probabilities(
    mean: NDArray[np.float64], standard_deviation: NDArray[np.float64], active: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """The probability that each arm's independent normal draw is the largest, shape (bins, arms); rows sum to 1."""
    draws = mean[:, :, None] + standard_deviation[:, :, None] * _NODES[None, None, :]
    below = np.ones_like(draws)
    for rival in range(mean.shape[1]):
        beaten = ndtr((draws - mean[:, rival, None, None]) / standard_deviation[:, rival, None, None])
        beaten[:, rival] = 1.0
        below *= np.where(active[:, rival, None, None], beaten, 1.0)
    probabilities = (below @ _WEIGHTS) * active
    return np.asarray(probabilities / probabilities.sum(axis=1, keepdims=True))


def thompson_draw(
    mean: NDArray[np.float64],
    standard_deviation: NDArray[np.float64],
    active: NDArray[np.bool_],
    wholes: NDArray[np.int64],
    seed: int,
) -> NDArray[np.float64]:
    """Draw one arm for each bin by Thompson sampling; return shares of 1 for it and of 0 for all others, (bins, arms).

    The draw costs no privacy and hides nothing: beliefs come from releases, and the policy that shows it is public.

    Parameters
    ----------
    mean, standard_deviation, active
        Shape (bins, arms), as in `best_probabilities`: the probability of each arm is the one given there.
    wholes
        Shape (bins,): bins that are parts of the same whole share their normal variables, and differ by their means.
    seed
        The seed of the round.
    """
    normal = np.random.default_rng(seed).standard_normal((int(wholes.max(initial=-1)) + 1, mean.shape[1]))
    draws = np.where(active, mean + standard_deviation * normal[wholes], -np.inf)
    return np.asarray(np.arange(mean.shape[1]) == draws.argmax(axis=1)[:, None], np.float64)


def thresholds(shares: NDArray[np.float64], active: NDArray[np.bool_]) -> NDArray[np.uint32]:
    """Slot thresholds of a layout, (bins, arms - 1), for shares (bins, arms), 0 for arms that are not active."""
    edges = np.rint(np.cumsum(shares, axis=1)[:, :-1] * UNIT).astype(np.uint32)
    # Rounding must not leave coins to a dropped last arm.
    last = active.shape[1] - 1 - active[:, ::-1].argmax(axis=1)
    return np.where(np.arange(active.shape[1] - 1)[None, :] >= last[:, None], np.uint32(UNIT), edges)
