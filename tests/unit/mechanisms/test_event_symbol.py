"""The event symbol: the reports that coins request, their counts and variance, and calibrations that choose it."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from privateer_core.errors import OutOfRange
from privateer_core.mechanisms import CentralSums, SignedSymbol
from privateer_core.mechanisms.event_symbol import KEY_REPORT_CLASSES, EventSymbol
from privateer_core.mechanisms.named_symbol import NamedSymbol
from privateer_core.policies.policy import ChoiceAnalyzer
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.public_coins import Layout
from privateer_core.primitives.questions import KeyedMeans, SmallDomainMeans
from privateer_core.privacy.terms import calibrate
from privateer_core.spec.privacy import Privacy
from privateer_lab.simulation.scores import SeededNoise
from privateer_server.rounds.schedule import Schedule
from tests.support.specs import make_spec
from tests.support.statistics import centred, is_compatible, same_law

EDGES = np.array([[20_000, 40_000], [10_000, 65_536], [0, 30_000]], np.uint32)


def mechanism(epsilon=1.0):
    return EventSymbol(Layout(5, EDGES), epsilon)


def people(n, key=0, value=1.0, seed=0):
    slots = np.random.default_rng(seed).integers(0, 2**32, n, dtype=np.uint32)
    return KeyedValues(slots, np.full(n, key), np.zeros(n, np.int64), np.full(n, value))


def release_of(symbol, values, seed=1):
    return symbol.release(symbol.add(symbol.empty(), symbol.randomize(values, SeededNoise(seed))), SeededNoise(0))


def question(keys, rate=0.005, **options):
    return KeyedMeans(Layout.ungrouped(keys, 5), 1.0, 1 / keys, rate, **options)


def test_a_tenth_of_the_coins_name_the_key():
    names = mechanism().is_key_report(people(100_000).coins)
    assert is_compatible(
        [names.sum(), (~names).sum()], [100_000 / KEY_REPORT_CLASSES, 100_000 * (1 - 1 / KEY_REPORT_CLASSES)]
    )


@pytest.mark.parametrize(("value", "key"), [(1.0, 2), (0.0, 2), (1.0, -1)])
def test_nearly_noiseless_reports_say_what_their_coins_ask(value, key):
    """At epsilon 30 every report tells the truth: a key is named whatever the value is, and an event needs both."""
    symbol, contributions = mechanism(30.0), people(500, key, value)
    names = int(symbol.is_key_report(contributions.coins).sum())
    release = release_of(symbol, contributions)
    assert release.trials == names
    assert release.hits.tolist() == [0, 0, names if key == 2 else 0]
    assert release.sums[2].sum() == (500 - names if key == 2 and value else 0)
    assert release.counts.sum(axis=1).tolist() == [500 - names] * 3


@pytest.mark.parametrize("names", [True, False])
@pytest.mark.parametrize(("key", "value"), [(1, 1.0), (1, 0.0), (-1, 1.0)])
def test_symbols_are_randomized_response_around_the_truth(names, key, value):
    event_symbol = mechanism(1.0)
    contributions = people(400_000, key, value)
    reports = event_symbol.randomize(contributions, SeededNoise(3))
    assert (reports["slot"] == contributions.coins).all()
    symbols = reports["symbol"][event_symbol.is_key_report(contributions.coins) == names]
    truth = key + 1 if key >= 0 and (names or value) else 0
    expected = np.full(event_symbol.symbols, event_symbol.response.other)
    expected[truth] = event_symbol.response.truth
    assert is_compatible(np.bincount(symbols, minlength=event_symbol.symbols), len(symbols) * expected)


def test_events_are_counted_report_by_report():
    """Against a loop that follows the definition."""
    symbol, rng, n = mechanism(2.0), np.random.default_rng(1), 400
    keyed_values = KeyedValues(
        rng.integers(0, 2**32, n, dtype=np.uint32), rng.integers(-1, 3, n), np.zeros(n, np.int64), rng.random(n)
    )
    reports = symbol.randomize(keyed_values, SeededNoise(1))
    sums, counts, hits, trials = np.zeros((3, 3)), np.zeros((3, 3)), np.zeros(3), 0
    for report in reports:
        coins, reported_key = np.array([report["slot"]]), int(report["symbol"]) - 1
        if symbol.is_key_report(coins)[0]:
            trials += 1
            hits[reported_key] += reported_key >= 0
            continue
        for key in range(3):
            group = int(symbol.layout.find_groups(symbol.layout.hashes(coins, np.array([key])), np.array([key]))[0])
            counts[key, group] += 1
            sums[key, group] += reported_key == key
    total = symbol.add(symbol.empty(), reports)
    assert (total.sums == sums).all()
    assert (total.counts == counts).all()
    assert (total.hits == hits).all()
    assert (total.trials, total.reports) == (trials, n)


def test_released_probabilities():
    event_symbol, n = mechanism(1.5), 200_000
    for key, chances in ((0, ("hit_own", "hit_other")), (-1, ("hit_none", "hit_none"))):
        release = release_of(event_symbol, people(n, key, 0.25), seed=key + 2)
        for counted, chance in zip(release.hits, (getattr(release, name) for name in chances), strict=False):
            assert is_compatible(
                [counted, release.trials - counted], [release.trials * chance, release.trials * (1 - chance)]
            )
        event = (0.25 * release.gain if key == 0 else 0.0) + release.other
        n_invited, events = release.counts[0].sum(), release.sums[0].sum()
        assert is_compatible([events, n_invited - events], [n_invited * event, n_invited * (1 - event)])


@pytest.mark.parametrize(("epsilon", "keys", "rate"), [(3.2, 2, 0.005), (4.0, 8, 0.1), (2.0, 1, 0.3)])
def test_the_variance_is_that_of_an_estimate_of_share_and_rate(epsilon, keys, rate):
    """Planted: a variance a fifth smaller is noticed."""
    keyed_means, n = question(keys, rate), 20_000
    event_symbol, rng = EventSymbol(keyed_means.layout, epsilon), np.random.default_rng(4)
    shape, shares = (keys, 1, 2), np.tile([(1 - rate) / keys, rate / keys], keys)
    draws = [event_symbol.simulate_counts(rng.multinomial(n, shares).reshape(shape), 0, rng) for _ in range(6000)]
    events = np.array([(draw.sums[0, 0] / draw.counts[0, 0] - draw.other) / draw.gain for draw in draws])
    named = np.array([(draw.hits[0] / draw.trials - draw.other) / draw.gain for draw in draws])
    # To first order, that is how far their ratio is from the rate.
    squares = n * (events - rate * named)[:, None] ** 2
    assert centred(squares, event_symbol.variance(keyed_means))
    assert not centred(squares, 0.8 * event_symbol.variance(keyed_means))


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
    keyed_means, promise = question(keys), (epsilon, 0.0, 0, 9.0)
    variance = EventSymbol.calibrated(keyed_means, *promise).variance(keyed_means) * (1 - 1 / KEY_REPORT_CLASSES)
    assert variance == pytest.approx(event, rel=0.03)
    assert SignedSymbol.calibrated(keyed_means, *promise).variance(keyed_means) == pytest.approx(signed, rel=0.03)


def test_the_variance_of_a_signed_symbol_is_that_of_scores_less_hits():
    """Against the best linear control by least squares, over the exact law of score and hit."""
    keyed_means = KeyedMeans(Layout.ungrouped(4, 5), 0.8, 0.2, 0.01)
    signed_symbol = SignedSymbol(keyed_means.layout, 2.0, 3, True)
    hit_of_key, other, none = (
        (signed_symbol.response.truth + signed_symbol.response.other),
        0.0,
        2 * signed_symbol.response.other,
    )
    other = hit_of_key / 3 + 2 * signed_symbol.response.other * 2 / 3
    hit = 0.2 * hit_of_key + 0.6 * other + 0.2 * none
    mean = signed_symbol.response.gain * 0.2 * (2 * 0.01 - 1)
    score, covariance, variance = hit - mean**2, mean * (1 - hit), hit * (1 - hit)
    assert signed_symbol.variance(keyed_means) == pytest.approx(
        (score - covariance**2 / variance) / (2 * signed_symbol.response.gain) ** 2
    )


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
    keyed_means = KeyedMeans(Layout.ungrouped(keys, 5), 1.0, 1 / max(1, keys), rate)
    assert type(calibrate(Privacy(epsilon=epsilon, **privacy), 2000, keyed_means).mechanism) is kind


def test_small_domains_name_their_keys_where_nobody_knows_a_rate():
    small_domain_means = SmallDomainMeans(Layout.ungrouped(4, 5), 1.0, 0.25)
    assert isinstance(calibrate(Privacy(epsilon=1.0, **SHUFFLE), 2000, small_domain_means).mechanism, NamedSymbol)


@pytest.mark.parametrize("reports", [1, 4])
def test_shuffled_events_keep_the_promise_of_several_reports(reports):
    """Planted: a little more local epsilon breaks it."""
    terms = calibrate(Privacy(epsilon=1.0, **SHUFFLE, local_epsilon_max=9.0), 20_000, question(3), reports=reports)
    assert isinstance(terms.mechanism, EventSymbol)
    assert terms.keeps_promise
    assert not replace(terms, mechanism=terms.mechanism.with_less_noise(1.02)).keeps_promise


def simulate_late(seed, symbol, way):
    """Return the figures of a release of 400 participants whose coins chose by an earlier plan."""
    rng, earlier = np.random.default_rng(seed), Layout(77, EDGES[::-1].copy())
    contributions, by_choices = people(400, 0, 0.4, seed), ChoiceAnalyzer.from_layouts(symbol.layout, earlier)
    keys = rng.permutation(np.arange(400) % 4 - 1)
    groups = earlier.find_groups(earlier.hashes(contributions.coins, np.maximum(keys, 0)), np.maximum(keys, 0))
    contributions = msgspec.structs.replace(contributions, keys=keys, groups=groups)
    if way == "sent":
        total = by_choices.tally(symbol, symbol.randomize(contributions, SeededNoise(seed)).tobytes())
        release = symbol.release(total, SeededNoise(0))
    else:
        release = by_choices.simulate(symbol, contributions, rng)
    return np.concatenate([release.sums.ravel(), release.counts.ravel(), release.hits, [release.trials]])


def test_reports_on_earlier_choices_are_counted_as_they_are_simulated():
    """Planted: a simulation with half as much epsilon again."""
    symbol = mechanism(3.0)
    reported, simulated = (
        [simulate_late(seed, symbol, way) for seed in range(start, start + 300)]
        for way, start in (("sent", 0), ("", 500))
    )
    assert same_law(reported, simulated)
    assert not same_law(reported, [simulate_late(seed, symbol.with_less_noise(1.5), "drawn") for seed in range(300)])


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
    """Under ``local`` they have a single bin, for which both symbols have the same information on events."""
    policy = Schedule(make_spec({**privacy, "reward.base_rate": rate})).open(7, 1).policy
    assert type(policy.terms.mechanism) is kind


def test_a_malformed_report_is_refused():
    symbol = mechanism(1.0)
    reports = symbol.randomize(people(5), SeededNoise(1))
    assert (symbol.parse(reports.tobytes()) == reports).all()
    wrong = reports.copy()
    wrong["symbol"][3] = symbol.symbols
    for bad in (reports.tobytes()[:-1], wrong.tobytes(), b"\xff" * symbol.report_size):
        with pytest.raises(OutOfRange):
            symbol.parse(bad)
