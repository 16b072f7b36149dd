"""The privacy accountant: it computes the curve of an event, delta for every epsilon, and cites the proof."""

import math
from collections.abc import Callable
from functools import lru_cache
from itertools import groupby
from typing import Final

import msgspec

from privateer_core.accounting.amplification import clones_delta, shuffled_delta
from privateer_core.accounting.binomial import shuffled_bits_delta
from privateer_core.accounting.events import (
    EPSILON_MAX,
    Approximate,
    Choice,
    Event,
    Gaussian,
    GroupedResponse,
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
from privateer_core.accounting.grouped_bits import grouped_delta
from privateer_core.accounting.loss import Composition, loss_from_curve
from privateer_core.accounting.numerics import check, smallest_epsilon
from privateer_core.errors import SpecError

_GRID: Final = 600
"""Grid points between 0 and the largest epsilon of a composed curve."""
_COARSE_GRID: Final = 150
"""Grid points if a composed curve takes milliseconds an epsilon; the coarse grid adds .1 % to delta."""
_SLOW_EVENTS: Final = (Parallel, ShuffledResponse, GroupedResponse, ShuffledSubset)
_GUESS_MARGINS: Final = (1e-9, 1e-8, 1e-7)
"""Relative margins, added in turn to a guess of an epsilon until delta at the sum is small enough."""
_ROUNDING_FACTOR: Final = 1 + 1e-9
_BLANKET_PROOF: Final = "privacy blanket (Balle, Bell, Gascon and Nissim, CRYPTO 2019, Lemma 5.3)"
_GROUPED_PROOF: Final = "the worst crowd of a bit in each arm group (docs/privacy/shuffling.md)"
_SHUFFLED_EPSILON_MIN: Final = 1e-9
"""Smallest epsilon at which the bounds of shuffled messages are evaluated, since they do not hold at 0."""


class Curve(msgspec.Struct, frozen=True):
    """The privacy curve of an event: delta as a function of epsilon.

    Attributes
    ----------
    exact
        Whether `delta` is exact (up to floating point, rounded up). Otherwise it is a certified upper bound.
    proof
        The theorem that the curve follows from.
    """

    exact: bool
    proof: str
    _delta: Callable[[float], float]
    _guess_epsilon: Callable[[float], float | None] | None = None

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
        guess = self._guess_epsilon(delta) if self._guess_epsilon else None
        if guess and 0 < guess < EPSILON_MAX:
            for margin in _GUESS_MARGINS:
                candidate = min(guess + margin * max(1.0, guess), EPSILON_MAX)
                if self._delta(candidate) <= delta:
                    return candidate
        return smallest_epsilon(lambda epsilon: self._delta(epsilon) <= delta, EPSILON_MAX)


@lru_cache(maxsize=4096)
def event_delta(event: Event, epsilon: float) -> float:
    """Return delta at ``epsilon`` of an event. Results are cached, since compositions take time."""
    return account(event).delta(epsilon)


def account(event: Event) -> Curve:
    """Compute the privacy curve of an event.

    Raises
    ------
    SpecError
        If a kind of event is unknown, or a number out of range.
    """
    check_event(event)
    return _compute_curve(event)


def _compute_curve(event: Event) -> Curve:  # noqa: PLR0911, PLR0912 - one case for each kind of event
    """Return the privacy curve of a checked event by its kind's theorem, and refuse unknown kinds."""
    match event:
        case Pure(epsilon):
            proof = "worst pair of pure epsilon: randomized response (Kairouz, Oh and Viswanath 2015)"
            return Curve(True, proof, lambda e: _pure_delta(e, epsilon))
        case Choice(epsilon):
            proof = "worst pair of a bounded range (Dong, Durfee and Rogers, ICML 2020)"
            return Curve(True, proof, lambda e: _choice_delta(e, epsilon))
        case Gaussian(sigma, sensitivity):
            proof = "analytic Gaussian (Balle and Wang 2018, Theorem 8)"
            return Curve(True, proof, lambda e: min(1.0, _ROUNDING_FACTOR * gaussian_delta(e, sigma, sensitivity)))
        case Laplace(scale, sensitivity):
            proof = "Laplace noise on one number, in closed form"
            return Curve(True, proof, lambda e: _laplace_delta(e, sensitivity / scale))
        case ShuffledResponse(local_epsilon, symbols, honest):
            return Curve(False, _BLANKET_PROOF, lambda e: _cap_bound(shuffled_delta, e, local_epsilon, symbols, honest))
        case GroupedResponse(local_epsilon, honest, share):
            return Curve(False, _GROUPED_PROOF, lambda e: _cap_bound(grouped_delta, e, local_epsilon, honest, share))
        case ShuffledSubset(local_epsilon, symbols, n_own, honest):
            proof = "privacy blanket of subset selection (docs/privacy.md; Balle et al., CRYPTO 2019, Lemma 5.3)"
            return Curve(False, proof, lambda e: _cap_bound(shuffled_delta, e, local_epsilon, symbols / n_own, honest))
        case ShuffledMessage(local_epsilon, honest):
            proof = "clones (Feldman, McMillan and Talwar, FOCS 2021, Theorem 3.2)"
            return Curve(False, proof, lambda e: _cap_bound(clones_delta, e, local_epsilon, honest))
        case ShuffledBits(trials, probability, levels, coordinates):
            proof = "binomial privacy loss distribution, losses shared out upwards"
            return Curve(False, proof, lambda e: shuffled_bits_delta(e, trials, probability, levels, coordinates))
        case Approximate(epsilon, delta):
            proof = "worst pair of (epsilon, delta) (Kairouz, Oh and Viswanath 2015)"
            return Curve(False, proof, lambda e: min(1.0, delta + (1 - delta) * _pure_delta(e, epsilon)))
        case Parallel(events):
            curves = [_compute_curve(group_event) for group_event in events]
            proofs = sorted({curve.proof for curve in curves})
            proof = "parallel composition, the worst part counts: " + "; ".join(proofs)
            return Curve(
                all(curve.exact for curve in curves),
                proof,
                lambda e: max(curve.delta(e) for curve in curves),
                lambda delta: max(curve.epsilon(delta) for curve in curves),
            )
        case Repeated(repeated, count):
            return _compose_events(_flatten_event(repeated) * count)
        case Sequential():
            return _compose_events(_flatten_event(event))
    raise SpecError("the kind of the event is not known", field="event", remedy="see docs/accounting.md")


def _cap_bound(bound: Callable[..., float], epsilon: float, local_epsilon: float, *arguments: float) -> float:
    """Return a shuffled message's bound of delta, also at epsilon 0, capped by delta of the message alone."""
    local_delta = _pure_delta(epsilon, local_epsilon)
    # Between epsilon 0 and the smallest evaluated epsilon, a curve falls by at most the growth of e^epsilon.
    max_fall = math.expm1(_SHUFFLED_EPSILON_MIN) if epsilon < _SHUFFLED_EPSILON_MIN else 0.0
    return min(local_delta, bound(max(epsilon, _SHUFFLED_EPSILON_MIN), local_epsilon, *arguments) + max_fall)


def _pure_delta(epsilon: float, pure: float) -> float:
    """Return delta of randomized response, which dominates every mechanism of the same pure epsilon."""
    # (e^pure - e^epsilon)_+ / (e^pure + 1)
    return 0.0 if epsilon >= pure else min(1.0, _ROUNDING_FACTOR * -math.expm1(epsilon - pure) / (1 + math.exp(-pure)))


def _pure_epsilon_at(delta: float, pure: float) -> float:
    """Return the epsilon at which `_pure_delta` is about ``delta``."""
    odds = 1 - delta * (1 + math.exp(-pure))
    return pure + math.log(odds) if odds > 0 else 0.0


def _choice_delta(epsilon: float, width: float) -> float:
    """Return delta of an exponential mechanism whose losses lie in [t - width, t], for the worst t in [0, width].

    With p = (e^width - e^t) / (e^width - 1) of the loss t, p (1 - e^(epsilon - t)) is largest at t = (epsilon +
    width) / 2.
    """
    if epsilon >= width:
        return 0.0
    return min(1.0, _ROUNDING_FACTOR * math.expm1((epsilon - width) / 2) ** 2 / -math.expm1(-width))


def _laplace_delta(epsilon: float, pure: float) -> float:
    return 0.0 if epsilon >= pure else _ROUNDING_FACTOR * -math.expm1((epsilon - pure) / 2)


def _flatten_event(event: Event) -> list[Event]:
    """Return the events whose sequential composition is an event, with equal copies for repetitions."""
    match event:
        case Sequential(events):
            return [leaf for child in events for leaf in _flatten_event(child)]
        case Repeated(repeated, count):
            return _flatten_event(repeated) * count
        case Parallel(events) if all(isinstance(child, Pure) for child in events):
            return [max(events, key=_pure_epsilon)]
        case Parallel(events) if all(isinstance(child, Gaussian) for child in events):
            return [max(events, key=_relative_sensitivity)]
        case _:
            return [event]


def _compose_events(events: list[Event]) -> Curve:
    """Compose events adaptively; the probability of a failure is separated first, which is exact."""
    if len(events) == 1:
        return _compute_curve(events[0])
    failures = [event.delta for event in events if isinstance(event, Approximate)]
    p_failure = -math.expm1(sum(math.log1p(-min(delta, 1 - 1e-16)) for delta in failures))
    pure: list[Event] = [Pure(event.epsilon) if isinstance(event, Approximate) else event for event in events]
    unfailing = _compose_unfailing_events(pure)
    if not p_failure:
        return unfailing

    def guess(delta: float) -> float | None:
        remaining_delta = (delta - p_failure) / (1 - p_failure)
        return unfailing._guess_epsilon(remaining_delta) if unfailing._guess_epsilon and remaining_delta > 0 else None

    p_failure *= _ROUNDING_FACTOR
    proof = f"worst pair of (epsilon, delta) (Kairouz, Oh and Viswanath 2015); {unfailing.proof}"
    return Curve(False, proof, lambda e: min(1.0, p_failure + (1 - p_failure) * unfailing.delta(e)), guess)


def _compose_unfailing_events(events: list[Event]) -> Curve:
    """Compose events without failures: exactly for normal noise, otherwise by privacy loss distributions."""
    events = [event for event in events if event != Pure(0.0)] or [Pure(0.0)]
    if len(events) == 1:
        return _compute_curve(events[0])
    gaussians = [event for event in events if isinstance(event, Gaussian)]
    others = [event for event in events if not isinstance(event, Gaussian)]
    merged: list[Event] = list(others)
    if gaussians:
        sensitivity = math.sqrt(math.fsum(_relative_sensitivity(event) ** 2 for event in gaussians))
        merged.append(Gaussian(1.0, sensitivity))
    if not others:
        gaussian = _compute_curve(merged[0])
        return Curve(True, f"composition of normal noise; {gaussian.proof}", gaussian._delta)
    curves = [(_compute_curve(leaf), len(list(copies))) for leaf, copies in groupby(sorted(merged, key=repr))]
    loss = _compose_losses(curves, _COARSE_GRID if any(isinstance(leaf, _SLOW_EVENTS) for leaf in merged) else _GRID)
    proofs = sorted({curve.proof for curve, _ in curves})
    proof = "composition of dominating pairs, losses shared out upwards; " + "; ".join(proofs)
    pure = math.fsum(_pure_epsilon(event) for event in events)

    def guess(delta: float) -> float | None:
        epsilon = loss.epsilon(delta)
        return None if epsilon is None else min(_pure_epsilon_at(delta, pure), epsilon)

    return Curve(False, proof, lambda e: min(_pure_delta(e, pure), loss.delta(e)), guess)


def _relative_sensitivity(event: Event) -> float:
    """Return the sensitivity of normal noise in standard deviations."""
    return event.sensitivity / event.standard_deviation if isinstance(event, Gaussian) else math.inf


def _pure_epsilon(event: Event) -> float:
    """Return the pure epsilon of an event, or infinity if it has none."""
    # The sum of pure epsilons bounds a composition, too, and has no error of a grid.
    match event:
        case Pure(epsilon) | Choice(epsilon):
            return epsilon
        case Laplace(scale, sensitivity):
            return sensitivity / scale
        case (
            ShuffledResponse(local_epsilon)
            | GroupedResponse(local_epsilon)
            | ShuffledSubset(local_epsilon)
            | ShuffledMessage(local_epsilon)
        ):
            return local_epsilon
        case Parallel(events):
            return max(map(_pure_epsilon, events))
    return math.inf


def _compose_losses(curves: list[tuple[Curve, int]], n_points: int) -> Composition:
    """Return the composed privacy loss of dominating pairs on a common grid, a pair for each kind of event."""
    ends = [_largest_finite_loss(curve) for curve, _ in curves]
    step = max(ends) / n_points
    parts = [(loss_from_curve(curve.delta, step, end), n) for (curve, n), end in zip(curves, ends, strict=True)]
    return Composition(tuple(parts))


def _largest_finite_loss(curve: Curve) -> float:
    """Return an epsilon beyond which a curve is almost 0. Larger losses count as infinite."""
    min_delta = curve.delta(EPSILON_MAX)
    return max(1e-6, min(curve.epsilon(min_delta + 1e-16), EPSILON_MAX))
