"""Tails and quantiles for accountant and mechanisms, by numpy alone: devices have no scipy.

Relative errors, measured against 45 digits (`tests/unit/accounting/test_special_functions.py`), are below 1e-12 of
binomial probabilities and tails with up to 10^9 trials, and below 2e-15 of the logarithm of a lower normal tail.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from privateer_core.arrays import Array

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

_QUADRATURE_NODES: Final = 24
_INTEGRAND_FALL: Final = 40.0
"""An integral ends at the point at which its integrand has fallen by e^-40."""
_ASYMPTOTIC_SERIES_MAX: Final = -30.0
"""Up to this argument, the logarithm of a normal tail comes from its asymptotic series."""
_PLAIN_TRIALS_MAX: Final = 1 << 9
"""Up to this number of trials, integrands of binomial tails are computed as plain products."""
_EXACT_COUNTS: Final = 100
"""With fewer successes or fewer failures than this, binomial coefficients are computed as whole numbers."""
_SERIES_DIGITS: Final = 17
_BLOCK_SIZE: Final = 1 << 9
_WHOLE_BLOCK: Final = slice(None)
_CAP_TABLE_SIZE: Final = 4096
_DEKKER_FACTOR: Final = 2.0**27 + 1
_STIRLING: Final = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)
_LOG_COSH: Final = (
    0.5, -0.08333333333333333, 0.022222222222222223, -0.006746031746031746, 0.0021869488536155205,
    -0.0007386029608251831, 0.0002565805740408915, -9.09896491907074e-05, 3.277930227475478e-05,
    -1.1956455712177625e-05, 4.405244525877023e-06, -1.6365968284715348e-06, 6.122655795895756e-07,
    -2.3041747198769394e-07,
)  # fmt: skip
"""Taylor's series of log cosh v over v^2, in powers of v^2: 2^(2n-1) (4^n - 1) B_2n / (n (2n)!), B_2n of Bernoulli."""
_FACTORIALS: Final = np.array([
    0.0,
    *(math.log(math.factorial(n) / n**n * math.exp(n) / math.sqrt(2 * math.pi * n)) for n in range(1, 16)),
])  # fmt: skip
"""Errors of Stirling's formula for small factorials; the entry of 0 is not used."""

_TAIL_SHARE: Final = 0.13533528323661269189
"""Shares above e^-2 and below 1 - e^-2 have the first pair of polynomials."""
# The polynomials of Cephes' ndtri; the second and third pair are for tails.
_P0: Final = (
    -5.99633501014107895267e1, 9.80010754185999661536e1, -5.66762857469070293439e1, 1.39312609387279679503e1,
    -1.23916583867381258016e0,
)  # fmt: skip
_Q0: Final = (
    1.0, 1.95448858338141759834e0, 4.67627912898881538453e0, 8.63602421390890590575e1, -2.25462687854119370527e2,
    2.00260212380060660359e2, -8.20372256168333339912e1, 1.59056225126211695515e1, -1.18331621121330003142e0,
)  # fmt: skip
_P1: Final = (
    4.05544892305962419923e0, 3.15251094599893866154e1, 5.71628192246421288162e1, 4.40805073893200834700e1,
    1.46849561928858024014e1, 2.18663306850790267539e0, -1.40256079171354495875e-1, -3.50424626827848203418e-2,
    -8.57456785154685413611e-4,
)  # fmt: skip
_Q1: Final = (
    1.0, 1.57799883256466749731e1, 4.53907635128879210584e1, 4.13172038254672030440e1, 1.50425385692907503408e1,
    2.50464946208309415979e0, -1.42182922854787788574e-1, -3.80806407691578277194e-2, -9.33259480895457427372e-4,
)  # fmt: skip
_P2: Final = (
    3.23774891776946035970e0, 6.91522889068984211695e0, 3.93881025292474443415e0, 1.33303460815807542389e0,
    2.01485389549179081538e-1, 1.23716634817820021358e-2, 3.01581553508235416007e-4, 2.65806974686737550832e-6,
    6.23974539184983293730e-9,
)  # fmt: skip
_Q2: Final = (
    1.0, 6.02427039364742014255e0, 3.67983563856160859403e0, 1.37702099489081330271e0, 2.16236993594496635890e-1,
    1.34204006088543189037e-2, 3.28014464682127739104e-4, 2.89247864745380683936e-6, 6.79019408009981274425e-9,
)  # fmt: skip


def log_normal_cdf(x: float) -> float:
    """Return the logarithm of the standard normal distribution function, with all digits in both tails."""
    if x > -1:
        return math.log1p(-math.erfc(x / math.sqrt(2)) / 2)
    if x > _ASYMPTOTIC_SERIES_MAX:
        return math.log(math.erfc(-x / math.sqrt(2)) / 2)
    # Abramowitz and Stegun 26.2.12.
    square = 1 / (x * x)
    series = 1 - square * (1 - 3 * square * (1 - 5 * square * (1 - 7 * square)))
    return -x * x / 2 - math.log(-x * math.sqrt(2 * math.pi)) + math.log(series)


def normal_quantile(shares: Array) -> Array:
    """Return the standard normal quantiles of shares in (0, 1): Cephes' ``ndtri`` (Moshier 1989), elementwise."""
    centred = shares - 0.5
    square = centred * centred
    quantiles = centred + centred * (square * _polynomial(square, _P0) / _polynomial(square, _Q0))
    quantiles *= 2.50662827463100050242  # the root of 2 pi
    smaller = np.minimum(shares, 1 - shares)
    tail = smaller <= _TAIL_SHARE
    quantiles[tail] = np.copysign(_tail_quantile(smaller[tail]), centred[tail])
    return quantiles


def binomial_pmf(k: "ArrayLike", trials: "ArrayLike", probability: "ArrayLike") -> Array:
    """Return P(Bin(trials, probability) = k), elementwise, for 0 <= k <= trials."""
    return np.exp(log_binomial_pmf(k, trials, probability))


def log_binomial_pmf(k: "ArrayLike", trials: "ArrayLike", probability: "ArrayLike") -> Array:
    """Return the logarithm of `binomial_pmf`, by deviations from the mean (Loader 2000), without cancellation."""
    k, n, p = np.broadcast_arrays(*(np.asarray(argument, np.float64) for argument in (k, trials, probability)))
    excess = _subtract_product(k, n, p)
    inside = (k > 0) & (k < n)
    successes, failures = np.where(inside, k, 1.0), np.where(inside, n - k, 1.0)
    total = np.where(inside, n, 2.0)
    log_scale = np.log(total / (2 * math.pi * successes * failures)) / 2
    errors = _stirling_error(total) - _stirling_error(successes) - _stirling_error(failures)
    deviation = np.where(inside, excess, 0.0)
    # The logarithm is log1p of the deviation; if the mean is next to 0, the quotient has more digits.
    # Impossible counts, under a probability that was rounded to 0 or 1, have the logarithm minus infinity.
    with np.errstate(divide="ignore"):
        success_term = _log1p_minus(-deviation / successes, np.where(inside, n * p, 1.0) / successes)
        failure_term = _log1p_minus(deviation / failures, np.where(inside, n * (1 - p), 1.0) / failures)
        log_end_terms = np.where(k == 0, np.log1p(-p), np.log(p))
    logs = log_scale + errors + successes * success_term + failures * failure_term
    return np.where(inside, logs, n * np.where(n == 0, 0.0, log_end_terms))


def log_fair_pmf(k: int, trials: int) -> float:
    """Return the logarithm of P(Bin(trials, 1/2) = k) of a single number ``k``; minus infinity above the trials."""
    if k > trials:
        return -math.inf
    if min(k, trials - k) < _EXACT_COUNTS:
        return math.log(math.comb(trials, k)) - trials * math.log(2)
    x = (2 * k - trials) / trials
    errors = (sign * (1 - 1 / (30 * n * n)) / (12 * n) for sign, n in ((1, trials), (-1, k), (-1, trials - k)))
    log_scale = math.log(trials / (2 * math.pi * k * (trials - k))) / 2
    return log_scale + sum(errors) - trials / 2 * (2 * x * math.atanh(x) + math.log1p(-x * x))


class Tails(NamedTuple):
    """Probabilities of a binomial below a number, from that number on, and at the number itself."""

    below: Array
    at_least: Array
    at: Array


def binomial_tails(number: "ArrayLike", trials: "ArrayLike", probability: "ArrayLike") -> Tails:
    """Return the tails of Bin(trials, probability) at a number, elementwise.

    Arguments are whole numbers and a probability in (0, 1). The tail away from the mean is a binomial probability times
    an integral of positive terms, so it has all digits.
    """
    arguments = np.broadcast_arrays(*(np.asarray(argument, np.float64) for argument in (number, trials, probability)))
    shape, (k, n, p) = arguments[0].shape, (argument.ravel() for argument in arguments)
    inside, is_over = (k >= 1) & (k <= n), k > n
    pmf_outside = np.where(k == 0, (1 - p) ** n, 0.0)
    k, n, p = (np.where(inside, argument, default) for argument, default in ((k, 1.0), (n, 1.0), (p, 0.5)))
    q, pmf = 1 - p, binomial_pmf(k, n, p)
    is_upper = k > n * p
    # Fewer than k successes are at least n - k + 1 failures.
    tail_start = np.where(is_upper, k, n - k + 1)
    if np.all(p == 0.5) and np.min(n, initial=math.inf) > _PLAIN_TRIALS_MAX:
        integral = 2 * _fair_tail_integral(tail_start, n)
    else:
        deviation = np.where(is_upper, 1, -1) * _subtract_product(k - 1, n - 1, p)
        integral = _tail_integral(tail_start, n, np.where(is_upper, p, q), np.where(is_upper, q, p), deviation)
    far_tail = np.where(inside, k * q * pmf * integral, 0.0)
    is_below = np.where(inside, is_upper, is_over)  # most of the mass is
    below, at_least = (np.where(is_below, 1 - far_tail, far_tail), np.where(is_below, far_tail, 1 - far_tail))
    return Tails(*(argument.reshape(shape) for argument in (below, at_least, np.where(inside, pmf, pmf_outside))))


def cap_share(dimension: int, height: Array) -> Array:
    """Return the probability that a coordinate of a uniform unit vector is above ``height`` in absolute value.

    Its square is Beta(1/2, (dimension - 1) / 2), for a dimension of at least 2.
    """
    return _cap_integral(dimension - 2, np.arcsin(height)) / _half_circle_integral(dimension - 2)


def cap_height(dimension: int, share: Array) -> Array:
    """Return the height whose `cap_share` is ``share``, in (0, 1)."""
    power, half_integral = dimension - 2, _half_circle_integral(dimension - 2)
    angles, log_shares = _build_cap_table(power)
    angle = np.interp(np.log(share), log_shares, angles)
    table_share = _cap_integral(power, angle) / half_integral
    # A step of Newton's on the logarithms doubles the digits of the table.
    step = (np.log(table_share) - np.log(share)) * table_share * half_integral / np.cos(angle) ** power
    return np.asarray(np.sin(np.clip(angle + step, 0.0, math.pi / 2)))


@lru_cache(maxsize=8)
def gauss_legendre_rule(n_nodes: int) -> tuple[Array, Array]:
    """Return the nodes in (0, 1) and the weights of a Gauss-Legendre rule.

    Newton's method finds the roots of the Legendre polynomial from Tricomi's guesses.
    """
    nodes = np.cos(math.pi * (np.arange(1, n_nodes + 1) - 0.25) / (n_nodes + 0.5))
    for _ in range(6):
        previous, current = np.ones(n_nodes), nodes
        for degree in range(2, n_nodes + 1):
            previous, current = current, ((2 * degree - 1) * nodes * current - (degree - 1) * previous) / degree
        derivative = n_nodes * (previous - nodes * current) / (1 - nodes**2)
        nodes = nodes - current / derivative
    return (1 - nodes) / 2, 1 / ((1 - nodes**2) * derivative**2)


def _fair_tail_integral(k: Array, n: Array) -> Array:
    """Return the integral of exp(-(2k - 1 - n) v) / cosh(v)^(n + 1) from 0 on, for k above n / 2 and many trials.

    Times k P(Bin(n, 1/2) = k) it is the tail: that is k C(n, k) times the integral of u^(k - 1) (1 - u)^(n - k) from 0
    to 1/2, in which u is (1 - tanh v) / 2.
    """
    slope, power = np.maximum(2 * k - 1 - n, 0.0), n + 1
    # Up to this end, log cosh v is at least .47 v^2.
    end = 2 * _INTEGRAND_FALL / (slope + np.sqrt(slope**2 + 1.88 * _INTEGRAND_FALL * power))
    # A term is about (2 v / pi)^2 times the one before.
    ratio = (2 / math.pi * np.max(end, initial=1e-9)) ** 2
    series = _LOG_COSH[: 1 + math.ceil(_SERIES_DIGITS / -math.log10(ratio))][::-1]

    def log_integrand(v: Array, block: slice) -> Array:
        square = v * v
        return -slope[block] * v - power[block] * square * _polynomial(square, series)

    return _integrate_exponential(log_integrand, end)


def _tail_integral(k: Array, n: Array, p: Array, q: Array, deviation: Array) -> Array:
    """Return the integral of (1 - q s)^(k - 1) (1 + p s)^(n - k) from 0 to 1 / q, for k above n p.

    Times k q P(Bin(n, p) = k) it is the tail: in the integral of `_fair_tail_integral`, up to p, u is p (1 - q s).
    ``deviation`` is k - 1 - (n - 1) p, with all digits.
    """
    slope, max_end = np.maximum(deviation, 0.0), (1 - 1e-9) / q
    end = 2 * _INTEGRAND_FALL / (slope + np.sqrt(slope**2 + 2 * _INTEGRAND_FALL * (n - 1) * p * q) + 1e-300)
    is_short = np.max(n, initial=0.0) <= _PLAIN_TRIALS_MAX

    def log_integrand(s: Array, block: slice = _WHOLE_BLOCK) -> Array:
        if is_short:
            logs = (k[block] - 1) * np.log(1 - q[block] * s) + (n[block] - k[block]) * np.log(1 + p[block] * s)
            return np.asarray(logs)
        down, up = np.log1p(-q[block] * s), np.log1p(p[block] * s)
        mean_log = p[block] * _log1p_minus(-q[block] * s, 1 - q[block] * s)
        mean_log += q[block] * _log1p_minus(p[block] * s, 1 + p[block] * s)
        return np.asarray((n[block] - 1) * mean_log + deviation[block] * (down - up))

    for _ in range(2):  # the logarithm is concave: a Newton step goes beyond the point of -40, but not by far
        end = np.minimum(end, max_end)
        descent = q * (k - 1) / (1 - q * end) - p * (n - k) / (1 + p * end)
        end = np.maximum(end + (log_integrand(end) + _INTEGRAND_FALL) / np.maximum(descent, 1e-300), 0.0)
    return _integrate_exponential(log_integrand, np.minimum(end, 1 / q))


def _integrate_exponential(log_integrand: Callable[[Array, slice], Array], end: Array) -> Array:
    """Return the integrals of exp(log_integrand) from 0 to each end, in blocks that fit into a processor's cache."""
    nodes, weights = gauss_legendre_rule(_QUADRATURE_NODES)
    total = np.empty_like(end)
    for start in range(0, len(end), _BLOCK_SIZE):
        block = slice(start, start + _BLOCK_SIZE)
        total[block] = weights @ np.exp(log_integrand(nodes[:, None] * end[block], block))
    return end * total


def _subtract_product(k: Array, n: Array, p: Array) -> Array:
    """Return k - n p as if the product were exact (Dekker 1971)."""
    product = n * p
    n_high, p_high = _upper_digits(n), _upper_digits(p)
    n_low, p_low = n - n_high, p - p_high
    rounding_error = n_low * p_low - (((product - n_high * p_high) - n_low * p_high) - n_high * p_low)
    return (k - product) - rounding_error


def _upper_digits(x: Array) -> Array:
    """Return a number rounded to the upper half of its digits."""
    scaled = _DEKKER_FACTOR * x
    return scaled - (scaled - x)


def _log1p_minus(x: Array, one_plus_x: Array) -> Array:
    """Return log(1 + x) - x, by a series if the two would cancel."""
    ratio = x / (2 + x)
    square = ratio * ratio
    series = np.zeros_like(x)
    for odd in range(21, 1, -2):
        series = 1 / odd + square * series
    return np.where(np.abs(ratio) < 0.15, ratio * (2 * square * series - x), np.log(one_plus_x) - x)


def _stirling_error(n: Array) -> Array:
    """Return log n! - log(sqrt(2 pi n) (n / e)^n) for whole numbers from 1 on."""
    inverse = 1 / np.maximum(n, 16.0)
    square = inverse * inverse
    series = np.zeros_like(n)
    for coefficient in reversed(_STIRLING):
        series = coefficient + square * series
    small = n < 16
    return np.where(small, _FACTORIALS[np.where(small, n, 0.0).astype(np.int64)], inverse * series)


def _cap_integral(power: int, angle: Array) -> Array:
    """Return the integral of cos^power from an angle to pi / 2."""
    slope = power * np.tan(angle)
    end = 2 * _INTEGRAND_FALL / (slope + np.sqrt(slope**2 + 2 * _INTEGRAND_FALL * power) + 1e-300)
    end = np.minimum(end, math.pi / 2 - angle)
    total = np.zeros_like(angle)
    for node, weight in zip(*(column.tolist() for column in gauss_legendre_rule(_QUADRATURE_NODES)), strict=True):
        total += weight * np.cos(angle + node * end) ** power
    return np.asarray(end * total)


@lru_cache(maxsize=64)
def _half_circle_integral(power: int) -> float:
    return float(_cap_integral(power, np.zeros(1))[0])


@lru_cache(maxsize=16)
def _build_cap_table(power: int) -> tuple[Array, Array]:
    """Return falling angles, and the logarithms of the shares of a sphere beyond each, for interpolation."""
    max_angle = math.acos(math.exp(-3 * _INTEGRAND_FALL / power)) if power else math.pi / 2
    angles = min(max_angle, math.pi / 2 * (1 - 1e-12)) * np.linspace(1.0, 0.0, _CAP_TABLE_SIZE)
    return angles, np.log(_cap_integral(power, angles) / _half_circle_integral(power))


def _tail_quantile(share: Array) -> Array:
    """Return the distance from 0 beyond which the normal distribution has a share, at most e^-2."""
    root = np.sqrt(-2 * np.log(share))
    inverse = 1 / root
    near = inverse * _polynomial(inverse, _P1) / _polynomial(inverse, _Q1)
    far = inverse * _polynomial(inverse, _P2) / _polynomial(inverse, _Q2)
    return np.asarray(root - np.log(root) / root - np.where(root < 8.0, near, far))


def _polynomial(x: Array, coefficients: tuple[float, ...]) -> Array:
    """Return the value of a polynomial, coefficients from the highest power on, by Horner's method."""
    value = coefficients[0] * x
    for coefficient in coefficients[1:-1]:
        value += coefficient
        value *= x
    value += coefficients[-1]
    return value
