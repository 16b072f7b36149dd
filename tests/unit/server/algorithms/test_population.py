"""Participants by bin and by cell: unbiased from hits, and made up from shares."""

from typing import Any

import numpy as np
import pytest

from privateer_core.algorithms import parse_spec
from privateer_core.algorithms.additive.cells import Cells
from privateer_core.mechanisms.central_sums import CentralSums
from privateer_core.mechanisms.event_symbol import EventSymbol
from privateer_core.mechanisms.signed_symbol import SignedSymbol
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.public_coins import UNIT, Layout
from privateer_lab.simulation.scores import SeededNoise
from privateer_server.algorithms.additive.terms_learner import build_contexts
from privateer_server.algorithms.partition.bin_tree import Split
from privateer_server.algorithms.partition.round_estimates import CohortShares, update_masses
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


def simulate_mass(mechanism, seed, people=5000):
    rng = np.random.default_rng(seed)
    keys = rng.choice(5, people, p=[*MASSES, 0.25])
    slots = rng.integers(0, 2**32, people, dtype=np.uint32)
    keys[keys == 4] = -1
    groups = LAYOUT.find_groups(LAYOUT.hashes(slots, np.maximum(keys, 0)), np.maximum(keys, 0))
    keyed_values = KeyedValues(slots, keys, groups, rng.random(people))
    total = mechanism.add(mechanism.empty(), mechanism.randomize(keyed_values, SeededNoise(rng)))
    return mechanism.release(total, SeededNoise(rng))


@pytest.mark.parametrize("name", [name for name in TELLERS if name != "one bucket and elsewhere"])
def test_masses_are_unbiased_and_precisions_right(name):
    """From next to no knowledge; the last bin is empty, and its estimate is held above 0."""
    estimates = [
        update_masses(np.full(4, 0.3), np.full(4, 1e-9), np.ones(4), EACH, simulate_mass(TELLERS[name], seed))
        for seed in range(200)
    ]
    masses = np.array([mass for mass, _ in estimates])
    assert centred(masses[:, :3], MASSES[:3])
    precision = np.array([gained for _, gained in estimates])[:, :3].mean(axis=0)
    spread = masses[:, :3].var(axis=0, ddof=1) * precision
    # 200 draws tell a variance to 10 %; the share of people with any key is itself estimated, which is left out.
    assert (spread < 2.0).all()
    assert (spread > 0.5).all()
    assert (masses[:, 3] < 0.05).all()
    assert (masses[:, 3] >= 0.02 * 0.3).all()


def test_masses_are_corrected_for_the_reporting_share():
    """Planted: a third of a bin's people tell; taken for all, they make a third of its mass."""
    mechanism = TELLERS["without elsewhere"]
    for telling, expected in ((np.ones(4), MASSES), (np.full(4, 0.5), 2 * MASSES)):
        estimates = [
            update_masses(np.full(4, 0.3), np.full(4, 1e-9), telling, EACH, simulate_mass(mechanism, seed))[0]
            for seed in range(60)
        ]
        assert centred(np.array(estimates)[:, :3], expected[:3])


def test_one_bucket_has_no_information_on_bins():
    mass, precision = np.full(4, 0.3), np.full(4, 7.0)
    after = update_masses(mass, precision, np.ones(4), EACH, simulate_mass(TELLERS["one bucket and elsewhere"], 1))
    single = update_masses(mass, precision, np.ones(4), EACH, simulate_mass(SignedSymbol(LAYOUT, 1.0, 1, False), 1))
    for estimate in (after, single):
        assert (estimate[0] == mass).all()
        assert (estimate[1] == precision).all()


def test_certain_masses_do_not_change():
    mass, _ = update_masses(np.ones(4), np.full(4, np.inf), np.ones(4), EACH, simulate_mass(TELLERS["central"], 2))
    assert (mass == 1.0).all()


def test_keys_of_one_bin_are_combined_for_its_mass():
    """Two keys a bin, with shares of its people that are known; precisions add up."""
    telling, places = np.array([0.4 / 0.65, 0.25 / 0.65, 1.0, 0.0]), np.array([0, 0, 1, 1])
    mechanism = TELLERS["shuffle"]
    estimates = [
        update_masses(np.full(2, 0.3), np.full(2, 1e-9), telling, places, simulate_mass(mechanism, seed))
        for seed in range(200)
    ]
    masses, precisions = (np.array([estimate[i] for estimate in estimates]) for i in (0, 1))
    assert centred(masses, np.array([0.65, 0.1]))
    assert not centred(masses, np.array([0.4, 0.1]))
    spread = masses.var(axis=0, ddof=1) * precisions.mean(axis=0)
    assert ((spread > 0.5) & (spread < 2.0)).all()


def test_halves_start_from_their_expected_share_with_little_precision():
    split = Split(np.array([0, 0, 1]), np.array([True, True, False]), np.array([True, False]))
    before = CohortShares(np.array([[0.8, 0.2]]), np.array([[1e6, 50.0]]))
    after = before.split(split, np.array([0.75, 0.25, 1.0]))
    assert after.shares == pytest.approx(np.array([[0.6, 0.2, 0.2]]))
    assert after.precision == pytest.approx(np.array([[(0.4 * 0.6) ** -2, (0.4 * 0.2) ** -2, 50.0]]))
    assert CohortShares(np.eye(2), np.eye(2)).select_cohorts([1]).shares.tolist() == [[0, 1]]


SPEC: dict[str, Any] = {
    "experiment": {"name": "t", "arms": ["a", "b"], "horizon": 5000},
    "context": {
        "features": {
            "age": {"low": 0, "high": 80, "missing": True},
            "size": {"levels": ["s", "m", "l"], "ordered": True},
            "job": {"levels": ["cook", "smith", "clerk"]},
            "member": {"boolean": True},
        }
    },
    "privacy": {"model": "none"},
    "algorithm": {"name": "additive", "bins": 4},
}


def test_simulated_contexts_follow_the_cell_shares() -> None:
    spec: Any = parse_spec(SPEC)
    cells: Cells = spec.questions.cells
    rng = np.random.default_rng(3)
    masses = np.ones(cells.count)
    for place in range(len(cells.features)):
        columns = cells.feature_slice(place)
        masses[columns] = rng.dirichlet(np.ones(columns.stop - columns.start))
    people = 20_000
    contexts = build_contexts(cells, masses, spec.dimension, rng.random((people, len(cells.features), 2)))
    assert contexts.min() >= 0
    assert contexts.max() <= 1
    shares = np.bincount(cells.locate(contexts).ravel(), minlength=cells.count) / people
    # Seven deviations of a share: a false alarm in 10^11 runs.
    assert np.abs(shares - masses)[1:].max() < 7 * 0.5 / np.sqrt(people)
