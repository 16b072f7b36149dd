"""Several symbols of a vector, each in its own message: their privacy cost in a batch, and their error."""

import numpy as np
import pytest

from privateer_core.accounting.accountant import account
from privateer_core.accounting.allotment import allot
from privateer_core.accounting.events import Repeated, ShuffledSubset
from privateer_core.errors import SpecError
from privateer_core.mechanisms.vectors.vector_symbol import VectorSymbol
from privateer_core.primitives.bounded_vectors import BoundedVectors
from privateer_core.primitives.clipping import Ball
from privateer_lab.simulation.scores import SeededNoise

BALL = Ball("l2", 1.0, 9)
PROMISE = (1.0, 1e-6)


@pytest.mark.parametrize(
    ("epsilon", "honest"),
    [(2.0, 450), *(pytest.param(*case, marks=pytest.mark.nightly) for case in ((1.0, 900), (0.5, 2000)))],
)
def test_several_keep_the_promise_and_have_less_error_than_one(epsilon, honest):
    """Planted: an eighth more of local epsilon for each."""
    promise = (epsilon, 1e-6)
    several = VectorSymbol.amplified(BALL, promise, honest, 16.0, None, 3, max_messages=4)
    single = VectorSymbol.amplified(BALL, promise, honest, 16.0, None, 3)
    assert single.repeats == 1 < several.repeats <= 4
    assert several.error < 0.7 * single.error
    assert several.local_epsilon == several.repeats * several.epsilon <= 16.0
    event = ShuffledSubset(several.epsilon, 2 * several.directions, several.chosen, honest)
    assert several.batch_event(honest) == Repeated(event, several.repeats)
    assert account(several.batch_event(honest)).delta(epsilon) <= 1e-6
    assert account(several.with_less_noise(1.125).batch_event(honest)).delta(epsilon) > 1e-6


def test_one_is_sent_where_the_limit_decides_or_others_share_the_promise():
    assert VectorSymbol.amplified(BALL, PROMISE, 900, 1.5, None, 3, max_messages=8).repeats == 1
    share = allot(*PROMISE, 3, 0.0)
    assert VectorSymbol.amplified(BALL, PROMISE, 900, 16.0, share, 3, max_messages=8).repeats == 1


@pytest.mark.parametrize(
    ("limit", "repeats"), [(6.0, 2), *(pytest.param(*case, marks=pytest.mark.nightly) for case in ((3.0, 1), (7.0, 3)))]
)
def test_all_of_them_together_are_within_the_limit(limit, repeats):
    several = VectorSymbol.amplified(BALL, PROMISE, 900, limit, None, 3, max_messages=8)
    assert several.repeats == repeats
    assert 0.85 * limit < several.local_epsilon <= limit


def test_as_many_symbols_have_as_much_less_error():
    single, four = (VectorSymbol(BALL, 1.0, 8, 2, 3, repeats=repeats) for repeats in (1, 4))
    assert four.error == pytest.approx(single.error / 4)
    assert four.worst_projection == pytest.approx(single.worst_projection / 4)
    assert four.error_bounds(100)[1] == pytest.approx(single.error_bounds(100)[1] / 4)


def test_a_participant_with_a_missing_message_counts_once():
    """Planted: sums that count missing messages as 0, which are a tenth too small."""
    vector_symbol, people = VectorSymbol(BALL, 8.0, 64, 4, 3, repeats=3), 2000
    values = np.tile(np.eye(9)[0], (people, 1))
    messages = vector_symbol.randomize(BoundedVectors(np.arange(people, dtype=np.uint32), values), SeededNoise(1))
    assert messages.shape == (people, 3)
    received = messages.ravel()[: int(0.9 * messages.size)]
    total = vector_symbol.add(vector_symbol.empty(), received)
    release = vector_symbol.release(total, SeededNoise(2))
    assert release.reports == -(-received.size // 3)
    assert release.sums[0] / release.reports == pytest.approx(1.0, abs=0.04)
    assert total.sums[0] / 2**30 * vector_symbol.scale / 3 / people == pytest.approx(0.9, abs=0.04)


@pytest.mark.parametrize(("repeats", "classes"), [(0, 1), (17, 1), (2, 2)])
def test_impossible_numbers_of_messages_are_refused(repeats, classes):
    with pytest.raises(SpecError, match="where coins tell classes") as refused:
        VectorSymbol(BALL, 1.0, 2, 1, 3, classes, repeats)
    assert refused.value.field == "repeats"
