"""People in bins, from hits: unbiased for every alphabet that tells, and nothing learned from one that does not."""

import numpy as np
import pytest

from privateer_core.mechanisms.central_sums import CentralSums
from privateer_core.mechanisms.event_symbol import EventSymbol
from privateer_core.mechanisms.signed_symbol import SignedSymbol
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.public_coins import UNIT, Layout
from privateer_lab.simulation.devices import SeededNoise
from privateer_server.algorithms.partition.bin_tree import Split
from privateer_server.algorithms.partition.round_estimates import Population, weighed
from tests.support.statistics import centred

MASSES = np.array([0.4, 0.25, 0.1, 0.0])
EACH = np.arange(4)
LAYOUT = Layout(5, np.full((4, 1), UNIT // 2, np.uint32))
TELLERS = {
    "shuffle": SignedSymbol(LAYOUT, 4.0, 16, True),
    "without elsewhere": SignedSymbol(LAYOUT, 3.0, 8, False),
    "one bucket and elsewhere": SignedSymbol(LAYOUT, 2.0, 1, True),
    "events": EventSymbol(LAYOUT, 4.0),
    "central": CentralSums(LAYOUT, 9.0),
    "none": CentralSums(LAYOUT, 0.0),
}


def release(mechanism, seed, people=5000):
    rng = np.random.default_rng(seed)
    keys = rng.choice(5, people, p=[*MASSES, 0.25])
    slots = rng.integers(0, 2**32, people, dtype=np.uint32)
    keys[keys == 4] = -1
    groups = LAYOUT.group(LAYOUT.hashes(slots, np.maximum(keys, 0)), np.maximum(keys, 0))
    told = KeyedValues(slots, keys, groups, rng.random(people))
    total = mechanism.add(mechanism.empty(), mechanism.randomize(told, SeededNoise(rng)))
    return mechanism.release(total, SeededNoise(rng))


@pytest.mark.parametrize("name", [name for name in TELLERS if name != "one bucket and elsewhere"])
def test_masses_are_unbiased_and_precisions_right(name):
    """From next to no knowledge; the last bin is empty, and its estimate is held above 0."""
    found = [
        weighed(np.full(4, 0.3), np.full(4, 1e-9), np.ones(4), EACH, release(TELLERS[name], seed))
        for seed in range(200)
    ]
    masses = np.array([mass for mass, _ in found])
    assert centred(masses[:, :3], MASSES[:3])
    precision = np.array([gained for _, gained in found])[:, :3].mean(axis=0)
    spread = masses[:, :3].var(axis=0, ddof=1) * precision
    # 200 draws tell a variance to 10 %; the share of people with any key is itself estimated, which is left out.
    assert (spread < 2.0).all()
    assert (spread > 0.5).all()
    assert (masses[:, 3] < 0.05).all()
    assert (masses[:, 3] >= 0.02 * 0.3).all()


def test_only_the_share_who_tell_is_seen():
    """Planted: a third of a bin's people tell; taken for all, they make a third of its mass."""
    mechanism = TELLERS["without elsewhere"]
    for telling, expected in ((np.ones(4), MASSES), (np.full(4, 0.5), 2 * MASSES)):
        found = [
            weighed(np.full(4, 0.3), np.full(4, 1e-9), telling, EACH, release(mechanism, seed))[0] for seed in range(60)
        ]
        assert centred(np.array(found)[:, :3], expected[:3])


def test_one_bucket_tells_nothing_of_bins():
    mass, precision = np.full(4, 0.3), np.full(4, 7.0)
    after = weighed(mass, precision, np.ones(4), EACH, release(TELLERS["one bucket and elsewhere"], 1))
    single = weighed(mass, precision, np.ones(4), EACH, release(SignedSymbol(LAYOUT, 1.0, 1, False), 1))
    for found in (after, single):
        assert (found[0] == mass).all()
        assert (found[1] == precision).all()


def test_what_is_certain_stays():
    mass, _ = weighed(np.ones(4), np.full(4, np.inf), np.ones(4), EACH, release(TELLERS["central"], 2))
    assert (mass == 1.0).all()


def test_keys_of_one_bin_tell_its_mass_together():
    """Two keys a bin, with shares of its people that are known; precisions add up."""
    telling, places = np.array([0.4 / 0.65, 0.25 / 0.65, 1.0, 0.0]), np.array([0, 0, 1, 1])
    mechanism = TELLERS["shuffle"]
    found = [
        weighed(np.full(2, 0.3), np.full(2, 1e-9), telling, places, release(mechanism, seed)) for seed in range(200)
    ]
    masses, precisions = (np.array([one[i] for one in found]) for i in (0, 1))
    assert centred(masses, np.array([0.65, 0.1]))
    assert not centred(masses, np.array([0.4, 0.1]))
    spread = masses.var(axis=0, ddof=1) * precisions.mean(axis=0)
    assert ((spread > 0.5) & (spread < 2.0)).all()


def test_halves_have_the_share_that_is_expected_of_them_and_little_is_known_of_it():
    split = Split(np.array([0, 0, 1]), np.array([True, True, False]), np.array([True, False]))
    before = Population(np.array([[0.8, 0.2]]), np.array([[1e6, 50.0]]))
    after = before.split(split, np.array([0.75, 0.25, 1.0]))
    assert after.shares == pytest.approx(np.array([[0.6, 0.2, 0.2]]))
    assert after.precision == pytest.approx(np.array([[(0.4 * 0.6) ** -2, (0.4 * 0.2) ** -2, 50.0]]))
    assert Population(np.eye(2), np.eye(2)).of_cohorts([1]).shares.tolist() == [[0, 1]]
