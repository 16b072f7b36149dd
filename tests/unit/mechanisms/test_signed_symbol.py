"""The signed symbol: truth by slot, parsing, scores and the constants that debias."""

import numpy as np
import pytest

from privateer_core.errors import OutOfRange
from privateer_core.mechanisms.local_symbol import REPORT
from privateer_core.mechanisms.signed_symbol import SignedSymbol
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.public_coins import Layout, bucket, sign
from privateer_core.sampling.response import bernoulli
from privateer_lab.simulation.devices import SeededNoise
from tests.support.statistics import fits

EDGES = np.array([[20_000, 40_000], [10_000, 65_536], [0, 30_000]], np.uint32)
ALPHABETS = [(1, False), (1, True), (3, False), (4, True), (1024, True)]


def mechanism(epsilon=1.0, buckets=1, elsewhere=False):
    return SignedSymbol(Layout(5, EDGES), epsilon, buckets, elsewhere)


def people(n, key=0, value=1.0, seed=0):
    slots = np.random.default_rng(seed).integers(0, 2**32, n, dtype=np.uint32)
    return KeyedValues(slots, np.full(n, key), np.zeros(n, np.int64), np.full(n, value))


@pytest.mark.parametrize("value", [0.0, 0.1, 0.5, 1.0])
def test_bernoulli_is_unbiased(value):
    signs = bernoulli(np.full(200_000, value), SeededNoise(2))
    assert fits([(signs > 0).sum(), (signs < 0).sum()], [200_000 * value, 200_000 * (1 - value)])


@pytest.mark.parametrize(("buckets", "elsewhere"), ALPHABETS)
def test_nearly_noiseless_reports_decode_to_the_value(buckets, elsewhere):
    """At epsilon 30 every report tells the truth, so a report of value 1 scores 1 at its own key, of 0 -1."""
    one = mechanism(30.0, buckets, elsewhere)
    for value, score in ((1.0, 1), (0.0, -1)):
        total = one.add(one.empty(), one.randomize(people(500, 2, value), SeededNoise(1)))
        assert total.sums[2].sum() == score * 500
        assert total.hits[2] == 500


@pytest.mark.parametrize(("buckets", "elsewhere"), ALPHABETS)
@pytest.mark.parametrize("key", [0, -1])
def test_symbols_are_randomized_response_around_the_truth(buckets, elsewhere, key):
    one, n = mechanism(1.0, buckets, elsewhere), 100_000
    told = people(n, key, 1.0)
    reports = one.randomize(told, SeededNoise(3))
    hashes = one.layout.hashes(told.coins, np.zeros(n, np.int64))
    truth = 2 * bucket(hashes, buckets) + (sign(hashes) > 0)
    if key < 0:
        truth = np.full(n, 2 * buckets)
    right = int((reports["symbol"] == truth).sum())
    probability = one.response.truth if key >= 0 or elsewhere else 0.0
    assert fits([right, n - right], [n * probability, n * (1 - probability)])
    assert (reports["slot"] == told.coins).all()


def test_sums_are_counted_report_by_report():
    """Against a loop that follows the definition."""
    one = mechanism(2.0, 3, True)
    rng = np.random.default_rng(1)
    n = 300
    told = KeyedValues(
        rng.integers(0, 2**32, n, dtype=np.uint32), rng.integers(-1, 3, n), np.zeros(n, np.int64), rng.random(n)
    )
    reports = one.randomize(told, SeededNoise(1))
    sums, counts, hits = np.zeros((3, 3)), np.zeros((3, 3)), np.zeros(3)
    for report in reports:
        for key in range(3):
            word = one.layout.hashes(np.array([report["slot"]]), np.array([key]))
            group = int(one.layout.group(word, np.array([key]))[0])
            counts[key, group] += 1
            if int(report["symbol"]) // 2 == bucket(word, 3)[0]:
                hits[key] += 1
                sums[key, group] += sign(word)[0] * (1 if report["symbol"] % 2 else -1)
    total = one.add(one.empty(), reports)
    assert (total.sums == sums).all()
    assert (total.counts == counts).all()
    assert (total.hits == hits).all()
    assert total.reports == n


def test_blocks_do_not_change_the_total(monkeypatch):
    from privateer_core.mechanisms import signed_symbol

    one = mechanism(1.0, 2, True)
    reports = one.randomize(people(1000), SeededNoise(1))
    whole = one.add(one.empty(), reports)
    monkeypatch.setattr(signed_symbol, "BLOCK", 7)
    pieces = one.add(one.empty(), reports)
    assert (whole.sums == pieces.sums).all()
    assert (whole.hits == pieces.hits).all()


def test_no_keys_and_no_reports():
    one = SignedSymbol(Layout(5, np.zeros((0, 2), np.uint32)), 1.0, 1, False)
    reports = one.randomize(people(100, -1), SeededNoise(1))
    total = one.add(one.empty(), reports)
    assert total.reports == 100
    assert total.sums.shape == (0, 3)
    assert one.simulate(people(100, -1), np.random.default_rng(1)).reports == 100
    assert mechanism().add(mechanism().empty(), np.zeros(0, REPORT)).reports == 0


@pytest.mark.parametrize(("buckets", "elsewhere"), ALPHABETS)
def test_what_is_no_report_is_refused(buckets, elsewhere):
    one = mechanism(1.0, buckets, elsewhere)
    reports = one.randomize(people(5), SeededNoise(1))
    assert (one.parse(reports.tobytes()) == reports).all()
    assert len(reports.tobytes()) == 5 * one.report_size
    wrong = reports.copy()
    wrong["symbol"][3] = 2 * buckets + elsewhere
    for bad in (reports.tobytes()[:-1], wrong.tobytes(), b"\xff" * one.report_size):
        with pytest.raises(OutOfRange):
            one.parse(bad)


@pytest.mark.parametrize(("buckets", "elsewhere"), ALPHABETS)
def test_released_chances_of_a_score(buckets, elsewhere):
    one, n = mechanism(1.5, buckets, elsewhere), 200_000
    own = one.release(one.add(one.empty(), one.randomize(people(n, 0), SeededNoise(1))), SeededNoise(0))
    none = one.release(one.add(one.empty(), one.randomize(people(n, -1), SeededNoise(2))), SeededNoise(0))
    for released, key, probability in ((own, 0, own.hit_own), (own, 1, own.hit_other), (none, 0, none.hit_none)):
        assert fits([released.hits[key], n - released.hits[key]], [n * probability, n * (1 - probability)])
