"""The bound of a shuffled batch is never below the delta of an attack, and close to it."""

import math
import random

import pytest

from privateer_core.accounting.amplification import shuffled_delta
from privateer_core.accounting.grouped_bits import grouped_local_epsilon
from privateer_lab.audit.tightness import crowd_delta, tightness
from tests.support.shuffling import hockey_stick, response_law, shuffled_law

BATCHES, ALPHABETS = (90, 300, 900), (3, 9, 33)


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_no_proof_could_save_a_hundredth_of_the_variance(epsilon, batch):
    """The bound is slightly looser for 90 participants, whose own reports hide a participant, too."""
    max_variance = 1.06 if batch < 300 else 1.01
    for symbols in ALPHABETS:
        gaps = tightness((epsilon, 1e-6), batch, symbols, 16.0)
        assert gaps["allowed"] <= gaps["never_above"]
        assert 1 <= gaps["variance"] <= max_variance


@pytest.mark.parametrize("batch", BATCHES)
def test_a_bit_could_be_a_twentieth_better(batch):
    """The worst crowd of bits is known, but coins that turn a bit are seen: the better bound is not proved then."""
    assert tightness((1.0, 1e-6), batch, 2, 16.0)["variance"] <= 1.05


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_no_proof_could_save_a_hundredth_of_the_variance_of_bits_in_groups(epsilon, batch):
    """Coins do not change them, so that the worst crowd is proved."""
    gaps = tightness((epsilon, 1e-6), batch, 2, 16.0)
    allowed, most = grouped_local_epsilon(epsilon, 1e-6, batch, 16.0), gaps["never_above"]
    assert gaps["allowed"] <= allowed <= most
    assert (math.tanh(most / 2) / math.tanh(allowed / 2)) ** 2 <= 1.01


@pytest.mark.parametrize("cases", [60, pytest.param(5000, marks=pytest.mark.nightly)])
def test_the_bound_is_never_below_a_crowds_delta(cases):
    """Exact sums on both sides: no chance is involved."""
    rng = random.Random(11)
    for _ in range(cases):
        epsilon, symbols, batch = 10 ** rng.uniform(-1.5, 0.7), rng.randint(2, 60), int(10 ** rng.uniform(0, 2.6))
        local_epsilon = epsilon * rng.uniform(1.05, 4)
        truth = crowd_delta(epsilon, local_epsilon, symbols, batch)
        assert shuffled_delta(epsilon, local_epsilon, symbols, batch) >= truth * (1 - 1e-7) - 1e-16


@pytest.mark.parametrize(("epsilon", "symbols", "batch"), [(2.0, 9, 90), (4.0, 9, 90), (1.0, 9, 300)])
def test_a_batch_shows_the_variation_ratio_to_be_too_small(epsilon, symbols, batch):
    """Planted: the local epsilons that the variation-ratio bound allows (arXiv 2304.05007), which is no bound here."""
    allowed = {(2.0, 90): 2.987, (4.0, 90): 4.583, (1.0, 300): 2.673}[epsilon, batch]
    assert crowd_delta(epsilon, allowed, symbols, batch) > 1.1e-6


@pytest.mark.parametrize(("symbols", "batch"), [(2, 2), (2, 4), (3, 3), (3, 4), (4, 3)])
@pytest.mark.parametrize(("epsilon", "local_epsilon"), [(0.1, 1.0), (1.0, 3.0)])
def test_a_crowds_delta_is_that_of_its_enumerated_batch(epsilon, local_epsilon, symbols, batch):
    others = [response_law(min(2, symbols - 1), symbols, local_epsilon)] * (batch - 1)
    left, right = (shuffled_law([response_law(symbol, symbols, local_epsilon), *others]) for symbol in (0, 1))
    exact, crowd = hockey_stick(left, right, epsilon), crowd_delta(epsilon, local_epsilon, symbols, batch)
    assert 0 < crowd <= exact * (1 + 1e-9)
    if symbols < 4:
        assert crowd == pytest.approx(exact, rel=1e-9)
