"""The terms of a round: how a report is randomized, and what that promises."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from privateer.accounting.amplification import amplified_local_epsilon
from privateer.accounting.curator import curator_standard_deviation
from privateer.errors import SpecError
from privateer.experiment import Model, Privacy
from privateer.sampling.response import RandomizedResponse

_BUCKETS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_SHARES: Final = (1.0, 0.7, 0.5, 0.35, 0.25, 0.125, 0.0625, 0.03, 0.015)


@dataclass(frozen=True)
class Terms:
    """Everything a device needs to randomize a report and to check what it costs.

    Attributes
    ----------
    model, epsilon, delta
        The promise to a person under the trust model.
    batch, honest
        Reports of the round, and how many of them the amplification counts on (0: none, no amplification).
    mechanism
        ``signed-symbol`` (local and shuffle), ``laplace`` (published), ``gaussian`` (central) or ``none``.
    local_epsilon
        Pure local privacy of one report: the promise if everybody else colludes; infinite where records are sent.
    buckets, elsewhere
        Alphabet of the signed symbol.
    deviation
        Of the noise that a curator adds to a release, in scores (values scaled to [-1, 1]).
    arm_in_key
        Whether a report's key is a bin and an arm, with coins drawn for the report alone. Otherwise the key is a bin,
        and the coins that chose the arm travel with the report.
    """

    model: Model
    epsilon: float
    delta: float
    batch: int
    honest: int
    mechanism: Literal["signed-symbol", "laplace", "gaussian", "none"]
    local_epsilon: float
    buckets: int
    elsewhere: bool
    standard_deviation: float = 0.0
    arm_in_key: bool = False

    @property
    def messages(self) -> int:
        """Messages of one person."""
        return 1

    @property
    def symbols(self) -> int:
        """Size of the alphabet."""
        return 2 * self.buckets + self.elsewhere


def honest_count(privacy: Privacy, batch: int) -> int:
    """Reports of a batch that amplification counts on, rounded down to three digits so that calibrations recur."""
    count = math.floor(privacy.honest_fraction * batch)
    step = int(10 ** max(0, len(str(count)) - 3))
    return count // step * step


def calibrate(privacy: Privacy, batch: int, undecided: float, key_share: float) -> Terms:
    """The most informative terms that keep the promise.

    Parameters
    ----------
    privacy
        Of the spec.
    batch
        Reports of the round.
    undecided
        Share of people expected to have a key, in [0, 1].
    key_share
        Share of people expected to have a typical key.

    Raises
    ------
    SpecError
        If no local epsilon reaches the promise with this batch.
    """
    epsilon, delta = privacy.bound, privacy.delta
    if privacy.calibration == "published":
        return Terms("local", epsilon, 0.0, batch, 0, "laplace", epsilon, 1, False)
    if privacy.model == "none":
        return Terms("none", epsilon, 0.0, batch, 0, "none", math.inf, 1, False)
    if privacy.model == "central":
        standard_deviation = curator_standard_deviation(epsilon, delta)
        return Terms(
            "central", epsilon, delta, batch, 0, "gaussian", math.inf, 1, False, standard_deviation, privacy.arm_in_key
        )
    honest = honest_count(privacy, batch) if privacy.model == "shuffle" else 0
    if privacy.model == "shuffle" and honest < 1:
        raise SpecError("no report of a batch is assumed honest", field="privacy.honest_fraction", remedy="raise it")
    local_epsilon, buckets, elsewhere = _best(
        epsilon, delta, honest, privacy.local_epsilon_max, _coarse(undecided), _coarse(key_share)
    )
    return Terms(
        model=privacy.model,
        epsilon=epsilon,
        delta=delta,
        batch=batch,
        honest=honest,
        mechanism="signed-symbol",
        local_epsilon=local_epsilon,
        buckets=buckets,
        elsewhere=elsewhere,
        arm_in_key=privacy.arm_in_key,
    )


def information(local_epsilon: float, buckets: int, elsewhere: bool, undecided: float, key_share: float) -> float:
    """Squared gain over variance of one report's score at a key: what one person tells about one key."""
    response = RandomizedResponse(local_epsilon, 2 * buckets + elsewhere)
    own = response.truth + response.other
    same_bucket = own / buckets + 2 * response.other * (1 - 1 / buckets)
    without = 2 * response.other if elsewhere else 1 / buckets
    variance = key_share * own + max(0.0, undecided - key_share) * same_bucket + (1 - undecided) * without
    return response.gain**2 / variance


def _coarse(share: float) -> float:
    """A share rounded up to a few values, so that calibrations recur from round to round."""
    return min((value for value in _SHARES if value >= share), default=1.0)


@lru_cache(maxsize=4096)
def _best(
    epsilon: float, delta: float, honest: int, limit: float, undecided: float, key_share: float
) -> tuple[float, int, bool]:
    best, chosen = 0.0, (epsilon, 1, False)
    for elsewhere in (False, True) if undecided < 1 else (False,):
        previous = 0.0
        for buckets in _BUCKETS:
            local = (
                amplified_local_epsilon(epsilon, delta, 2 * buckets + elsewhere, honest, limit) if honest else epsilon
            )
            value = information(local, buckets, elsewhere, undecided, key_share)
            if value > best:
                best, chosen = value, (local, buckets, elsewhere)
            if value < previous:
                break
            previous = value
    return chosen
