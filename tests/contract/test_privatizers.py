"""One battery for every mechanism, by itself and as every learner calibrates it.

Seeds are fixed; each comparison had a chance of 1e-6 to fail a right implementation when its seed was picked.
"""

from functools import cache

import numpy as np
import pytest

from privateer.codec import decode, encode
from privateer.contributions import KeyedValues
from privateer_lab.noise import SeededNoise
from tests.contract import registry
from tests.contract.registry import Case
from tests.contract.vectors import VECTORS
from tests.support.partitions import same
from tests.support.statistics import centred, realised_epsilon, same_law

CASES = registry.cases()
ALONE = [name for entries in registry.PRIVATIZERS.values() for name in entries]
LOCAL = [name for kind in registry.LOCAL for name in registry.PRIVATIZERS[kind]]
DRAWS = 600


@pytest.fixture(params=CASES, scope="module")
def case(request) -> Case:
    return CASES[request.param]()


@pytest.fixture(scope="module")
def collected(case):
    """Releases by the real path."""
    rng = np.random.default_rng(11)
    return [case.collected(rng) for _ in range(DRAWS)]


@pytest.fixture(params=ALONE, scope="module")
def alone(request) -> Case:
    return CASES[request.param]()


def simulated(case, mechanism, draws=DRAWS):
    rng = np.random.default_rng(12)
    return np.array([registry.numbers(mechanism.simulate(case.people(rng), rng)) for _ in range(draws)])


def test_every_mechanism_is_in_the_battery():
    assert registry.mechanisms() == set(registry.PRIVATIZERS) | set(VECTORS)
    assert all(registry.PRIVATIZERS.values())
    assert all(VECTORS.values())


def test_simulate_has_the_law_of_the_real_path(case, collected):
    real = np.array([registry.numbers(release) for release in collected])
    assert same_law(real, simulated(case, case.mechanism))


def test_a_simulation_with_another_epsilon_is_caught(alone):
    """Planted: the simulator's noise is that of an epsilon a half larger, or is there where none should be."""
    rng = np.random.default_rng(11)
    real = np.array([registry.numbers(alone.collected(rng)) for _ in range(DRAWS)])
    assert not same_law(real, simulated(alone, registry.weaker(alone.mechanism, 1.5)))


def test_estimates_are_unbiased(case, collected):
    sample = np.array([registry.estimates(case, release) for release in collected])
    assert centred(sample, registry.truths(case))


def test_a_wrong_gain_is_caught(alone):
    """Planted: estimates debiased by half the gain."""
    rng = np.random.default_rng(11)
    draws = 15 * DRAWS if getattr(alone.mechanism, "epsilon", 0) == 1 else 4 * DRAWS
    sample = np.array(
        [registry.estimates(alone, alone.mechanism.simulate(alone.people(rng), rng)) for _ in range(draws)]
    )
    assert centred(sample, registry.truths(alone))
    assert not centred(2 * sample, registry.truths(alone))


def test_variances_are_right(case, collected):
    sample = np.array([registry.estimates(case, release) for release in collected])
    squares = (sample - registry.truths(case)) ** 2
    assert centred(squares, registry.variances(case))
    assert not centred(squares, 1.5 * registry.variances(case)), "planted: variances a half too large"


def reports_of(case, seed=0):
    return case.mechanism.randomize(case.people(np.random.default_rng(seed)), SeededNoise(seed))


def test_add_is_additive_in_any_order(case):
    one, reports = case.mechanism, reports_of(case)
    whole = one.add(one.empty(), reports)
    shuffled = one.add(one.empty(), np.random.default_rng(1).permutation(reports))
    assert same(whole, shuffled)
    single = one.empty()
    for index in range(len(reports)):
        single = one.add(single, reports[index : index + 1])
    assert same(whole, single)


def test_totals_merge_in_any_order(case):
    one, reports = case.mechanism, reports_of(case)
    parts = [one.add(one.empty(), part) for part in np.array_split(reports, 4)]
    whole = one.add(one.empty(), reports)
    forth, back = one.empty(), one.empty()
    for part in parts:
        forth = one.merge(forth, part)
    for part in reversed(parts):
        back = one.merge(part, back)
    assert same(forth, whole)
    assert same(back, whole)
    assert same(one.merge(one.empty(), whole), whole)


def test_totals_round_trip(case):
    one = case.mechanism
    for total in (one.empty(), one.add(one.empty(), reports_of(case))):
        back = decode(encode(total), type(total))
        assert same(back, total)
        assert same(one.add(back, reports_of(case, 1)), one.add(total, reports_of(case, 1)))


def test_reports_have_one_size_whatever_they_say(case):
    one, layout = case.mechanism, case.layout
    for key in (-1, 0, layout.keys - 1):
        for value in (0.0, 0.3, 1.0):
            told = KeyedValues(np.array([9], np.uint32), np.array([key]), np.array([0]), np.array([value]))
            report = one.randomize(told, SeededNoise(3))
            assert len(report) == 1
            assert len(report.tobytes()) == one.report_size
            assert one.parse(report.tobytes()).tobytes() == report.tobytes()


PAIRS = [
    ((0, 0, 1.0), (0, 0, 0.0)),
    ((0, 1, 1.0), (1, 0, 1.0)),
    ((1, 0, 0.0), (-1, 0, 0.0)),
    ((0, 2, 0.5), (-1, 0, 1.0)),
    ((2, 1, 1.0), (3, 0, 0.0)),
]


@cache
def proved_epsilon(mechanism_name, pair, factor=1.0):
    """Epsilon that 40,000 reports of each of two people prove, at ``factor`` times the claimed epsilon."""
    one = CASES[mechanism_name]().mechanism
    made = registry.weaker(one, factor)
    left, right = (registry.outcomes(made, pair[i], pair, 40_000, seed=i + 1) for i in (0, 1))
    return realised_epsilon(left, right)


@pytest.mark.parametrize("pair", PAIRS, ids=str)
@pytest.mark.parametrize("name", LOCAL)
def test_the_realised_epsilon_is_below_the_claim(name, pair):
    assert proved_epsilon(name, pair) <= CASES[name]().mechanism.epsilon


@pytest.mark.parametrize("name", LOCAL)
def test_half_the_noise_is_caught(name):
    """Planted: reports made for twice the epsilon; the honest ones come close to the claim, so the test has power."""
    epsilon, worst = CASES[name]().mechanism.epsilon, PAIRS[:2]
    assert max(proved_epsilon(name, pair) for pair in worst) > 0.7 * epsilon
    assert max(proved_epsilon(name, pair, 2.0) for pair in worst) > epsilon
