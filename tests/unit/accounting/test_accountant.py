"""Curves of events and compositions against an established accountant, from 1e-12 to .5; unknown events fail closed."""

import math

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import common
from dp_accounting.pld import privacy_loss_distribution as pld

from privateer_core.accounting import accountant
from privateer_core.accounting.accountant import Curve, account
from privateer_core.accounting.events import (
    EPSILON_MAX,
    Approximate,
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
    read_event,
)
from privateer_core.accounting.loss import Composition, loss_from_curve
from privateer_core.accounting.numerics import smallest_epsilon
from privateer_core.errors import SpecError

STEP = 1e-3


def pure(epsilon):
    return pld.from_privacy_parameters(
        common.DifferentialPrivacyParameters(epsilon, 0), value_discretization_interval=STEP
    )


def gaussian(standard_deviation):
    return pld.from_gaussian_mechanism(standard_deviation, value_discretization_interval=STEP)


def laplace(scale):
    return pld.from_laplace_mechanism(scale, value_discretization_interval=STEP)


COMPOSED = {
    "thirty small": (Repeated(Pure(0.1), 30), lambda: pure(0.1).self_compose(30)),
    "seven normal": (Repeated(Gaussian(2.0), 7), lambda: gaussian(2.0).self_compose(7)),
    "normal and Laplace": (
        Sequential((Gaussian(4.0), Repeated(Laplace(10.0), 10))),
        lambda: gaussian(4.0).compose(laplace(10.0).self_compose(10)),
    ),
    "nested": (
        Sequential((Pure(0.5), Sequential((Gaussian(3.0), Repeated(Sequential((Pure(0.2), Gaussian(5.0))), 3))))),
        lambda: (
            pure(0.5).compose(gaussian(3.0)).compose(pure(0.2).self_compose(3)).compose(gaussian(5.0).self_compose(3))
        ),
    ),
    "approximate": (
        Repeated(Approximate(0.3, 1e-8), 4),
        lambda: pld.from_privacy_parameters(
            common.DifferentialPrivacyParameters(0.3, 1e-8), value_discretization_interval=STEP
        ).self_compose(4),
    ),
}


@pytest.mark.parametrize("delta", [0.5, 0.1, 1e-3, 1e-6, 1e-9, 1e-12])
@pytest.mark.parametrize("name", COMPOSED)
def test_compositions_agree_with_an_established_accountant(name, delta):
    """Within 1 % of an oracle that is itself pessimistic by its grid."""
    event, oracle = COMPOSED[name]
    expected = oracle().get_epsilon_for_delta(delta)
    epsilon = account(event).epsilon(delta)
    assert epsilon == pytest.approx(expected, rel=0.01, abs=2e-3) or (math.isinf(epsilon) and math.isinf(expected))


@pytest.mark.parametrize("delta", [0.1, 1e-6, 1e-10])
def test_a_hundred_laplaces_agree_with_an_established_accountant_on_a_finer_grid(delta):
    """Both round losses up, so each is a little above the truth: by less than 2e-6 here."""
    oracle = pld.from_laplace_mechanism(10.0, value_discretization_interval=1e-4).self_compose(100)
    expected = oracle.get_epsilon_for_delta(delta)
    assert account(Repeated(Laplace(10.0), 100)).epsilon(delta) == pytest.approx(expected, rel=2e-6)


def responses_delta(epsilon, pure, count):
    """Delta of ``count`` randomized responses: all that is seen is how many of them are true."""
    with mpmath.workdps(40):
        truth = mpmath.exp(pure) / (1 + mpmath.exp(pure))
        excess = (
            mpmath.binomial(count, k)
            * (truth**k * (1 - truth) ** (count - k) - mpmath.exp(epsilon) * truth ** (count - k) * (1 - truth) ** k)
            for k in range(count + 1)
        )
        return float(mpmath.fsum(max(0, term) for term in excess))


@pytest.mark.parametrize("delta", [0.1, 1e-6, 1e-10])
def test_a_hundred_pure_events_agree_with_the_binomial(delta):
    epsilon = account(Repeated(Pure(0.1), 100)).epsilon(delta)
    assert responses_delta(epsilon, 0.1, 100) <= delta
    assert responses_delta(epsilon * (1 - 1e-6), 0.1, 100) > delta


SEVERAL = {
    **{name: event for name, (event, _) in COMPOSED.items()},
    "a hundred Laplace": Repeated(Laplace(10.0), 100),
    "tiny": Repeated(Laplace(1e4), 10),
    "wide": Sequential((Pure(20.0), Repeated(Laplace(10.0), 10))),
    "large": Repeated(Pure(3.0), 20),
    "parallel": Parallel((Repeated(Laplace(5.0), 20), Gaussian(2.0), Pure(0.3))),
    "unequal": Sequential(tuple(Laplace(3.0 + 0.7 * i) for i in range(15))),
}


@pytest.mark.parametrize("delta", [0.5, 0.1, 1e-3, 1e-6, 1e-9, 1e-12, 0.0])
@pytest.mark.parametrize("name", SEVERAL)
@pytest.mark.battery
def test_epsilon_from_a_guess_equals_epsilon_from_a_long_search(name, delta):
    curve = account(SEVERAL[name])
    searched = smallest_epsilon(lambda epsilon: curve.delta(epsilon) <= delta, EPSILON_MAX)
    epsilon = curve.epsilon(delta)
    assert epsilon == pytest.approx(searched, rel=1e-6, abs=3e-9)
    assert math.isinf(epsilon) or curve.delta(epsilon) <= delta


@pytest.mark.parametrize("wrong", [0.0, 0.9, 1 - 1e-6, 1 - 1e-8, math.inf])
def test_a_guess_below_the_true_epsilon_is_not_used(wrong):
    """Planted: guesses that are too small, by little and by much, and none at all."""
    true = account(Repeated(Pure(0.1), 30))
    epsilon = true.epsilon(1e-6)
    searched = Curve(False, "", true.delta, lambda _: wrong * epsilon).epsilon(1e-6)
    assert true.delta(searched) <= 1e-6
    assert searched == pytest.approx(epsilon, rel=1e-6)


def test_no_delta_is_lost_by_underflow():
    """20,000 events of 1/300 each have a pure epsilon of 66, and a delta below 1e-300 is not 0."""
    assert account(Repeated(Laplace(300.0), 20_000)).epsilon(0.0) == math.inf


def test_normal_composition_is_exact():
    curve = account(Sequential((Gaussian(3.0), Gaussian(4.0, 2.0))))
    ratio = math.hypot(1 / 3, 2 / 4)
    assert curve.exact
    assert curve.delta(1.0) == pytest.approx(account(Gaussian(1 / ratio)).delta(1.0), rel=1e-8)


@pytest.mark.parametrize(
    "event",
    [
        Pure(1.0),
        Gaussian(1.0),
        Laplace(0.5),
        Approximate(1.0, 1e-7),
        ShuffledResponse(4.0, 2, 1000),
        ShuffledResponse(4.0, 9, 1000),
        ShuffledSubset(4.0, 128, 26, 1000),
        ShuffledMessage(3.0, 1000),
        ShuffledBits(5000, 0.5, 5, 10),
        Repeated(ShuffledMessage(2.0, 500), 3),
        Repeated(ShuffledSubset(2.0, 64, 21, 500), 3),
        Parallel((Pure(0.3), Gaussian(2.0))),
    ],
)
def test_curves_fall_and_invert(event):
    curve = account(event)
    deltas = [curve.delta(float(e)) for e in np.linspace(0, 6, 25)]
    assert all(np.diff(deltas) <= 1e-12)
    assert 0 <= deltas[-1] <= deltas[0] <= 1
    for delta in (1e-12, 1e-9, 1e-6, 1e-3, 0.1, 0.5):
        epsilon = curve.epsilon(delta)
        if math.isfinite(epsilon):
            assert curve.delta(epsilon) <= delta * (1 + 1e-9)
            assert epsilon < 1e-6 or curve.delta(epsilon * (1 - 1e-6)) >= delta * (1 - 1e-3)
    assert curve.proof


def test_parallel_composition_is_its_worst_part():
    parts = (Pure(0.3), Gaussian(2.0), Laplace(4.0))
    curve = account(Parallel(parts))
    for epsilon in (0.0, 0.2, 1.0):
        assert curve.delta(epsilon) == max(account(part).delta(epsilon) for part in parts)


def test_pure_events_add_up():
    assert account(Repeated(Pure(1.0), 3)).epsilon(0.0) == pytest.approx(3.0, abs=1e-6)


def test_curves_on_a_grid_are_never_below_the_exact_curve():
    shuffled = (ShuffledMessage(3.0, 1000), ShuffledSubset(3.0, 64, 21, 1000))
    for event in (Pure(0.7), Gaussian(1.3), Laplace(1.0), *shuffled):
        curve = account(event)
        composition = Composition(((loss_from_curve(curve.delta, 0.05, accountant._largest_finite_loss(curve)), 1),))
        for epsilon in np.linspace(0, 3, 31):
            assert composition.delta(float(epsilon)) >= curve.delta(float(epsilon)) * (1 - 1e-9) - 1e-15


def test_two_events_cost_more_than_the_curve_of_one_event():
    """Planted: the curve of a single event, taken for two events, is far below the oracle."""
    weak = account(Pure(0.5)).epsilon(1e-6)
    assert weak < 0.6 * pure(0.5).self_compose(2).get_epsilon_for_delta(1e-6)


class Unknown(Pure, frozen=True, tag="unknown"):
    """No event of ours."""


@pytest.mark.parametrize(
    "event",
    [
        object(),
        None,
        Sequential((Pure(1.0), object())),  # type: ignore[arg-type]
        Parallel((Repeated("pure", 3),)),  # type: ignore[arg-type]
        Pure(math.nan),
        Pure(-1.0),
        Gaussian(0.0),
        Gaussian(1.0, math.inf),
        ShuffledMessage(3.0, 0),
        ShuffledSubset(3.0, 64, 33, 900),
        Repeated(Pure(1.0), 0),
        Sequential(()),
    ],
)
def test_unknown_or_out_of_range_events_have_infinite_epsilon(event, monkeypatch):
    monkeypatch.setattr(accountant, "_compute_curve", lambda _: pytest.fail("computed before the whole was checked"))
    with pytest.raises(SpecError):
        account(event)


@pytest.mark.parametrize(
    "value",
    [
        {"event": "gausian", "standard_deviation": 1},
        {"event": "gaussian"},
        {"event": "gaussian", "standard_deviation": 1, "extra": 2},
        {"event": "gaussian", "standard_deviation": "much"},
        [],
        3,
        {"event": "repeated", "of": {"event": "pure", "epsilon": 1}, "count": 1.5},
    ],
)
def test_malformed_events_are_refused(value):
    with pytest.raises(SpecError) as refused:
        read_event(value)
    assert refused.value.field == "event"


def test_events_read_from_json():
    value = {
        "event": "sequential",
        "events": [{"event": "pure", "epsilon": 0.5}, {"event": "gaussian", "standard_deviation": 2}],
    }
    assert read_event(value) == Sequential((Pure(0.5), Gaussian(2.0)))


@pytest.mark.parametrize("bad", [-0.1, math.nan, 65.0])
def test_epsilon_out_of_the_certified_range_is_refused(bad):
    with pytest.raises(SpecError):
        account(Pure(1.0)).delta(bad)


@pytest.mark.parametrize("bad", [-0.1, math.nan, 1.0])
def test_delta_out_of_range_is_refused(bad):
    with pytest.raises(SpecError):
        account(Pure(1.0)).epsilon(bad)


def nest_events(depth):
    event = {"event": "pure", "epsilon": 0.001}
    for _ in range(depth):
        event = {"event": "sequential", "events": [event]}
    return event


def repeat_event(depth, count):
    event = {"event": "pure", "epsilon": 0.001}
    for _ in range(depth):
        event = {"event": "repeated", "of": event, "count": count}
    return event


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (nest_events(33), "event"),
        (nest_events(400), "event"),
        (repeat_event(3, 100_000), "count"),
        (repeat_event(2, 1000), "count"),
        ({"event": "sequential", "events": [repeat_event(1, 60_000), repeat_event(1, 60_000)]}, "count"),
        ({"event": "pure\ud800", "epsilon": 1}, "event"),
    ],
)
def test_events_too_large_to_check_are_refused(value, field):
    """Events are read from untrusted files."""
    with pytest.raises(SpecError) as refused:
        read_event(value)
    assert refused.value.field == field


def test_nested_and_repeated_events_are_computed():
    assert account(read_event(nest_events(20))).epsilon(0.0) == pytest.approx(0.001, rel=1e-5)
    assert account(read_event(repeat_event(2, 10))).epsilon(0.0) == pytest.approx(0.1, rel=1e-5)
