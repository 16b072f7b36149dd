"""Values that are numbers: three sums of a curator, and levels of a named symbol."""

import math

import msgspec
import numpy as np
import pytest

from privateer_core.accounting.accountant import account
from privateer_core.algorithms.trial import TrialSpec
from privateer_core.codec import decode, encode
from privateer_core.errors import SpecError
from privateer_core.mechanisms.cell_pairs import SENSITIVITY, UNIT, CellPairs, CellTriples
from privateer_core.mechanisms.named_symbol import NamedSymbol, level_steps, levels_of
from privateer_core.primitives.contributions import BERNSTEIN, BITS, KeyedValues, ValueParts
from privateer_core.primitives.public_coins import SlotLayout
from privateer_core.primitives.questions import KeyedHits
from privateer_core.privacy.record import planned_of, terms_of
from privateer_lab.simulation.devices import SeededNoise

NUMBERS = KeyedHits.of_keys(1, 0, 0.5)


@pytest.mark.parametrize("kind", [CellPairs, CellTriples])
def test_parts_on_the_grid_are_a_person_whatever_the_value(kind: type[CellPairs]) -> None:
    """So a replacement changes all sums by 2 at most, exactly."""
    parts = kind(SlotLayout.ungrouped(1, 5)).parted(np.arange(UNIT + 1))
    assert parts.min() == 0
    assert (parts.sum(axis=0) == UNIT).all()
    assert np.abs(parts[:, :1] - parts).sum(axis=0).max() == SENSITIVITY * UNIT


def test_the_triples_promise_is_pure_and_that_of_pairs() -> None:
    question = KeyedHits.of_keys(4, 5, 0.5)
    mechanism = CellTriples.calibrated(question, 1.0)
    event = mechanism.released
    assert event == CellPairs.calibrated(question, 1.0).released
    assert event is not None
    assert account(event).delta(1.0) == 0
    assert account(event).delta(0.99) > 0


def test_three_sums_tell_mean_and_variance() -> None:
    rng = np.random.default_rng(1)
    values = rng.beta(2, 5, 4_000)
    made = KeyedValues(np.zeros(4_000, np.uint32), *np.zeros((2, 4_000), np.int64), values)
    one = CellTriples(SlotLayout.ungrouped(1, 5))
    release = one.release(one.add(one.empty(), one.randomize(made, SeededNoise(1))), SeededNoise(2))
    assert release.squares is not None
    assert release.hits[0, 0] == 4_000
    assert release.positive[0, 0] == pytest.approx(values.sum(), abs=0.1)
    assert release.squares[0, 0] == pytest.approx(np.square(values).sum(), abs=0.1)


def test_levels_are_unbiased_and_tell_the_variance_of_what_is_rounded() -> None:
    """Sixty thousand people report; bounds are six standard errors."""
    one = NamedSymbol(SlotLayout.ungrouped(1, 5), 3.0, 1, 5)
    people, value = 60_000, 0.6
    made = KeyedValues(np.zeros(people, np.uint32), *np.zeros((2, people), np.int64), np.full(people, value))
    release = one.release(one.add(one.empty(), one.randomize(made, SeededNoise(3))), SeededNoise(4))
    own, others = one.response.gain, 2 * release.other
    squares = own * (value**2 + 0.1 * 0.15) + others * 0.375
    assert release.squares is not None
    assert release.hits[0, 0] == people
    assert release.positive[0, 0] / people == pytest.approx(own * value + release.other, abs=6 * 0.35 / people**0.5)
    assert release.squares[0, 0] / people == pytest.approx(squares, abs=6 * 0.35 / people**0.5)


@pytest.mark.parametrize(
    ("keys", "expected", "epsilon", "levels"),
    [
        (1, 0.5, 0.5, 2),
        (1, 0.5, 1.0, 3),
        (1, 0.5, 3.0, 5),
        (1, 0.5, 4.0, 7),
        (1, 0.5, 5.5, 9),
        (4, 0.5, 4.0, 5),
        (1, 0.01, 3.0, 2),
        (1, 0.99, 4.0, 3),
        (1, None, 8.0, 2),
    ],
)
def test_how_many_levels(keys: int, expected: float | None, epsilon: float, levels: int) -> None:
    question = KeyedHits.of_keys(keys, 0, expected)
    assert levels_of(question, epsilon) == levels
    assert NamedSymbol.calibrated(question, epsilon).levels == levels
    assert NamedSymbol.calibrated(question, epsilon).fits(question)


def test_no_more_symbols_than_two_bytes_name() -> None:
    assert levels_of(KeyedHits.of_keys(8192, 0, 0.5), 16.0) == 3


def test_keys_that_are_dealt_to_buckets_have_bits() -> None:
    question = KeyedHits.of_keys(30, 0, 0.5)
    mechanism = NamedSymbol.calibrated(question, 2.0)
    assert (mechanism.named, mechanism.levels) == (False, 2)
    assert mechanism.fits(question)
    assert not NamedSymbol(question.layout, 2.0, 3, 5).fits(question)
    with pytest.raises(SpecError) as raised:
        NamedSymbol(question.layout, 2.0, 3, 1)
    assert raised.value.field == "levels"


@pytest.mark.parametrize("honest", [900, 1_800, 4_000, 9_000, 90_000])
def test_the_local_epsilon_of_a_batch_is_one_at_which_devices_expect_these_levels(honest: int) -> None:
    question = KeyedHits.of_keys(2, 0, 0.5)
    found = NamedSymbol.amplified(question, 1.0, 1e-6, honest, 16.0)
    assert found.fits(question)
    bits = NamedSymbol.amplified(KeyedHits.of_keys(2), 1.0, 1e-6, honest, 16.0)
    assert bits.levels == 2
    assert found.levels > 2
    assert found.epsilon > 0.98 * bits.epsilon
    steps = [least for least, levels in level_steps(question) if levels == found.levels]
    assert steps[0] <= found.epsilon
    event = found.shuffled(honest)
    assert account(event).delta(1.0) <= 1e-6 * (1 + 1e-6)


def test_bits_are_on_the_wire_as_before() -> None:
    bits = NamedSymbol(SlotLayout.small(), 2.0, 4)
    assert "levels" not in msgspec.msgpack.decode(encode(bits))
    assert decode(encode(bits), NamedSymbol).levels == 2
    assert decode(encode(NamedSymbol(SlotLayout.small(), 2.0, 4, 5)), NamedSymbol).levels == 5


def test_what_parts_count() -> None:
    assert ValueParts.levels(2) == BITS
    assert BERNSTEIN.noise_about(np.array(0.5)) == pytest.approx(0.5)
    assert BITS.scored == BERNSTEIN.scored == 2
    assert ValueParts.levels(3).average_square == pytest.approx(1.25 / 3)
    assert math.isclose(ValueParts.levels(5).gram[0, 1], 2.5)


@pytest.mark.parametrize("name", ["shuffle", "shuffle-numeric", "local-numeric", "central-numeric"])
def test_a_record_has_the_terms_that_keep_the_promise_and_names_levels_where_there_are_more_than_two(name: str) -> None:
    spec = TrialSpec.instances()[name]
    terms = spec.planned("")
    assert terms is not None
    row = planned_of(terms)
    assert ("levels" in row.mechanism) == (name in ("shuffle-numeric", "local-numeric"))
    assert terms_of(row, TrialSpec, spec.privacy, 1).holds
