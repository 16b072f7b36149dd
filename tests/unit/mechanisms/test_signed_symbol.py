"""The signed symbol: truth by slot, parsing, scores and the constants that debias."""

import numpy as np
import pytest

from privateer_core.errors import OutOfRange
from privateer_core.mechanisms.mechanism import REPORT
from privateer_core.mechanisms.signed_symbol import SignedSymbol
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.public_coins import Layout, hash_to_bucket, hash_to_sign
from privateer_core.sampling.randomness import draw_signs
from privateer_lab.simulation.scores import SeededNoise
from tests.support.statistics import is_compatible
from tests.unit.mechanisms.test_event_symbol import EDGES, people

ALPHABETS = [(1, False), (1, True), (3, False), (4, True), (1024, True)]


def mechanism(epsilon=1.0, buckets=1, elsewhere=False):
    return SignedSymbol(Layout(5, EDGES), epsilon, buckets, elsewhere)


@pytest.mark.parametrize("value", [0.0, 0.1, 0.5, 1.0])
def test_bernoulli_is_unbiased(value):
    signs = draw_signs(np.full(200_000, value), SeededNoise(2))
    assert is_compatible([(signs > 0).sum(), (signs < 0).sum()], [200_000 * value, 200_000 * (1 - value)])


@pytest.mark.parametrize(("buckets", "elsewhere"), ALPHABETS)
def test_nearly_noiseless_reports_decode_to_the_value(buckets, elsewhere):
    """At epsilon 30 every report is true, so a report of value 1 scores 1 at its own key, of 0 -1."""
    symbol = mechanism(30.0, buckets, elsewhere)
    for value, score in ((1.0, 1), (0.0, -1)):
        total = symbol.add(symbol.empty(), symbol.randomize(people(500, 2, value), SeededNoise(1)))
        assert total.sums[2].sum() == score * 500
        assert total.hits[2] == 500


@pytest.mark.parametrize(("buckets", "elsewhere"), ALPHABETS)
@pytest.mark.parametrize("key", [0, -1])
def test_symbols_are_randomized_response_around_the_truth(buckets, elsewhere, key):
    symbol, n = mechanism(1.0, buckets, elsewhere), 100_000
    contributions = people(n, key, 1.0)
    reports = symbol.randomize(contributions, SeededNoise(3))
    hashes = symbol.layout.hashes(contributions.coins, np.zeros(n, np.int64))
    truth = 2 * hash_to_bucket(hashes, buckets) + (hash_to_sign(hashes) > 0)
    if key < 0:
        truth = np.full(n, 2 * buckets)
    right = int((reports["symbol"] == truth).sum())
    probability = symbol.response.truth if key >= 0 or elsewhere else 0.0
    assert is_compatible([right, n - right], [n * probability, n * (1 - probability)])
    assert (reports["slot"] == contributions.coins).all()


def test_sums_are_counted_report_by_report():
    """Against a loop that follows the definition."""
    symbol = mechanism(2.0, 3, True)
    rng = np.random.default_rng(1)
    n = 300
    keyed_values = KeyedValues(
        rng.integers(0, 2**32, n, dtype=np.uint32), rng.integers(-1, 3, n), np.zeros(n, np.int64), rng.random(n)
    )
    reports = symbol.randomize(keyed_values, SeededNoise(1))
    sums, counts, hits = np.zeros((3, 3)), np.zeros((3, 3)), np.zeros(3)
    for report in reports:
        for key in range(3):
            word = symbol.layout.hashes(np.array([report["slot"]]), np.array([key]))
            group = int(symbol.layout.find_groups(word, np.array([key]))[0])
            counts[key, group] += 1
            if int(report["symbol"]) // 2 == hash_to_bucket(word, 3)[0]:
                hits[key] += 1
                sums[key, group] += hash_to_sign(word)[0] * (1 if report["symbol"] % 2 else -1)
    total = symbol.add(symbol.empty(), reports)
    assert (total.sums == sums).all()
    assert (total.counts == counts).all()
    assert (total.hits == hits).all()
    assert total.reports == n


def test_blocks_do_not_change_the_total(monkeypatch):
    from privateer_core.mechanisms import signed_symbol

    symbol = mechanism(1.0, 2, True)
    reports = symbol.randomize(people(1000), SeededNoise(1))
    whole = symbol.add(symbol.empty(), reports)
    monkeypatch.setattr(signed_symbol, "BLOCK", 7)
    pieces = symbol.add(symbol.empty(), reports)
    assert (whole.sums == pieces.sums).all()
    assert (whole.hits == pieces.hits).all()


def test_no_keys_and_no_reports():
    signed_symbol = SignedSymbol(Layout(5, np.zeros((0, 2), np.uint32)), 1.0, 1, False)
    reports = signed_symbol.randomize(people(100, -1), SeededNoise(1))
    total = signed_symbol.add(signed_symbol.empty(), reports)
    assert total.reports == 100
    assert total.sums.shape == (0, 3)
    assert signed_symbol.simulate(people(100, -1), np.random.default_rng(1)).reports == 100
    assert mechanism().add(mechanism().empty(), np.zeros(0, REPORT)).reports == 0


@pytest.mark.parametrize(("buckets", "elsewhere"), ALPHABETS)
def test_a_malformed_report_is_refused(buckets, elsewhere):
    symbol = mechanism(1.0, buckets, elsewhere)
    reports = symbol.randomize(people(5), SeededNoise(1))
    assert (symbol.parse(reports.tobytes()) == reports).all()
    assert len(reports.tobytes()) == 5 * symbol.report_size
    wrong = reports.copy()
    wrong["symbol"][3] = 2 * buckets + elsewhere
    for bad in (reports.tobytes()[:-1], wrong.tobytes(), b"\xff" * symbol.report_size):
        with pytest.raises(OutOfRange):
            symbol.parse(bad)


@pytest.mark.parametrize(("buckets", "elsewhere"), ALPHABETS)
def test_released_chances_of_a_score(buckets, elsewhere):
    symbol, n = mechanism(1.5, buckets, elsewhere), 200_000
    zero = symbol.release(symbol.add(symbol.empty(), symbol.randomize(people(n, 0), SeededNoise(1))), SeededNoise(0))
    none = symbol.release(symbol.add(symbol.empty(), symbol.randomize(people(n, -1), SeededNoise(2))), SeededNoise(0))
    for released, key, probability in ((zero, 0, zero.hit_own), (zero, 1, zero.hit_other), (none, 0, none.hit_none)):
        assert is_compatible([released.hits[key], n - released.hits[key]], [n * probability, n * (1 - probability)])
