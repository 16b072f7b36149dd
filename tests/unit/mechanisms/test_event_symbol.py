"""The event symbol: what coins have a report tell, its counts, its variance, and where calibrations choose it."""

from dataclasses import replace

import numpy as np
import pytest

from privateer_core.errors import OutOfRange
from privateer_core.mechanisms import CentralSums, SignedSymbol
from privateer_core.mechanisms.event_symbol import NAMING, EventSymbol
from privateer_core.mechanisms.named_symbol import NamedSymbol
from privateer_core.policies.analyzers import ByChoices
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.public_coins import Layout
from privateer_core.primitives.questions import KeyedMeans, SmallDomainMeans
from privateer_core.privacy.terms import calibrate
from privateer_core.spec.privacy import Privacy
from privateer_lab.simulation.devices import SeededNoise
from privateer_server.rounds.loop import Schedule
from tests.support.specs import make_spec
from tests.support.statistics import centred, fits, same_law

EDGES = np.array([[20_000, 40_000], [10_000, 65_536], [0, 30_000]], np.uint32)


def mechanism(epsilon=1.0):
    return EventSymbol(Layout(5, EDGES), epsilon)


def people(n, key=0, value=1.0, seed=0):
    slots = np.random.default_rng(seed).integers(0, 2**32, n, dtype=np.uint32)
    return KeyedValues(slots, np.full(n, key), np.zeros(n, np.int64), np.full(n, value))


def released(one, told, seed=1):
    return one.release(one.add(one.empty(), one.randomize(told, SeededNoise(seed))), SeededNoise(0))


def question(keys, rate=0.005, **more):
    return KeyedMeans(Layout.ungrouped(keys, 5), 1.0, 1 / keys, rate, **more)


def test_a_tenth_of_the_coins_name_the_key():
    names = mechanism().names(people(100_000).coins)
    assert fits([names.sum(), (~names).sum()], [100_000 / NAMING, 100_000 * (1 - 1 / NAMING)])


@pytest.mark.parametrize(("value", "key"), [(1.0, 2), (0.0, 2), (1.0, -1)])
def test_nearly_noiseless_reports_say_what_their_coins_ask(value, key):
    """At epsilon 30 every report tells the truth: a key is named whatever the value is, and an event needs both."""
    one, told = mechanism(30.0), people(500, key, value)
    names = int(one.names(told.coins).sum())
    found = released(one, told)
    assert found.trials == names
    assert found.hits.tolist() == [0, 0, names if key == 2 else 0]
    assert found.sums[2].sum() == (500 - names if key == 2 and value else 0)
    assert found.counts.sum(axis=1).tolist() == [500 - names] * 3


@pytest.mark.parametrize("names", [True, False])
@pytest.mark.parametrize(("key", "value"), [(1, 1.0), (1, 0.0), (-1, 1.0)])
def test_symbols_are_randomized_response_around_the_truth(names, key, value):
    one = mechanism(1.0)
    told = people(400_000, key, value)
    reports = one.randomize(told, SeededNoise(3))
    assert (reports["slot"] == told.coins).all()
    symbols = reports["symbol"][one.names(told.coins) == names]
    truth = key + 1 if key >= 0 and (names or value) else 0
    expected = np.full(one.symbols, one.response.other)
    expected[truth] = one.response.truth
    assert fits(np.bincount(symbols, minlength=one.symbols), len(symbols) * expected)


def test_events_are_counted_report_by_report():
    """Against a loop that follows the definition."""
    one, rng, n = mechanism(2.0), np.random.default_rng(1), 400
    told = KeyedValues(
        rng.integers(0, 2**32, n, dtype=np.uint32), rng.integers(-1, 3, n), np.zeros(n, np.int64), rng.random(n)
    )
    reports = one.randomize(told, SeededNoise(1))
    sums, counts, hits, trials = np.zeros((3, 3)), np.zeros((3, 3)), np.zeros(3), 0
    for report in reports:
        coins, said = np.array([report["slot"]]), int(report["symbol"]) - 1
        if one.names(coins)[0]:
            trials += 1
            hits[said] += said >= 0
            continue
        for key in range(3):
            group = int(one.layout.group(one.layout.hashes(coins, np.array([key])), np.array([key]))[0])
            counts[key, group] += 1
            sums[key, group] += said == key
    total = one.add(one.empty(), reports)
    assert (total.sums == sums).all()
    assert (total.counts == counts).all()
    assert (total.hits == hits).all()
    assert (total.trials, total.reports) == (trials, n)


def test_released_probabilities():
    one, n = mechanism(1.5), 200_000
    for key, chances in ((0, ("hit_own", "hit_other")), (-1, ("hit_none", "hit_none"))):
        found = released(one, people(n, key, 0.25), seed=key + 2)
        for counted, chance in zip(found.hits, (getattr(found, name) for name in chances), strict=False):
            assert fits([counted, found.trials - counted], [found.trials * chance, found.trials * (1 - chance)])
        event = (0.25 * found.gain if key == 0 else 0.0) + found.other
        asked, events = found.counts[0].sum(), found.sums[0].sum()
        assert fits([events, asked - events], [asked * event, asked * (1 - event)])


@pytest.mark.parametrize(("epsilon", "keys", "rate"), [(3.2, 2, 0.005), (4.0, 8, 0.1), (2.0, 1, 0.3)])
def test_the_variance_is_that_of_an_estimate_of_share_and_rate(epsilon, keys, rate):
    """Planted: a variance a fifth smaller is noticed."""
    asked, n = question(keys, rate), 20_000
    one, rng = EventSymbol(asked.layout, epsilon), np.random.default_rng(4)
    shape, shares = (keys, 1, 2), np.tile([(1 - rate) / keys, rate / keys], keys)
    draws = [one.simulate_counts(rng.multinomial(n, shares).reshape(shape), 0, rng) for _ in range(6000)]
    events = np.array([(draw.sums[0, 0] / draw.counts[0, 0] - draw.other) / draw.gain for draw in draws])
    named = np.array([(draw.hits[0] / draw.trials - draw.other) / draw.gain for draw in draws])
    # To first order, that is how far their ratio is from the rate.
    squares = n * (events - rate * named)[:, None] ** 2
    assert centred(squares, one.variance(asked))
    assert not centred(squares, 0.8 * one.variance(asked))


@pytest.mark.parametrize(
    ("epsilon", "keys", "event", "signed"),
    [
        (1.0, 2, 1.27, 1.11),
        (2.0, 2, 0.21, 0.37),
        (3.2, 8, 0.058, 0.114),
        (4.0, 2, 0.022, 0.084),
        (4.0, 32, 0.03, 0.049),
    ],
)
def test_variances_of_both_symbols_at_a_rate_of_one_in_two_hundred(epsilon, keys, event, signed):
    """Against figures of an independent computation, per report that is about events."""
    asked, promise = question(keys), (epsilon, 0.0, 0, 9.0)
    found = EventSymbol.calibrated(asked, *promise).variance(asked) * (1 - 1 / NAMING)
    assert found == pytest.approx(event, rel=0.03)
    assert SignedSymbol.calibrated(asked, *promise).variance(asked) == pytest.approx(signed, rel=0.03)


def test_the_variance_of_a_signed_symbol_is_that_of_scores_less_hits():
    """Against the best linear control by least squares, over the exact law of score and hit."""
    asked = KeyedMeans(Layout.ungrouped(4, 5), 0.8, 0.2, 0.01)
    one = SignedSymbol(asked.layout, 2.0, 3, True)
    own, other, none = ((one.response.truth + one.response.other), 0.0, 2 * one.response.other)
    other = own / 3 + 2 * one.response.other * 2 / 3
    hit = 0.2 * own + 0.6 * other + 0.2 * none
    mean = one.response.gain * 0.2 * (2 * 0.01 - 1)
    score, covariance, spread = hit - mean**2, mean * (1 - hit), hit * (1 - hit)
    assert one.variance(asked) == pytest.approx((score - covariance**2 / spread) / (2 * one.response.gain) ** 2)


LOCAL, SHUFFLE = {"model": "local"}, {"model": "shuffle", "delta": 1e-6}


@pytest.mark.parametrize(
    ("privacy", "epsilon", "keys", "rate", "kind"),
    [
        (LOCAL, 4.0, 4, None, SignedSymbol),
        (LOCAL, 4.0, 4, 0.005, EventSymbol),
        (LOCAL, 4.0, 1, 0.005, SignedSymbol),
        (LOCAL, 1.0, 4, 0.005, SignedSymbol),
        (LOCAL, 1.0, 4, 0.5, SignedSymbol),
        (LOCAL, 4.0, 0, 0.005, SignedSymbol),
        (SHUFFLE, 1.0, 4, None, SignedSymbol),
        (SHUFFLE, 1.0, 4, 0.005, EventSymbol),
        (SHUFFLE, 1.0, 200, 0.005, SignedSymbol),
        ({"model": "central", "delta": 1e-6}, 1.0, 4, 0.005, CentralSums),
    ],
)
def test_calibrations_choose_the_symbol_of_the_least_variance(privacy, epsilon, keys, rate, kind):
    asked = KeyedMeans(Layout.ungrouped(keys, 5), 1.0, 1 / max(1, keys), rate)
    assert type(calibrate(Privacy(epsilon=epsilon, **privacy), 2000, asked).mechanism) is kind


def test_small_domains_name_their_keys_where_nobody_knows_a_rate():
    asked = SmallDomainMeans(Layout.ungrouped(4, 5), 1.0, 0.25)
    assert isinstance(calibrate(Privacy(epsilon=1.0, **SHUFFLE), 2000, asked).mechanism, NamedSymbol)


@pytest.mark.parametrize("reports", [1, 4])
def test_shuffled_events_keep_the_promise_of_several_reports(reports):
    """Planted: a little more local epsilon breaks it."""
    terms = calibrate(Privacy(epsilon=1.0, **SHUFFLE, local_epsilon_max=9.0), 20_000, question(3), reports=reports)
    assert isinstance(terms.mechanism, EventSymbol)
    assert terms.holds
    assert not replace(terms, mechanism=terms.mechanism.weaker(1.02)).holds


def late(seed, one, way):
    """What came of 400 people whose coins chose by an earlier plan; numbers of a release."""
    rng, earlier = np.random.default_rng(seed), Layout(77, EDGES[::-1].copy())
    told, by_choices = people(400, 0, 0.4, seed), ByChoices.of(one.layout, earlier)
    keys = rng.permutation(np.arange(400) % 4 - 1)
    groups = earlier.group(earlier.hashes(told.coins, np.maximum(keys, 0)), np.maximum(keys, 0))
    told = replace(told, keys=keys, groups=groups)
    if way == "sent":
        total = by_choices.tally(one, one.randomize(told, SeededNoise(seed)).tobytes())
        release = one.release(total, SeededNoise(0))
    else:
        release = by_choices.simulate(one, told, rng)
    return np.concatenate([release.sums.ravel(), release.counts.ravel(), release.hits, [release.trials]])


def test_reports_on_earlier_choices_are_counted_as_they_are_simulated():
    """Planted: a simulation with half as much epsilon again."""
    one = mechanism(3.0)
    sent, drawn = (
        [late(seed, one, way) for seed in range(start, start + 300)] for way, start in (("sent", 0), ("", 500))
    )
    assert same_law(sent, drawn)
    assert not same_law(sent, [late(seed, one.weaker(1.5), "drawn") for seed in range(300)])


@pytest.mark.parametrize(
    ("privacy", "rate", "kind"),
    [
        ({"privacy.model": "shuffle", "privacy.delta": 1e-6}, None, SignedSymbol),
        ({"privacy.model": "shuffle", "privacy.delta": 1e-6}, 0.005, EventSymbol),
        ({"privacy.model": "shuffle", "privacy.delta": 1e-6}, 0.5, SignedSymbol),
        ({"privacy.epsilon": 4.0}, 0.005, SignedSymbol),
    ],
)
def test_first_rounds_of_partitions_ask_by_the_declared_rate(privacy, rate, kind):
    """Under ``local`` they ask about one bin, where both symbols say as much of events."""
    policy = Schedule(make_spec({**privacy, "reward.base_rate": rate})).open(7, 1).policy
    assert type(policy.terms.mechanism) is kind


def test_what_is_no_report_is_refused():
    one = mechanism(1.0)
    reports = one.randomize(people(5), SeededNoise(1))
    assert (one.parse(reports.tobytes()) == reports).all()
    wrong = reports.copy()
    wrong["symbol"][3] = one.symbols
    for bad in (reports.tobytes()[:-1], wrong.tobytes(), b"\xff" * one.report_size):
        with pytest.raises(OutOfRange):
            one.parse(bad)
