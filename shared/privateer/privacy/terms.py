"""The terms of a round: how a report is randomized, what that promises, and how a device checks it."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from privateer.errors import SpecError, TermsRefused
from privateer.experiment import Privacy
from privateer.privacy.amplification import amplified_local_epsilon, shuffled_delta
from privateer.privacy.response import SYMBOLS_MAX, RandomizedResponse

_BUCKETS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_BATCH_MAX: Final = 100_000_000
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
        ``signed-symbol`` (tight) or ``laplace`` (published).
    local_epsilon
        Pure local privacy of one report: the promise if shuffler and server collude.
    buckets, elsewhere
        Alphabet of the signed symbol.
    """

    model: Literal["local", "shuffle"]
    epsilon: float
    delta: float
    batch: int
    honest: int
    mechanism: Literal["signed-symbol", "laplace"]
    local_epsilon: float
    buckets: int
    elsewhere: bool

    @property
    def symbols(self) -> int:
        """Size of the alphabet."""
        return 2 * self.buckets + self.elsewhere


@dataclass(frozen=True)
class Limits:
    """What a device accepts, set by the application and never by a server.

    Attributes
    ----------
    epsilon, delta
        The most that one contribution may cost under the experiment's trust model.
    local_epsilon
        The most that it may cost if everybody else colludes.
    honest_fraction, min_batch
        Under shuffle, the largest share of a batch that the promise may count on, and the fewest reports of a batch.
    """

    epsilon: float = 1.0
    delta: float = 1e-5
    local_epsilon: float = 6.0
    honest_fraction: float = 0.9
    min_batch: int = 1000


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
    if privacy.calibration == "published":
        return Terms("local", privacy.epsilon, 0.0, batch, 0, "laplace", privacy.epsilon, 1, False)
    honest = honest_count(privacy, batch) if privacy.model == "shuffle" else 0
    if privacy.model == "shuffle" and honest < 1:
        raise SpecError("no report of a batch is assumed honest", field="privacy.honest_fraction", remedy="raise it")
    local_epsilon, buckets, elsewhere = _best(
        privacy.epsilon, privacy.delta, honest, privacy.local_epsilon_max, _coarse(undecided), _coarse(key_share)
    )
    return Terms(
        privacy.model, privacy.epsilon, privacy.delta, batch, honest, "signed-symbol", local_epsilon, buckets, elsewhere
    )


def verify(terms: Terms, privacy: Privacy, batch: int, limits: Limits) -> None:
    """Refuse terms that miss the spec's promise or the device's limits, computing both anew from the parameters alone.

    Raises
    ------
    TermsRefused
        Naming what is missed; states promised and allowed.
    """
    _agree(terms, privacy, batch)
    if privacy.model == "shuffle":
        _believable(privacy, batch, limits)
    for name, value, limit in (
        ("epsilon", terms.epsilon, limits.epsilon),
        ("delta", terms.delta, limits.delta),
        ("local_epsilon", terms.local_epsilon, limits.local_epsilon),
    ):
        if not value <= limit:
            raise TermsRefused(f"costs {value:g}, this device allows {limit:g}", field=name, remedy="do not take part")
    if terms.model == "local" and not terms.local_epsilon <= terms.epsilon:
        raise TermsRefused("a report costs more than the promise", field="local_epsilon", remedy="do not take part")
    if terms.model == "shuffle":
        delta = shuffled_delta(terms.epsilon, terms.local_epsilon, terms.symbols, terms.honest)
        if terms.local_epsilon > terms.epsilon and not delta <= terms.delta:
            raise TermsRefused(
                f"{terms.honest} honest reports reach delta {delta:.3g}, not the promised {terms.delta:g}",
                field="delta",
                remedy="do not take part",
            )


def _believable(privacy: Privacy, batch: int, limits: Limits) -> None:
    """What the promise assumes of other people is the device's to believe, not the server's to claim."""
    if not privacy.honest_fraction <= limits.honest_fraction:
        raise TermsRefused(
            f"counts on {privacy.honest_fraction:g} of a batch, this device on {limits.honest_fraction:g}",
            field="honest_fraction",
            remedy="do not take part",
        )
    if not limits.min_batch <= batch <= _BATCH_MAX:
        raise TermsRefused(
            f"a batch of {batch}, this device takes {limits.min_batch} to {_BATCH_MAX}",
            field="batch",
            remedy="do not take part",
        )


def _agree(terms: Terms, privacy: Privacy, batch: int) -> None:
    expected = {
        "model": privacy.model,
        "epsilon": privacy.epsilon,
        "delta": privacy.delta,
        "batch": batch,
        "honest": honest_count(privacy, batch) if privacy.model == "shuffle" else 0,
        "mechanism": "laplace" if privacy.calibration == "published" else "signed-symbol",
    }
    for name, value in expected.items():
        if getattr(terms, name) != value:
            raise TermsRefused("the terms differ from the experiment's spec", field=name, remedy="do not take part")
    if privacy.model == "shuffle" and (batch < privacy.min_batch or terms.local_epsilon > privacy.local_epsilon_max):
        raise TermsRefused("below the spec's min_batch or above its local_epsilon_max", field="batch")
    if not (terms.buckets >= 1 and 2 <= terms.symbols <= SYMBOLS_MAX and terms.local_epsilon > 0):
        raise TermsRefused("no such randomizer", field="buckets", remedy="do not take part")


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
