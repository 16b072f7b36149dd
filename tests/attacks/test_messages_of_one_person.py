"""Whoever reads a permuted batch wants to know which messages are from one person: then shuffling hides less."""

import numpy as np

from privateer_core.mechanisms.local_symbol import REPORT
from privateer_core.mechanisms.vectors.vector_symbol import VectorSymbol
from privateer_core.primitives.bounded_vectors import BoundedVectors
from privateer_core.primitives.clipping import Ball
from privateer_core.sampling.entropy import SecureNoise

PEOPLE, REPEATS = 2000, 4
ONE = VectorSymbol(Ball("l2", 1.0, 5), 2.0, 8, 2, 3, repeats=REPEATS)


def sent(one):
    """Messages of people who are all alike, (people, repeats)."""
    coins = np.random.default_rng(5).integers(1 << 32, size=PEOPLE, dtype=np.uint32)
    return one.randomize(BoundedVectors(coins, np.full((PEOPLE, 5), 0.4)), SecureNoise())


def linked(messages):
    """How many messages of the batch share their coins, or a difference of coins, with many others.

    Among 8,000 random words of 32 bits .007 pairs are equal on average, and differences come back as rarely.
    """
    slots = messages["slot"].astype(np.int64)
    pairs = np.unique(slots, return_counts=True)[1]
    steps = np.unique((slots[:, 1:] - slots[:, :1]) % (1 << 32), return_counts=True)[1]
    return int((pairs - 1).sum() + (steps - 1).sum())


def test_coins_link_no_messages():
    """A false alarm has a probability below 1e-6: three coincidences where .012 are expected."""
    assert linked(sent(ONE)) < 3


def test_coins_that_follow_from_each_other_are_caught():
    """Planted: the same coins in all messages, and the next numbers."""
    for step in (0, 1):
        messages = np.empty((PEOPLE, REPEATS), REPORT)
        first = sent(ONE)["slot"][:, :1]
        messages["slot"] = first + step * np.arange(REPEATS, dtype=np.uint32)
        assert linked(messages) > PEOPLE


def test_symbols_link_no_messages_beyond_what_they_say():
    """Each symbol is drawn anew with coins of its own: a person's symbols agree as often as two people's do.

    4,000 pairs; a false alarm has a probability of about 1e-4. Planted: one symbol, sent again and again.
    """
    own = np.concatenate([sent(ONE)["symbol"] for _ in range(2)])
    same = float((own[:, 0] == own[:, 1]).mean())
    other = float((own[:, 0] == np.roll(own[:, 1], 1)).mean())
    bound = 4 * np.sqrt(2 * other * (1 - other) / len(own))
    assert abs(same - other) < bound
    assert abs(float((own[:, 0] == own[:, 0]).mean()) - other) > bound
