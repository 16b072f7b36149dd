"""An adversary watches events, batches and releases to learn about a participant."""

import numpy as np
import pytest

from privateer_core.mechanisms.mechanism import REPORT
from privateer_core.mechanisms.vectors.vector_symbol import VectorSymbol
from privateer_core.primitives.bounded_vectors import BoundedVectors
from privateer_core.primitives.clipping import Ball
from privateer_core.sampling.randomness import SecureNoise
from privateer_lab.audit.attacks.releases import billboard_cases
from privateer_lab.audit.mechanisms.moments import moment_cases
from privateer_lab.audit.suite import FALSE_ALARM, _run_attack
from tests.unit.server.conftest import settings, shuffler_key  # noqa: F401

# Whoever reads a permuted batch wants to know which messages are from one person: then shuffling hides less.


PEOPLE, REPEATS = 2000, 4
ONE = VectorSymbol(Ball("l2", 1.0, 5), 2.0, 8, 2, 3, repeats=REPEATS)


def randomize_equal_people(mechanism):
    """Return messages of participants with equal vectors, (participants, repeats)."""
    coins = np.random.default_rng(5).integers(1 << 32, size=PEOPLE, dtype=np.uint32)
    return mechanism.randomize(BoundedVectors(coins, np.full((PEOPLE, 5), 0.4)), SecureNoise())


def count_linked_messages(messages):
    """How many messages of the batch share their coins, or a difference of coins, with many others.

    Among 8,000 random words of 32 bits .007 pairs are equal on average, and differences come back as rarely.
    """
    slots = messages["slot"].astype(np.int64)
    pairs = np.unique(slots, return_counts=True)[1]
    steps = np.unique((slots[:, 1:] - slots[:, :1]) % (1 << 32), return_counts=True)[1]
    return int((pairs - 1).sum() + (steps - 1).sum())


def test_coins_link_no_messages():
    """A false alarm has a probability below 1e-6: three coincidences where .012 are expected."""
    assert count_linked_messages(randomize_equal_people(ONE)) < 3


def test_coins_that_follow_from_each_other_are_caught():
    """Planted: the same coins in all messages, and the next numbers."""
    for step in (0, 1):
        messages = np.empty((PEOPLE, REPEATS), REPORT)
        first = randomize_equal_people(ONE)["slot"][:, :1]
        messages["slot"] = first + step * np.arange(REPEATS, dtype=np.uint32)
        assert count_linked_messages(messages) > PEOPLE


def test_symbols_link_no_messages_beyond_what_they_say():
    """Each symbol is drawn anew with coins of its own: a person's symbols agree as often as two people's do.

    4,000 pairs; a false alarm has a probability of about 1e-4. Planted: one symbol, sent again and again.
    """
    symbols = np.concatenate([randomize_equal_people(ONE)["symbol"] for _ in range(2)])
    own_agreement = float((symbols[:, 0] == symbols[:, 1]).mean())
    others_agreement = float((symbols[:, 0] == np.roll(symbols[:, 1], 1)).mean())
    bound = 4 * np.sqrt(2 * others_agreement * (1 - others_agreement) / len(symbols))
    assert abs(own_agreement - others_agreement) < bound
    assert abs(float((symbols[:, 0] == symbols[:, 0]).mean()) - others_agreement) > bound


# Everybody else together attack a curator's experiment: what is published, and what they get themselves.


ALARM = FALSE_ALARM / 60


def test_the_billboard_holds_and_a_leaky_one_breaks() -> None:
    """Planted: releases with a sixtieth of the noise (lower bounds of 2.3 to 2.6 in six runs, at a stated 1)."""
    (case,), (leaky,) = billboard_cases(30_000), billboard_cases(60_000, 60.0)
    assert _run_attack(case, ALARM).holds
    assert not _run_attack(leaky, ALARM).holds


@pytest.mark.parametrize("place", [0, *(pytest.param(place, marks=pytest.mark.nightly) for place in (1, 2))])
def test_leaky_choices_and_blocks_break(place: int) -> None:
    """Planted: noise of an eighth."""
    assert not _run_attack(moment_cases(1000, 8.0)[place], ALARM).holds


@pytest.mark.nightly
def test_choices_and_blocks_hold() -> None:
    assert all(_run_attack(case, ALARM).holds for case in moment_cases(200_000))
