"""One battery for every mechanism: its own instances, and those that algorithms calibrate under every trust model.

Seeds are fixed; each comparison had a probability of 1e-6 to fail a right implementation when its seed was picked.
"""

import math
import pkgutil
from functools import lru_cache
from importlib import import_module

import msgspec
import numpy as np
import pytest

import privateer_core.mechanisms
from privateer_core.codec import decode, encode
from privateer_core.errors import BatchRefused, InputError, OutOfRange
from privateer_core.mechanisms import BitVectors, Mechanism, ScreenedMoments, VectorSymbol
from privateer_core.primitives.bounded_vectors import BoundedVectors
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.privacy.trust import TRUST
from privateer_lab.simulation.devices import SeededNoise
from privateer_papers.published_trust import ROWS
from tests.contract.subjects import (
    EXACT,
    KEYED_PAIRS,
    MECHANISMS,
    VECTOR_PAIRS,
    Subject,
    estimates,
    instances,
    numbers,
    outcomes,
    subjects,
    truths,
    variances,
)
from tests.support.partitions import same
from tests.support.statistics import centred, realised_epsilon, same_law

pytestmark = pytest.mark.battery

SUBJECTS, INSTANCES = subjects(), instances()
KEYED, VECTORS = ([name for name, one in INSTANCES.items() if one.keyed is keyed] for keyed in (True, False))
PURE = [
    (name, pair)
    for name, one in INSTANCES.items()
    for pair in (KEYED_PAIRS if one.keyed else VECTOR_PAIRS)
    if math.isfinite(one.mechanism.local_epsilon)
]
DRAWS = 600
OF_RELEASES = pytest.mark.battery(of="releases")
"""Functions that look at the same releases, which take longest to draw."""


@pytest.fixture(params=SUBJECTS, scope="module")
def subject(request) -> Subject:
    return SUBJECTS[request.param]()


@pytest.fixture(params=INSTANCES, scope="module")
def instance(request) -> Subject:
    return INSTANCES[request.param]


@pytest.fixture(params=VECTORS, scope="module")
def vectors(request) -> Subject:
    return INSTANCES[request.param]


@lru_cache(maxsize=128)
def collected(mechanism):
    """Releases by the real path."""
    rng = np.random.default_rng(11)
    return [Subject(mechanism).collected(rng) for _ in range(DRAWS)]


def simulated(subject, factor=1.0, draws=DRAWS):
    rng = np.random.default_rng(12)
    return [subject.simulated(rng, factor) for _ in range(draws)]


def test_every_mechanism_is_in_the_battery_and_serves_a_trust_model():
    for found in pkgutil.iter_modules(privateer_core.mechanisms.__path__, "privateer_core.mechanisms."):
        import_module(found.name)
    defined, left = set(), [Mechanism]
    while left:
        kind = left.pop()
        left += kind.__subclasses__()
        if kind.randomize is not Mechanism.randomize:
            defined.add(kind)
    servings = [serving for row in (*TRUST.values(), *ROWS.values()) for serving in row.serves.values()]
    served = {kind for serving in servings for kind in serving.mechanisms}
    assert set(MECHANISMS) == defined == set(EXACT) == served
    assert all(kind.instances() for kind in MECHANISMS)


@OF_RELEASES
def test_simulate_has_the_distribution_of_the_real_path(subject):
    real, drawn = ([numbers(one) for one in some] for some in (collected(subject.mechanism), simulated(subject)))
    assert same_law(real, drawn)


def test_a_simulation_with_less_noise_is_caught(instance):
    """Planted: the simulator's noise is that of a weaker promise, or is there where none should be.

    Of keyed means it is half as much epsilon again; a single sum of vectors shows no less than four times the epsilon.
    """
    weaker = simulated(instance, 1.5 if instance.keyed else 4.0)
    real, drawn = ([numbers(one) for one in some] for some in (collected(instance.mechanism), weaker))
    assert not same_law(real, drawn)


@OF_RELEASES
def test_estimates_are_unbiased(subject):
    """Planted: a bias of ten standard errors, where anything is random."""
    sample = np.array([estimates(one) for one in collected(subject.mechanism)])
    assert centred(sample, truths(subject))
    error = sample.std(axis=0) / np.sqrt(DRAWS)
    assert error.max() < 1e-9 or not centred(sample, truths(subject) + 10 * error)


@pytest.mark.parametrize("name", KEYED)
def test_a_wrong_gain_is_caught(name):
    """Planted: estimates debiased by half the gain."""
    one = INSTANCES[name]
    draws = 15 * DRAWS if getattr(one.mechanism, "epsilon", 0) == 1 else 4 * DRAWS
    sample = np.array([estimates(release) for release in simulated(one, draws=draws)])
    assert centred(sample, truths(one))
    assert not centred(2 * sample, truths(one))


@OF_RELEASES
def test_variances_are_right(subject):
    """Planted: variances a half too large."""
    sample, exact = np.array([estimates(one) for one in collected(subject.mechanism)]), variances(subject)
    squares = (sample - truths(subject)) ** 2
    if len(exact) == 1:
        squares = squares.mean(axis=1, keepdims=True)
    assert centred(squares, exact)
    assert exact.min() == 0 or not centred(squares, 1.5 * exact)


def test_add_is_additive_in_any_order(subject):
    one = subject.mechanism
    reports = one.parse(subject.reports().tobytes())
    whole = one.add(one.empty(), reports)
    assert same(whole, one.add(one.empty(), np.random.default_rng(1).permutation(reports)))
    single = one.empty()
    for part in np.array_split(reports, min(300, len(reports))):
        single = one.add(single, part)
    assert same(whole, single)


def test_totals_merge_in_any_order(subject):
    one = subject.mechanism
    reports = one.parse(subject.reports().tobytes())
    parts = [one.add(one.empty(), part) for part in np.array_split(reports, 4)]
    whole, forth, back = one.add(one.empty(), reports), one.empty(), one.empty()
    for part in parts:
        forth = one.merge(forth, part)
    for part in reversed(parts):
        back = one.merge(part, back)
    assert same(forth, whole)
    assert same(back, whole)
    assert same(one.merge(one.empty(), whole), whole)


def test_mechanisms_and_totals_round_trip(subject):
    one = subject.mechanism
    assert same(decode(encode(one), type(one)), one)
    for total in (one.empty(), one.add(one.empty(), subject.reports())):
        back = decode(encode(total), type(total))
        assert same(back, total)
        assert same(one.add(back, subject.reports(1)), one.add(total, subject.reports(1)))


def test_reports_have_one_size_and_number_whatever_they_say(subject):
    one = subject.mechanism
    for made in alone(one):
        report = one.randomize(made, SeededNoise(3)).tobytes()
        assert len(report) == one.report_size * one.messages
        assert one.parse(report).tobytes() == report


def alone(mechanism):
    """What single people of every kind contribute."""
    coins = np.array([9], np.uint32)
    if hasattr(mechanism, "layout"):
        for key in {-1, 0, mechanism.layout.keys - 1}:
            for value in (0.0, 0.3, 1.0):
                yield KeyedValues(coins, np.array([key]), np.array([0]), np.array([value]))
    else:
        for value in (-9.0, 0.0, 0.1, 9.0, 1e-320, 1e-200, 1e200, 1.7e308):
            yield BoundedVectors(coins, np.full((1, mechanism.ball.coordinates), value))


def test_what_no_client_makes_is_refused(subject):
    one = subject.mechanism
    for rows in (subject.reports().tobytes()[:-1], b"\x7e" * one.report_size):
        with pytest.raises(OutOfRange):
            one.parse(rows)


@lru_cache(maxsize=256)
def proved_epsilon(name, pair, factor=1.0):
    """Epsilon that 40,000 reports of each of two people prove, at ``factor`` times the claimed epsilon."""
    one = INSTANCES[name].mechanism
    made = one if factor == 1.0 else one.weaker(factor)
    left, right = (outcomes(made, pair[i], pair, 40_000, seed=i + 1) for i in (0, 1))
    return realised_epsilon(left, right)


@pytest.mark.parametrize(("name", "pair"), PURE, ids=str)
def test_the_realised_epsilon_is_below_the_claim(name, pair):
    assert proved_epsilon(name, pair) <= INSTANCES[name].mechanism.local_epsilon


@pytest.mark.parametrize("name", dict(PURE))
def test_half_the_noise_is_caught(name):
    """Planted: reports made for twice the epsilon; the honest ones come close to the claim, so the test has power."""
    one = INSTANCES[name]
    epsilon, worst = one.mechanism.local_epsilon, KEYED_PAIRS[:2] if one.keyed else VECTOR_PAIRS[:1]
    assert max(proved_epsilon(name, pair) for pair in worst) > 0.7 * epsilon
    assert max(proved_epsilon(name, pair, 2.0) for pair in worst) > epsilon


@pytest.mark.parametrize(
    "name", [name for name in VECTORS if not isinstance(INSTANCES[name].mechanism, ScreenedMoments)]
)
def test_a_release_says_no_less_than_its_noise(name):
    """The stated variance is that of the noise, without rounding; of a symbol, that of the worst vectors."""
    vectors = INSTANCES[name]
    one = vectors.mechanism
    stated = vectors.simulated(np.random.default_rng(0)).noise
    if getattr(one, "classes", 1) > 1:  # who is in a class is no noise
        stated, vectors = stated * one.classes, Subject(msgspec.structs.replace(one, classes=1))
    exact = float(variances(vectors).mean())
    people = len(vectors.people(np.random.default_rng(0)))
    if isinstance(one, VectorSymbol):
        assert exact <= stated * (1 + 1e-9)
        assert stated == pytest.approx(people * max(one.variance(0.0), one.variance(1.0)) / one.ball.coordinates)
    else:
        rounding = exact - stated
        assert -1e-9 * exact <= rounding
        assert rounding <= people * 0.25 * (one.unit if isinstance(one, BitVectors) else one.ball.step) ** 2


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, "shape", "one axis"])
def test_what_is_not_a_vector_is_refused_without_an_echo(vectors, bad):
    values = np.full((60, vectors.mechanism.ball.coordinates), 0.123456)
    if bad == "shape":
        values = values[:, :-1]
    elif bad == "one axis":
        values = values[0]
    else:
        values[0, 0] = bad
    made, one = BoundedVectors(np.ones(60, np.uint32), values), vectors.mechanism
    for refuses in (lambda: one.randomize(made, SeededNoise(1)), lambda: one.simulate(made, np.random.default_rng(1))):
        with pytest.raises(InputError) as refused:
            refuses()
        assert "0.123" not in str(refused.value)


@pytest.mark.parametrize("name", [name for name in VECTORS if hasattr(INSTANCES[name].mechanism, "least")])
def test_a_release_below_the_honest_minimum_is_refused(name):
    one = INSTANCES[name]
    few = one.mechanism.least - 1
    made = BoundedVectors(np.zeros(few, np.uint32), np.zeros((few, one.mechanism.ball.coordinates)))
    with pytest.raises(BatchRefused) as refused:
        one.collected(np.random.default_rng(1), made)
    assert str(few) in str(refused.value)
    with pytest.raises(BatchRefused):
        one.mechanism.simulate(made, np.random.default_rng(1))
