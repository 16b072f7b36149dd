"""How a device checks the terms of a round: it computes everything anew, and never trusts the server's numbers."""

import math
from dataclasses import dataclass
from typing import Any, Final, Literal

from privateer.accounting.amplification import shuffled_delta
from privateer.accounting.curator import curator_delta
from privateer.errors import TermsRefused
from privateer.experiment import Privacy
from privateer.sampling.response import SYMBOLS_MAX
from privateer.terms import Terms, honest_count

_BATCH_MAX: Final = 100_000_000
_REMEDY: Final = "do not take part"


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
    arms
        ``seen``: somebody who gets reports, or reads releases, may see which arm this person got. ``hidden``: nobody
        does, so promises that count on it are accepted.
    curator
        Whether records may be sent to the server as they are, for it to protect (``central``) or not (``none``, which
        takes an infinite ``epsilon`` as well).
    """

    epsilon: float = 1.0
    delta: float = 1e-5
    local_epsilon: float = 4.0
    honest_fraction: float = 0.9
    min_batch: int = 1000
    arms: Literal["seen", "hidden"] = "seen"
    curator: bool = False


def verify(terms: Terms, privacy: Privacy, batch: int, limits: Limits) -> None:
    """Refuse terms that miss the spec's promise or the device's limits, computing both anew from the parameters alone.

    Raises
    ------
    TermsRefused
        Naming what is missed; states promised and allowed.
    """
    _agree(terms, privacy, batch)
    if terms.model in ("shuffle", "central") and privacy.arms == "hidden" and limits.arms != "hidden":
        raise TermsRefused(
            "the promise counts on nobody seeing which arm a person got",
            field="arms",
            remedy="do not take part, or Limits(arms='hidden') if nobody sees it",
        )
    afford(terms.model, (terms.epsilon, terms.delta, terms.local_epsilon), limits)
    _CHECKS[terms.model](terms, privacy, batch, limits)


def promised(privacy: Privacy, batch: int) -> dict[str, Any]:
    """What the terms of a round of ``batch`` people must say, by the spec alone."""
    trusted = {"central": "gaussian", "none": "none"}
    tight = trusted.get(privacy.model, "signed-symbol")
    told: dict[str, Any] = {
        "model": privacy.model,
        "epsilon": privacy.bound,
        "delta": privacy.delta,
        "batch": batch,
        "honest": honest_count(privacy, batch) if privacy.model == "shuffle" else 0,
        "mechanism": "laplace" if privacy.calibration == "published" else tight,
        "arm_in_key": privacy.arm_in_key,
    }
    # Where records are sent nothing is left if everybody else colludes.
    return told | ({"local_epsilon": math.inf} if privacy.model in trusted else {})


def _agree(terms: Terms, privacy: Privacy, batch: int) -> None:
    """The terms are those of the spec."""
    for name, value in promised(privacy, batch).items():
        if getattr(terms, name) != value:
            raise TermsRefused("the terms differ from the experiment's spec", field=name, remedy=_REMEDY)
    if not (terms.buckets >= 1 and 2 <= terms.symbols <= SYMBOLS_MAX and terms.local_epsilon > 0):
        raise TermsRefused("no such randomizer", field="buckets", remedy=_REMEDY)


def afford(model: str, costs: tuple[float, float, float], limits: Limits) -> None:
    """Refuse a promise, of epsilon, delta and local epsilon, that is beyond the device's limits.

    Raises
    ------
    TermsRefused
        Naming what costs too much.
    """
    trusts = model in ("central", "none")
    if trusts and not limits.curator:
        raise TermsRefused(
            f"under the model '{model}' the server sees records, and this device does not allow that",
            field="model",
            remedy="do not take part, or Limits(curator=True) if the server may see them",
        )
    names = ("epsilon", "delta") if trusts else ("epsilon", "delta", "local_epsilon")
    for name, value in zip(names, costs, strict=False):
        limit = getattr(limits, name)
        if not value <= limit:
            raise TermsRefused(
                f"costs {value:g}, this device allows {limit:g}", field=name, remedy="do not take part, or allow more"
            )


def _check_local(terms: Terms, privacy: Privacy, _batch: int, _limits: Limits) -> None:
    if not terms.local_epsilon <= privacy.bound:
        raise TermsRefused("a report costs more than promised", field="local_epsilon", remedy=_REMEDY)


def _check_shuffle(terms: Terms, privacy: Privacy, batch: int, limits: Limits) -> None:
    if batch < privacy.min_batch or terms.local_epsilon > privacy.local_epsilon_max:
        raise TermsRefused("below the spec's min_batch or above its local_epsilon_max", field="batch", remedy=_REMEDY)
    believable(privacy.honest_fraction, batch, limits)
    delta = shuffled_delta(terms.epsilon, terms.local_epsilon, terms.symbols, terms.honest)
    if not delta <= terms.delta:
        raise TermsRefused(
            f"the batch gives delta {delta:.3g}, promised is {terms.delta:g}", field="delta", remedy=_REMEDY
        )


def _check_central(terms: Terms, _privacy: Privacy, _batch: int, _limits: Limits) -> None:
    if not (terms.standard_deviation > 0 and math.isfinite(terms.standard_deviation)):
        raise TermsRefused("no such noise", field="standard_deviation", remedy=_REMEDY)
    delta = curator_delta(terms.epsilon, terms.standard_deviation)
    if not delta <= terms.delta:
        raise TermsRefused(
            f"the noise gives delta {delta:.3g}, promised is {terms.delta:g}", field="delta", remedy=_REMEDY
        )


def _check_none(_terms: Terms, _privacy: Privacy, _batch: int, _limits: Limits) -> None:
    """Nothing is promised."""


_CHECKS: Final = {
    "local": _check_local,
    "shuffle": _check_shuffle,
    "central": _check_central,
    "none": _check_none,
}


def believable(honest_fraction: float, fewest: int, limits: Limits) -> None:
    """Refuse what the promise assumes of other people if the device does not: the server cannot claim it.

    Raises
    ------
    TermsRefused
        If it counts on too large a share, or on a batch, of ``fewest`` reports at least, that is too small or absurd.
    """
    if not honest_fraction <= limits.honest_fraction:
        raise TermsRefused(
            f"counts on {honest_fraction:g} of a batch, this device on {limits.honest_fraction:g}",
            field="honest_fraction",
            remedy="do not take part",
        )
    if not limits.min_batch <= fewest <= _BATCH_MAX:
        raise TermsRefused(
            f"a batch of {fewest}, this device takes {limits.min_batch} to {_BATCH_MAX}",
            field="batch",
            remedy="do not take part",
        )
