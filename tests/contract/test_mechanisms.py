"""A battery for every mechanism: its own instances, and the instances of algorithms under every trust model.

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
from privateer_core.mechanisms import BitVectors, FeatureSums, Mechanism, RowSums, ScreenedMoments, VectorSymbol
from privateer_core.mechanisms.vectors.row_sums import RECORD_GRID
from privateer_core.primitives.bounded_vectors import BoundedVectors
from privateer_core.primitives.contributions import FeatureValues, KeyedValues, RowValues
from privateer_core.privacy.trust import TRUST
from privateer_lab.simulation.scores import SeededNoise
from privateer_papers.published_trust import PUBLISHED_TRUST
from tests.contract.moments import EXACT, truths, variances
from tests.contract.pairs import KEYED_PAIRS, VECTOR_PAIRS, label_rows
from tests.contract.subjects import MECHANISMS, Subject, estimates, instances, numbers, subjects
from tests.support.partitions import same
from tests.support.statistics import centred, realised_epsilon, same_law

pytestmark = pytest.mark.battery

SUBJECTS, INSTANCES = subjects(), instances()
KEYED = [name for name, subject in INSTANCES.items() if subject.keyed]
VECTORS = [
    name
    for name, subject in INSTANCES.items()
    if hasattr(subject.mechanism, "ball") and not isinstance(subject.mechanism, RowSums)
]
SUMS = [
    name for name, subject in INSTANCES.items() if not (subject.keyed or isinstance(subject.mechanism, ScreenedMoments))
]
PURE = [
    (name, pair)
    for name, subject in INSTANCES.items()
    for pair in (KEYED_PAIRS if subject.keyed else VECTOR_PAIRS)
    if math.isfinite(subject.mechanism.local_epsilon)
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
def collect(mechanism):
    """Releases by the real path."""
    rng = np.random.default_rng(11)
    return [Subject(mechanism).collected(rng) for _ in range(DRAWS)]


def simulate(subject, factor=1.0, draws=DRAWS):
    rng = np.random.default_rng(12)
    return [subject.simulated(rng, factor) for _ in range(draws)]


def test_every_mechanism_is_in_the_battery_and_serves_a_trust_model():
    for iter_module in pkgutil.iter_modules(privateer_core.mechanisms.__path__, "privateer_core.mechanisms."):
        import_module(iter_module.name)
    defined, pending = set(), [Mechanism]
    while pending:
        kind = pending.pop()
        pending += kind.__subclasses__()
        if any("instances" in vars(base) for base in kind.__mro__[: kind.__mro__.index(Mechanism)]):
            defined.add(kind)
    servings = [serving for row in (*TRUST.values(), *PUBLISHED_TRUST.values()) for serving in row.serves.values()]
    served = {kind for serving in servings for kind in serving.mechanisms}
    assert set(MECHANISMS) == defined == set(EXACT) == served
    assert all(kind.instances() for kind in MECHANISMS)


@OF_RELEASES
def test_simulate_has_the_distribution_of_the_real_path(subject):
    real, fake = ([numbers(r) for r in releases] for releases in (collect(subject.mechanism), simulate(subject)))
    assert same_law(real, fake)


def test_a_simulation_with_less_noise_is_caught(instance):
    """Planted: the simulator's noise is that of a weaker promise, or is there where none should be.

    Of keyed means it is half as much epsilon again; a single sum of vectors shows no less than four times the epsilon.
    """
    weaker = simulate(instance, 1.5 if instance.keyed else 4.0)
    real, fake = ([numbers(r) for r in releases] for releases in (collect(instance.mechanism), weaker))
    assert not same_law(real, fake)


@OF_RELEASES
def test_estimates_are_unbiased(subject):
    """Planted: a bias of ten standard errors, where anything is random."""
    sample = np.array([estimates(release) for release in collect(subject.mechanism)])
    assert centred(sample, truths(subject))
    error = sample.std(axis=0) / np.sqrt(DRAWS)
    assert error.max() < 1e-9 or not centred(sample, truths(subject) + 10 * error)


@pytest.mark.parametrize("name", KEYED)
def test_a_wrong_gain_is_caught(name):
    """Planted: estimates debiased by half the gain."""
    subject = INSTANCES[name]
    draws = 15 * DRAWS if getattr(subject.mechanism, "epsilon", 0) == 1 else 4 * DRAWS
    sample = np.array([estimates(release) for release in simulate(subject, draws=draws)])
    assert centred(sample, truths(subject))
    assert not centred(2 * sample, truths(subject))


@OF_RELEASES
def test_variances_are_right(subject):
    """Planted: variances a half too large."""
    sample, exact = np.array([estimates(release) for release in collect(subject.mechanism)]), variances(subject)
    squares = (sample - truths(subject)) ** 2
    if len(exact) == 1:
        squares = squares.mean(axis=1, keepdims=True)
    assert centred(squares, exact)
    assert exact.min() == 0 or not centred(squares, 1.5 * exact)


def test_add_is_additive_in_any_order(subject):
    mechanism = subject.mechanism
    reports = mechanism.parse(subject.reports().tobytes())
    whole = mechanism.add(mechanism.empty(), reports)
    assert same(whole, mechanism.add(mechanism.empty(), np.random.default_rng(1).permutation(reports)))
    single = mechanism.empty()
    for part in np.array_split(reports, min(300, len(reports))):
        single = mechanism.add(single, part)
    assert same(whole, single)


def test_totals_merge_in_any_order(subject):
    mechanism = subject.mechanism
    reports = mechanism.parse(subject.reports().tobytes())
    parts = [mechanism.add(mechanism.empty(), part) for part in np.array_split(reports, 4)]
    whole, forth, back = mechanism.add(mechanism.empty(), reports), mechanism.empty(), mechanism.empty()
    for part in parts:
        forth = mechanism.merge(forth, part)
    for part in reversed(parts):
        back = mechanism.merge(part, back)
    assert same(forth, whole)
    assert same(back, whole)
    assert same(mechanism.merge(mechanism.empty(), whole), whole)


def test_mechanisms_and_totals_round_trip(subject):
    mechanism = subject.mechanism
    assert same(decode(encode(mechanism), type(mechanism)), mechanism)
    for total in (mechanism.empty(), mechanism.add(mechanism.empty(), subject.reports())):
        back = decode(encode(total), type(total))
        assert same(back, total)
        assert same(mechanism.add(back, subject.reports(1)), mechanism.add(total, subject.reports(1)))


def test_reports_have_one_size_and_number_for_every_contribution(subject):
    mechanism = subject.mechanism
    for contributions in single_contributions(mechanism):
        report = mechanism.randomize(contributions, SeededNoise(3)).tobytes()
        assert len(report) == mechanism.report_size * mechanism.messages
        assert mechanism.parse(report).tobytes() == report


def single_contributions(mechanism):
    """Yield contributions of single participants of every kind."""
    coins = np.array([9], np.uint32)
    if hasattr(mechanism, "layout"):
        for key in {-1, 0, mechanism.layout.keys - 1}:
            for value in (0.0, 0.3, 1.0):
                yield KeyedValues(coins, np.array([key]), np.array([0]), np.array([value]))
    elif isinstance(mechanism, FeatureSums):
        last = np.array([mechanism.sizes]) - 1
        for value in (-9.0, 0.0, 0.1, 9.0, 1e-320, 1.7e308):
            yield FeatureValues(coins, np.array([mechanism.arms - 1]), last, np.array([value]))
    elif isinstance(mechanism, RowSums):
        arms = np.array([mechanism.ball.arms - 1])
        for value in (-9.0, 0.0, 0.1, 9.0, 1e-320, 1e-200, 1e200, 1.7e308):
            yield RowValues(coins, arms, np.full((1, mechanism.ball.dimension), value), np.array([value]))
    else:
        for value in (-9.0, 0.0, 0.1, 9.0, 1e-320, 1e-200, 1e200, 1.7e308):
            yield BoundedVectors(coins, np.full((1, mechanism.ball.coordinates), value))


def test_reports_that_no_client_can_make_are_refused(subject):
    mechanism = subject.mechanism
    for rows in (subject.reports().tobytes()[:-1], b"\x7e" * mechanism.report_size):
        with pytest.raises(OutOfRange):
            mechanism.parse(rows)


@lru_cache(maxsize=256)
def prove_epsilon(name, pair, factor=1.0):
    """Epsilon that 40,000 reports of each of two people prove, at ``factor`` times the claimed epsilon."""
    mechanism = INSTANCES[name].mechanism
    tested = mechanism if factor == 1.0 else mechanism.with_less_noise(factor)
    left, right = (label_rows(tested, pair[i], pair, 40_000, seed=i + 1) for i in (0, 1))
    return realised_epsilon(left, right)


@pytest.mark.parametrize(("name", "pair"), PURE, ids=str)
def test_the_realised_epsilon_is_below_the_claim(name, pair):
    assert prove_epsilon(name, pair) <= INSTANCES[name].mechanism.local_epsilon


@pytest.mark.parametrize("name", dict(PURE))
def test_half_the_noise_is_caught(name):
    """Planted: reports made for twice the epsilon; the honest ones come close to the claim, so the test has power."""
    subject = INSTANCES[name]
    epsilon, worst = subject.mechanism.local_epsilon, KEYED_PAIRS[:2] if subject.keyed else VECTOR_PAIRS[:1]
    assert max(prove_epsilon(name, pair) for pair in worst) > 0.7 * epsilon
    assert max(prove_epsilon(name, pair, 2.0) for pair in worst) > epsilon


@pytest.mark.parametrize("name", SUMS)
def test_a_release_states_the_variance_of_its_noise(name):
    """The stated variance is that of the noise, without rounding; of a symbol, that of the worst vectors."""
    vectors = INSTANCES[name]
    mechanism = vectors.mechanism
    stated = vectors.simulated(np.random.default_rng(0)).noise
    if getattr(mechanism, "classes", 1) > 1:  # who is in a class is no noise
        stated, vectors = stated * mechanism.classes, Subject(msgspec.structs.replace(mechanism, classes=1))
    exact = float(variances(vectors).mean())
    people = len(vectors.people(np.random.default_rng(0)))
    if isinstance(mechanism, VectorSymbol):
        assert exact <= stated * (1 + 1e-9)
        assert stated == pytest.approx(
            people * max(mechanism.variance(0.0), mechanism.variance(1.0)) / mechanism.ball.coordinates
        )
    else:
        rounding = exact - stated
        assert -1e-9 * exact <= rounding
        if isinstance(mechanism, FeatureSums):
            unit = mechanism.step * max(mechanism.value_scales)
        elif isinstance(mechanism, RowSums):
            unit = 4 / RECORD_GRID
        else:
            unit = mechanism.unit if isinstance(mechanism, BitVectors) else mechanism.ball.step
        assert rounding <= people * 0.25 * unit**2


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, "shape", "one axis"])
def test_what_is_not_a_vector_is_refused_without_an_echo(vectors, bad):
    values = np.full((60, vectors.mechanism.ball.coordinates), 0.123456)
    if bad == "shape":
        values = values[:, :-1]
    elif bad == "one axis":
        values = values[0]
    else:
        values[0, 0] = bad
    bounded_vectors, mechanism = BoundedVectors(np.ones(60, np.uint32), values), vectors.mechanism
    for refuses in (
        lambda: mechanism.randomize(bounded_vectors, SeededNoise(1)),
        lambda: mechanism.simulate(bounded_vectors, np.random.default_rng(1)),
    ):
        with pytest.raises(InputError) as refused:
            refuses()
        assert "0.123" not in str(refused.value)


@pytest.mark.parametrize("name", [name for name in VECTORS if hasattr(INSTANCES[name].mechanism, "least")])
def test_a_release_below_the_honest_minimum_is_refused(name):
    subject = INSTANCES[name]
    size = subject.mechanism.least - 1
    bounded_vectors = BoundedVectors(np.zeros(size, np.uint32), np.zeros((size, subject.mechanism.ball.coordinates)))
    with pytest.raises(BatchRefused) as refused:
        subject.collected(np.random.default_rng(1), bounded_vectors)
    assert str(size) in str(refused.value)
    with pytest.raises(BatchRefused):
        subject.mechanism.simulate(bounded_vectors, np.random.default_rng(1))
