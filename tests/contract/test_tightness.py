"""Every calibration of every mechanism and trust model: its epsilon is never below the truth, and near it.

Near is within a hundredth of epsilon, or as the table of gaps in `privateer_lab.audit.tightness` says. Both sides are
sums without samples; only the random promises are drawn, with fixed seeds. A curator's noise is for a distance, which
the farthest of 400 people must almost have, and a device's symbol has exact probabilities.
"""

import math
import random
import warnings
from collections.abc import Iterator
from fractions import Fraction
from functools import cache, reduce
from typing import Any

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import stats

from privateer_core.accounting import accountant
from privateer_core.accounting.accountant import account
from privateer_core.accounting.allotment import allot, allotted_local_epsilon
from privateer_core.accounting.amplification import amplified_local_epsilon, shuffled_delta
from privateer_core.accounting.events import (
    Choice,
    Event,
    Gaussian,
    GroupedResponse,
    Parallel,
    Repeated,
    Sequential,
    ShuffledBits,
    ShuffledResponse,
    ShuffledSubset,
)
from privateer_core.accounting.grouped_bits import grouped_local_epsilon
from privateer_core.mechanisms import MECHANISMS, GaussianVectors, RunningVectors
from privateer_core.primitives.clipping import Ball
from privateer_core.primitives.row_ball import RowBall
from privateer_lab.audit import farthest_people
from privateer_lab.audit.tightness import GAPS, Gap, crowd_delta, group_delta, lemma_delta
from privateer_server.rounds.schedule import Schedule
from tests.contract.subjects import specs

NEAR = 1.01
"""A bound is near if its epsilon is at most this many times one that an attack refutes."""
LIMIT, DIGITS = 16.0, 1e-6
PROMISED = [name for name, spec in specs().items() if spec.privacy.trust.promises and not name.startswith("paper")]
STEP = 1e-3
"""Width of the grid to which another accountant rounds losses down."""
CHOICE_LOSS = 0.86
"""Largest loss of a private choice over its range, of the worst pair beside normal noise."""


def find_gap(event: Event) -> Gap | None:
    """Return the reason why the bound of an event, or of one of its parts, is not near; None if it is."""
    parts = event.events if isinstance(event, Parallel) else (event,)
    return next((gap for gap in GAPS if any(map(gap.applies, parts))), None)


def attacked_delta(event: Event, epsilon: float) -> float | None:
    """Return the largest delta at ``epsilon`` of an event that is known to be possible; None if no attack is known.

    It is the delta of a crowd for shuffled responses, the lemma's where no crowd is known, and an exact curve's.
    """
    match event:
        case ShuffledResponse(local_epsilon, symbols, honest):
            return crowd_delta(epsilon, local_epsilon, symbols, honest)
        case ShuffledSubset(local_epsilon, symbols, n_own, honest):
            compute_delta = crowd_delta if symbols >= 3 * n_own else lemma_delta
            return compute_delta(epsilon, local_epsilon, symbols / n_own, honest)
        case GroupedResponse(local_epsilon, honest, share):
            return group_delta(epsilon, local_epsilon, honest, share)
        case Parallel(events):
            deltas = [attacked_delta(part, epsilon) for part in events]
            return max((delta for delta in deltas if delta is not None), default=None)
    curve = account(event)
    return curve.delta(epsilon) if curve.exact else None


def truth(event: Event, epsilon: float) -> float | None:
    """Return delta of a known attack; of what is composed the privacy loss, rounded down by another accountant."""
    if not isinstance(event, ShuffledBits | Repeated | Sequential):
        return attacked_delta(event, epsilon)
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # that package's tails overflow
        return float(build_loss(event).get_delta_for_epsilon(epsilon))


@cache
def build_loss(event: Event) -> Any:
    """Return the privacy loss of a pair of laws that an event may have."""
    match event:
        case Sequential(events):
            return reduce(lambda left, right: left.compose(right), [build_loss(part) for part in events])
        case Repeated(of, count):
            return build_loss(of).self_compose(count)
        case ShuffledBits(trials, probability, levels, coordinates):
            counts = np.arange(trials + 1)
            law = stats.binom.logpmf(counts, trials, probability).tolist()
            lower, upper = (dict(zip((counts + shift).tolist(), law, strict=True)) for shift in (0, levels))
            return pld.from_two_probability_mass_functions(lower, upper, False, STEP).self_compose(coordinates)
        case Gaussian(deviation, sensitivity):
            return pld.from_gaussian_mechanism(deviation, sensitivity, False, STEP, use_connect_dots=False)
        case Choice(width):
            largest = CHOICE_LOSS * width
            p = (math.exp(width) - math.exp(largest)) / math.expm1(width)
            lower, upper = (
                {0: math.log(p) - largest, 1: math.log1p(-p) + width - largest},
                {0: math.log(p), 1: math.log1p(-p)},
            )
            return pld.from_two_probability_mass_functions(lower, upper, False, STEP)
        case ShuffledSubset(local_epsilon, symbols, n_own, honest):
            return pld.from_two_probability_mass_functions(
                *crowd_pair(local_epsilon, symbols / n_own, honest), False, STEP
            )
    raise TypeError(f"no pair of {event}")


def crowd_pair(local_epsilon: float, symbols: float, batch: int) -> list[dict[int, float]]:
    """Return the log-probabilities of histograms under both neighbours, for a crowd with a third symbol.

    The chances are those of `privateer_lab.audit.tightness.crowd_delta`.
    """
    ratio = math.exp(local_epsilon)
    p_symbol = 1 / (ratio + symbols - 1)
    pairs, own, others = np.ogrid[: batch + 1, : batch + 1, : batch + 1]
    crowd = batch - pairs - others
    with np.errstate(divide="ignore", invalid="ignore"):
        mass = stats.binom.logpmf(pairs, batch, 2 * p_symbol) + stats.binom.logpmf(own, pairs, 0.5)
        mass = mass + stats.binom.logpmf(others, batch - pairs, (symbols - 3) * p_symbol / (1 - 2 * p_symbol))
    likely = mass > math.log(1e-14)
    counts = [np.broadcast_to(count, mass.shape)[likely] for count in (own, pairs - own, crowd, others)]
    chances = [
        (ratio * left + right + counts[2] / ratio + counts[3]) / batch for left, right in (counts[:2], counts[1::-1])
    ]
    return [dict(enumerate((mass[likely] + np.log(chance)).tolist())) for chance in reversed(chances)]


def faults(event: Event, delta: float) -> list[str]:
    """Return what an event's epsilon at ``delta`` is, if an attack refutes it or is far from refuting it."""
    gap, epsilon = find_gap(event), account(event).epsilon(delta)
    max_ratio = gap.max_ratio if gap else NEAR
    attacked, lower = truth(event, epsilon), truth(event, epsilon / max_ratio)
    if attacked is None or lower is None:
        return [f"{event}: no attack is known"]
    below = [f"{event}: {epsilon:g} is refuted"] if attacked > delta * (1 + DIGITS) else []
    return below + ([f"{event}: {epsilon:g} is far above the truth"] if lower < delta * (1 - DIGITS) else [])


@pytest.mark.parametrize("name", PROMISED)
def test_the_first_round_of_every_algorithm_costs_what_it_claims(name):
    terms = Schedule(specs()[name]).open(1).policy.terms
    assert not faults(terms.event, terms.delta)


MECHANISMS_OF_SPECS = {name: Schedule(specs()[name]).open(1).policy.terms.mechanism for name in PROMISED}
PEOPLE = {name: mechanism for name, mechanism in MECHANISMS_OF_SPECS.items() if mechanism.release_event} | {
    f"{kind.__name__}-{name}": mechanism
    for kind in MECHANISMS
    for name, mechanism in kind.instances().items()
    if mechanism.release_event
}
PEOPLE["GaussianVectors-joint"] = GaussianVectors(Ball("joint", 1.0, 9), 1e5)


@pytest.mark.parametrize("name", PEOPLE)
def test_the_noise_of_a_curator_is_for_the_farthest_people(name):
    claimed, farthest = farthest_people.measure_distances(PEOPLE[name])
    assert claimed / NEAR <= farthest <= claimed * (1 + 1e-9)


@pytest.mark.parametrize("factor", [0.98, 1.02])
def test_noise_for_another_distance_is_caught(factor, monkeypatch):
    """Planted: a curator takes two people for nearer than they are, and for farther."""
    sensitivity = vars(RowBall)["sensitivity"].fget
    monkeypatch.setattr(RowBall, "sensitivity", property(lambda ball: factor * sensitivity(ball)))
    with pytest.raises(AssertionError):
        test_the_noise_of_a_curator_is_for_the_farthest_people("RowSums-joint")


@pytest.mark.parametrize("name", [name for name, running in PEOPLE.items() if isinstance(running, RunningVectors)])
def test_running_sums_cost_what_their_matrix_costs_a_person(name):
    """The square root of the matrix of ones has the entries binom(2k, k) / 4^k, and the tree one a level."""
    running = PEOPLE[name]
    entries = [math.comb(2 * k, k) / 4**k for k in range(running.steps)]
    length = math.hypot(*entries) if running.kind == "root" else math.sqrt(running.steps.bit_length())
    claimed, least = running.release_event.sensitivity, length * farthest_people.measure_distances(running)[1]
    assert least <= claimed <= NEAR * least


RESPONSES = {
    name: mechanism.response for name, mechanism in MECHANISMS_OF_SPECS.items() if hasattr(mechanism, "response")
}


@pytest.mark.parametrize("name", RESPONSES)
def test_a_symbol_has_the_ratio_of_its_epsilon(name):
    """The most likely cause of any symbol against the least likely one, in fractions of 64-bit words."""
    response, word = RESPONSES[name], 1 << 64
    n_own, kept = getattr(response, "n_own", 1), Fraction(response.threshold, word)
    most, least = (Fraction(count, word) for count in (-(-word // response.symbols), word // response.symbols))
    own = Fraction(-(-word // n_own), word)
    ratio = (kept * own + (1 - kept) * most) / ((1 - kept) * least)
    assert response.epsilon / NEAR <= math.log(ratio) <= response.epsilon * (1 + 1e-12)


def random_events(seed: int, cases: int) -> Iterator[tuple[Event, float, float]]:
    """Draw promises, and yield the events that calibrations allow, with epsilon and delta of the promise."""
    rng = random.Random(seed)
    for _ in range(cases):
        epsilon, delta, honest = 10 ** rng.uniform(-0.7, 0.6), 10 ** rng.uniform(-9, -4), int(10 ** rng.uniform(2, 3.2))
        promise, own = (epsilon, delta), rng.choice((1, 2, 5, 11))
        symbols, share = rng.choice((2, 3, 5, 9, 17, 33)), rng.choice((1.0, 0.5, 0.25, 0.1))
        local = amplified_local_epsilon(*promise, symbols, honest, LIMIT)
        event: Event = ShuffledResponse(local, symbols, honest)
        match rng.choice(("response", "subset", "group")):
            case "subset":
                symbols = rng.randint(2 * own, 40 * own)
                local = amplified_local_epsilon(*promise, symbols / own, honest, LIMIT)
                event = ShuffledSubset(local, symbols, own, honest)
            case "group":
                local = grouped_local_epsilon(*promise, honest, LIMIT, share)
                event = GroupedResponse(local, honest, share)
        if local > 1.02 * epsilon:  # otherwise the report keeps the promise alone, and no batch counts
            yield event, epsilon, delta


def wrong_promises(seed: int, cases: int) -> list[str]:
    """Return faults of random promises, and those that a calibration uses by less than 99 hundredths."""
    wrong = []
    for event, epsilon, delta in random_events(seed, cases):
        used = account(event).epsilon(delta)
        is_used = epsilon / NEAR <= used <= epsilon * (1 + DIGITS)
        wrong += faults(event, delta) + ([] if is_used else [f"{event}: {used:g} of {epsilon:g} is used"])
    return wrong


def by_night(first: int, last: int, cases: int) -> list[Any]:
    """More seeds, each with that many cases, for the night."""
    return [pytest.param(seed, cases, marks=pytest.mark.nightly) for seed in range(first, last)]


@pytest.mark.parametrize(("seed", "cases"), [(7, 15), *by_night(8, 58, 100)])
def test_random_promises_are_kept_and_used(seed, cases):
    assert not wrong_promises(seed, cases)


@pytest.mark.parametrize(("seed", "cases"), [(5, 2), *by_night(6, 26, 5)])
def test_several_reports_use_their_promise(seed, cases):
    rng, gap = random.Random(seed), next(gap for gap in GAPS if gap.name == "several reports")
    for _ in range(cases):
        epsilon, delta, honest = 10 ** rng.uniform(-0.7, 0.6), 10 ** rng.uniform(-9, -4), int(10 ** rng.uniform(2.5, 4))
        reports, symbols = rng.choice((2, 3, 5, 10, 20)), rng.choice((2, 3, 5, 9, 17, 33))
        local = allotted_local_epsilon(allot(epsilon, delta, reports, 1e-15), symbols, honest, LIMIT)
        event = Repeated(ShuffledResponse(local, symbols, honest), reports)
        assert find_gap(event) == gap
        assert epsilon / gap.max_ratio <= account(event).epsilon(delta) <= epsilon


@pytest.mark.parametrize(("factor", "fault"), [(0.9, "is refuted"), (2.0, "is far above the truth")])
def test_a_wrong_bound_is_caught(factor, fault, monkeypatch):
    """Planted: a tenth less than the bound, and twice as much."""
    monkeypatch.setattr(accountant, "shuffled_delta", lambda *arguments: factor * shuffled_delta(*arguments))
    assert fault in faults(ShuffledResponse(3.29, 5, 900), 1e-6)[0]


@pytest.mark.parametrize(
    ("event", "delta"),
    [
        (ShuffledResponse(3.177, 2, 900), 1e-6),
        (ShuffledResponse(4.0, 3, 90), 1e-6),
        (GroupedResponse(4.013, 1419, 0.5), 1.266e-5),
        (Sequential((Choice(0.3306), Gaussian(10.61, 2.0))), 1e-6),
    ],
)
def test_no_gap_is_listed_without_need(event, delta, monkeypatch):
    gap = find_gap(event)
    assert gap
    assert gap.reason
    assert gap.remedy
    assert not faults(event, delta)
    monkeypatch.setitem(globals(), "GAPS", [other for other in GAPS if other != gap])
    assert faults(event, delta)
