"""The accountant: it computes the curve of an event, delta for every epsilon, and names the proof."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from privateer_core.accounting.amplification import shuffled_delta
from privateer_core.accounting.binomial import shuffled_bits_delta
from privateer_core.accounting.clones import clones_delta
from privateer_core.accounting.events import (
    EPSILON_MAX,
    Approximate,
    Choice,
    Event,
    Gaussian,
    Laplace,
    Parallel,
    Pure,
    Repeated,
    Sequential,
    ShuffledBits,
    ShuffledMessage,
    ShuffledResponse,
    ShuffledSubset,
    check_event,
)
from privateer_core.accounting.gaussian import gaussian_delta
from privateer_core.accounting.loss import Composition, from_curve
from privateer_core.accounting.numerics import check
from privateer_core.errors import SpecError

_GRID: Final = 600
"""Grid points between 0 and the largest epsilon of a composed curve."""
_GRID_OF_MANY: Final = 150
"""The same where a part is the worst of many events, each with a curve to compute; it costs .1 % of delta."""
_EPSILON_DIGITS: Final = 1e-9
_GUESSED_DIGITS: Final = (1e-9, 1e-8, 1e-7)
"""What is added to a guess of an epsilon, relatively, until delta there proves small enough."""
_ROUNDING: Final = 1 + 1e-9
_BLANKET: Final = "privacy blanket (Balle, Bell, Gascon and Nissim, CRYPTO 2019, Lemma 5.3)"
_GROUPED: Final = "privacy blanket of arm groups (docs/privacy.md; Balle et al., CRYPTO 2019, Lemma 5.3)"
_LEAST: Final = 1e-9
"""Smallest epsilon for the bounds of shuffled messages, which do not hold at 0."""


@dataclass(frozen=True)
class Curve:
    """The privacy of an event.

    Attributes
    ----------
    exact
        Whether `delta` is exact (up to floating point, rounded up). Otherwise it is a certified upper bound.
    proof
        Why it holds.
    """

    exact: bool
    proof: str
    _delta: Callable[[float], float]
    _guess: Callable[[float], float | None] | None = None

    def delta(self, epsilon: float) -> float:
        """Return delta at ``epsilon``, at least 0.

        Raises
        ------
        SpecError
            If ``epsilon`` is out of range.
        """
        check("epsilon", epsilon, 0 <= epsilon <= EPSILON_MAX, f"0 to {EPSILON_MAX:g}")
        return self._delta(epsilon)

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon at ``delta``, rounded up, or infinity if no epsilon up to 64 reaches it.

        Raises
        ------
        SpecError
            If ``delta`` is not in [0, 1).
        """
        check("delta", delta, 0 <= delta < 1, "at least 0 and below 1")
        guess = self._guess(delta) if self._guess else None
        if guess and 0 < guess < EPSILON_MAX:
            for digits in _GUESSED_DIGITS:
                enough = min(guess + digits * max(1.0, guess), EPSILON_MAX)
                if self._delta(enough) <= delta:
                    return enough
        return self._searched(delta)

    def _searched(self, delta: float) -> float:
        if self._delta(0.0) <= delta:
            return 0.0
        if self._delta(EPSILON_MAX) > delta:
            return math.inf
        low, high = 0.0, EPSILON_MAX
        while high - low > _EPSILON_DIGITS * max(1.0, low):
            middle = (low + high) / 2
            low, high = (low, middle) if self._delta(middle) <= delta else (middle, high)
        return high


def account(event: Event) -> Curve:
    """Compute the curve of an event.

    Raises
    ------
    SpecError
        If anything in the event is unknown or out of range.
    """
    check_event(event)
    return _curve(event)


def _curve(event: Event) -> Curve:  # noqa: PLR0911 - one case for each kind of event
    match event:
        case Pure(epsilon):
            proof = "worst pair of pure epsilon: randomized response (Kairouz, Oh and Viswanath 2015)"
            return Curve(True, proof, lambda e: _pure_delta(e, epsilon))
        case Choice(epsilon):
            proof = "worst pair of a bounded range (Dong, Durfee and Rogers, ICML 2020)"
            return Curve(True, proof, lambda e: _choice_delta(e, epsilon))
        case Gaussian(standard_deviation, sensitivity):
            proof = "analytic Gaussian (Balle and Wang 2018, Theorem 8)"
            return Curve(
                True, proof, lambda e: min(1.0, _ROUNDING * gaussian_delta(e, standard_deviation, sensitivity))
            )
        case Laplace(scale, sensitivity):
            return Curve(
                True, "Laplace noise on one number, in closed form", lambda e: _laplace_delta(e, sensitivity / scale)
            )
        case ShuffledResponse(local_epsilon, symbols, honest, share):
            proof = _GROUPED if share < 1 else _BLANKET
            return Curve(False, proof, lambda e: _shuffled(shuffled_delta, e, local_epsilon, symbols, honest, share))
        case ShuffledSubset(local_epsilon, symbols, own, honest):
            proof = "privacy blanket of subset selection (docs/privacy.md; Balle et al., CRYPTO 2019, Lemma 5.3)"
            return Curve(False, proof, lambda e: _shuffled(shuffled_delta, e, local_epsilon, symbols / own, honest))
        case ShuffledMessage(local_epsilon, honest):
            proof = "clones (Feldman, McMillan and Talwar, FOCS 2021, Theorem 3.2)"
            return Curve(False, proof, lambda e: _shuffled(clones_delta, e, local_epsilon, honest))
        case ShuffledBits(trials, probability, levels, coordinates):
            proof = "binomial privacy loss distribution, losses shared out upwards"
            return Curve(False, proof, lambda e: shuffled_bits_delta(e, trials, probability, levels, coordinates))
        case Approximate(epsilon, delta):
            proof = "worst pair of (epsilon, delta) (Kairouz, Oh and Viswanath 2015)"
            return Curve(False, proof, lambda e: min(1.0, delta + (1 - delta) * _pure_delta(e, epsilon)))
        case Parallel(events):
            curves = [_curve(one) for one in events]
            proof = "parallel composition, the worst part counts: " + "; ".join(
                sorted({curve.proof for curve in curves})
            )
            return Curve(
                all(curve.exact for curve in curves),
                proof,
                lambda e: max(curve.delta(e) for curve in curves),
                lambda delta: max(curve.epsilon(delta) for curve in curves),
            )
        case Repeated(of, count):
            return _composed(_flattened(of) * count)
        case Sequential():
            return _composed(_flattened(event))
    raise SpecError("the kind of the event is not known", field="event", remedy="see docs/accounting.md")


def _shuffled(bound: Callable[..., float], epsilon: float, local_epsilon: float, *facts: float) -> float:
    """Evaluate a bound that holds above epsilon 0, and cap it by the promise of the message alone."""
    alone = _pure_delta(epsilon, local_epsilon)
    # A curve falls by at most as much as e^epsilon grows.
    below = math.expm1(_LEAST) if epsilon < _LEAST else 0.0
    return min(alone, bound(max(epsilon, _LEAST), local_epsilon, *facts) + below)


def _pure_delta(epsilon: float, pure: float) -> float:
    """Return delta of randomized response, which dominates everything of the same pure epsilon."""
    # (e^pure - e^epsilon)_+ / (e^pure + 1)
    return 0.0 if epsilon >= pure else min(1.0, _ROUNDING * -math.expm1(epsilon - pure) / (1 + math.exp(-pure)))


def _pure_inverse(delta: float, pure: float) -> float:
    """Return the epsilon at which `_pure_delta` is about ``delta``."""
    left = 1 - delta * (1 + math.exp(-pure))
    return pure + math.log(left) if left > 0 else 0.0


def _choice_delta(epsilon: float, width: float) -> float:
    """Return delta of a choice whose losses lie in [t - width, t], for the worst t in [0, width].

    With p = (e^width - e^t) / (e^width - 1) of the loss t, p (1 - e^(epsilon - t)) is largest at t = (epsilon +
    width) / 2.
    """
    if epsilon >= width:
        return 0.0
    return min(1.0, _ROUNDING * math.expm1((epsilon - width) / 2) ** 2 / -math.expm1(-width))


def _smaller(one: float, other: float | None) -> float | None:
    return None if other is None else min(one, other)


def _laplace_delta(epsilon: float, pure: float) -> float:
    return 0.0 if epsilon >= pure else _ROUNDING * -math.expm1((epsilon - pure) / 2)


def _flattened(event: Event) -> list[Event]:
    match event:
        case Sequential(events):
            return [leaf for one in events for leaf in _flattened(one)]
        case Repeated(of, count):
            return _flattened(of) * count
        case Parallel(events) if all(isinstance(one, Pure) for one in events):
            return [max(events, key=_pure_epsilon)]
        case Parallel(events) if all(isinstance(one, Gaussian) for one in events):
            return [max(events, key=_ratio)]
        case _:
            return [event]


def _composed(events: list[Event]) -> Curve:
    """Compose events adaptively; what fails with some probability is set apart, which loses nothing."""
    if len(events) == 1:
        return _curve(events[0])
    failing = -math.expm1(sum(math.log1p(-min(_failing(event), 1 - 1e-16)) for event in events))
    rest = _held([_without_failure(event) for event in events])
    if not failing:
        return rest

    def guess(delta: float) -> float | None:
        left = (delta - failing) / (1 - failing)
        return rest._guess(left) if rest._guess and left > 0 else None

    failing *= _ROUNDING
    proof = f"worst pair of (epsilon, delta) (Kairouz, Oh and Viswanath 2015); {rest.proof}"
    return Curve(False, proof, lambda e: min(1.0, failing + (1 - failing) * rest.delta(e)), guess)


def _failing(event: Event) -> float:
    return event.delta if isinstance(event, Approximate) else 0.0


def _without_failure(event: Event) -> Event:
    return Pure(event.epsilon) if isinstance(event, Approximate) else event


def _held(events: list[Event]) -> Curve:
    """Compose events that do not fail: exactly for normal noise, otherwise by loss distributions."""
    events = [event for event in events if event != Pure(0.0)] or [Pure(0.0)]
    if len(events) == 1:
        return _curve(events[0])
    normal = [event for event in events if isinstance(event, Gaussian)]
    rest = [event for event in events if not isinstance(event, Gaussian)]
    merged: list[Event] = list(rest)
    if normal:
        ratio = math.sqrt(math.fsum(_ratio(event) ** 2 for event in normal))
        merged.append(Gaussian(1.0, ratio))
    if not rest:
        gaussian = _curve(merged[0])
        return Curve(True, f"composition of normal noise; {gaussian.proof}", gaussian._delta)
    counted = [(_curve(one), len(list(group))) for one, group in groupby(sorted(merged, key=repr))]
    loss = _loss_of(counted, _GRID_OF_MANY if any(isinstance(one, Parallel) for one in merged) else _GRID)
    proofs = sorted({curve.proof for curve, _ in counted})
    proof = "composition of dominating pairs, losses shared out upwards; " + "; ".join(proofs)
    pure = math.fsum(_pure_epsilon(event) for event in events)
    return Curve(
        False,
        proof,
        lambda e: min(_pure_delta(e, pure), loss.delta(e)),
        lambda delta: _smaller(_pure_inverse(delta, pure), loss.epsilon(delta)),
    )


def _ratio(event: Event) -> float:
    """Return the sensitivity of normal noise in standard deviations."""
    return event.sensitivity / event.standard_deviation if isinstance(event, Gaussian) else math.inf


def _pure_epsilon(event: Event) -> float:
    """Return the pure epsilon of an event, or infinity if it has none."""
    # Their sum is a bound, too, and does not suffer from a grid.
    match event:
        case Pure(epsilon) | Choice(epsilon):
            return epsilon
        case Laplace(scale, sensitivity):
            return sensitivity / scale
        case ShuffledResponse(local_epsilon) | ShuffledSubset(local_epsilon) | ShuffledMessage(local_epsilon):
            return local_epsilon
        case Parallel(events):
            return max(map(_pure_epsilon, events))
    return math.inf


def _loss_of(counted: list[tuple[Curve, int]], grid: int) -> Composition:
    """Return the composed loss of dominating pairs on one grid, a pair for each kind of event."""
    reaches = [_reach(curve) for curve, _ in counted]
    step = max(reaches) / grid
    parts = [(from_curve(curve.delta, step, reach), n) for (curve, n), reach in zip(counted, reaches, strict=True)]
    return Composition(tuple(parts))


def _reach(curve: Curve) -> float:
    """Return an epsilon beyond which a curve is almost 0. The rest counts as infinite loss."""
    least = curve.delta(EPSILON_MAX)
    return max(1e-6, min(curve.epsilon(least + 1e-16), EPSILON_MAX))
