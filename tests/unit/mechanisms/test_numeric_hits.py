"""Values that are numbers: three sums of a curator, and levels of a named symbol."""

import math
from typing import Any

import msgspec
import numpy as np
import pytest

from privateer_core.accounting.accountant import account
from privateer_core.algorithms.trial import TrialSpec
from privateer_core.codec import decode, encode
from privateer_core.errors import SpecError
from privateer_core.mechanisms.cell_pairs import PARTICIPANTS_MAX, SENSITIVITY, CellPairs, CellTriples
from privateer_core.mechanisms.cell_products import CellProducts
from privateer_core.mechanisms.central_sums import CentralSums
from privateer_core.mechanisms.mechanism import UNIT
from privateer_core.mechanisms.named_symbol import NamedSymbol, count_levels, list_level_steps
from privateer_core.primitives.contributions import BERNSTEIN, BITS, KeyedValues, ValueParts
from privateer_core.primitives.public_coins import Layout, SlotLayout
from privateer_core.primitives.questions import KeyedHits
from privateer_core.privacy.record import describe_terms, read_terms
from privateer_lab.simulation.scores import SeededNoise

NUMBERS = KeyedHits.from_keys(1, 0, 0.5)


@pytest.mark.parametrize("kind", [CellPairs, CellTriples])
def test_parts_on_the_grid_are_a_person_whatever_the_value(kind: type[CellPairs]) -> None:
    """So a replacement changes all sums by 2 at most, exactly."""
    parts = kind(SlotLayout.ungrouped(1, 5)).split_values(np.arange(UNIT + 1))
    assert parts.min() == 0
    assert (parts.sum(axis=0) == kind.unit).all()
    assert np.abs(parts[:, :1] - parts).sum(axis=0).max() == SENSITIVITY * kind.unit


def test_triples_keep_the_pure_promise_of_pairs() -> None:
    question = KeyedHits.from_keys(4, 5, 0.5)
    mechanism = CellTriples.calibrated(question, 1.0)
    event = mechanism.release_event
    assert event == CellPairs.calibrated(question, 1.0).release_event
    assert event is not None
    assert account(event).delta(1.0) == 0
    assert account(event).delta(0.99) > 0


def test_three_sums_tell_mean_and_variance() -> None:
    rng = np.random.default_rng(1)
    values = rng.beta(2, 5, 4_000)
    release = simulate_release(CellTriples(SlotLayout.ungrouped(1, 5)), values)
    assert release.hits[0, 0] == 4_000
    assert release.positive[0, 0] == pytest.approx(values.sum(), abs=0.1)
    assert release.squares[0, 0] == pytest.approx(np.square(values).sum(), abs=0.1)


def of_one_key(values: np.ndarray) -> KeyedValues:
    return KeyedValues.ungrouped(np.zeros(len(values), np.uint32), np.zeros(len(values), np.int64), values)


def simulate_release(mechanism: Any, values: np.ndarray, seed: int = 1) -> Any:
    """Return the release of participants of a single key."""
    records = mechanism.parse(mechanism.randomize(of_one_key(values), SeededNoise(seed)).tobytes())
    return mechanism.release(mechanism.add(mechanism.empty(), records), SeededNoise(seed + 1))


@pytest.mark.parametrize("deviation", [0.05, 0.02, 0.01, 0.005, 0.003, 0.002, 0.001, 0.0005])
def test_three_sums_tell_a_variance_that_is_small_beside_the_bounds(deviation: float) -> None:
    """Gamma rewards: rounding adds 1/6 of a squared step on average, 3e-4 of the least variance here.

    Planted: squares rounded down to steps of values tell .7 of it at .005, and less than nothing from .002 down.
    """
    values = np.clip(np.random.default_rng(0).gamma(4, deviation / 2, 200_000), 0, 1)
    release = simulate_release(CellTriples(SlotLayout.ungrouped(1, 5)), values)
    mean, square = release.positive[0, 0] / len(values), release.squares[0, 0] / len(values)
    assert (square - mean**2) / values.var() == pytest.approx(1, abs=0.01)
    steps = np.rint(values * UNIT).astype(np.int64) ** 2 // UNIT
    assert deviation > 0.01 or steps.mean() / UNIT - mean**2 < 0.95 * values.var()


@pytest.mark.parametrize(
    "mechanism",
    [
        CellPairs(SlotLayout.ungrouped(1, 5)),
        CellTriples(SlotLayout.ungrouped(1, 5)),
        CellProducts(SlotLayout.ungrouped(1, 5)),
        CentralSums(Layout(5, np.zeros((1, 0), np.uint32))),
    ],
)
def test_values_below_half_a_step_keep_their_mean(mechanism: Any) -> None:
    """100,000 people; bounds are five standard errors. Rounded to the nearest step all would be 0."""
    value, count = 0.3 / UNIT, 100_000
    release = simulate_release(mechanism, np.full(count, value))
    total = release.positive if hasattr(release, "positive") else (release.sums + release.hits) / 2
    assert UNIT * total[0, 0] / count == pytest.approx(0.3, abs=5 * (0.21 / count) ** 0.5)
    if isinstance(mechanism, CentralSums):
        simulated = mechanism.simulate(of_one_key(np.full(count, value)), np.random.default_rng(1))
        mean_steps = UNIT * (simulated.sums + simulated.hits)[0, 0] / 2 / count
        assert mean_steps == pytest.approx(0.3, abs=5 * (0.21 / count) ** 0.5)


def test_sums_of_squares_are_whole_numbers_beyond_those_that_floating_point_tells_apart() -> None:
    cell_triples = CellTriples(SlotLayout.ungrouped(1, 5))
    records = np.zeros((1 << 22) + 1, cell_triples.message)
    records["value"] = UNIT - 2
    total = cell_triples.add(cell_triples.empty(), records)
    assert total.cells[2, 0, 0] == len(records) * (UNIT - 2) ** 2
    assert total.cells[2, 0, 0] > 2**53


def test_the_largest_round_fits_and_a_larger_one_is_refused() -> None:
    cell_triples = CellTriples(SlotLayout.ungrouped(1, 5))
    release = cell_triples.simulate_counts(np.array([[[0, PARTICIPANTS_MAX]]]), 0, np.random.default_rng(1))
    assert (release.hits[0, 0], release.positive[0, 0], release.squares[0, 0]) == (PARTICIPANTS_MAX,) * 3
    spec = TrialSpec.instances()["none-numeric"]
    data = spec.model_copy(update={"experiment": spec.experiment.model_copy(update={"horizon": 10_000_000_000})})
    assert data.largest_batch() > PARTICIPANTS_MAX
    with pytest.raises(SpecError) as raised:
        TrialSpec.model_validate(data.model_dump())
    assert raised.value.field == "experiment.horizon"


def test_rows_in_one_place_tell_their_own_moments() -> None:
    """Planted: on the grid a deviation of a hundredth of a step is lost in rounding."""
    values = 0.5 + 0.01 / UNIT * np.random.default_rng(1).standard_normal(4_000)
    exact = CellTriples(SlotLayout.ungrouped(1, 5)).moments(of_one_key(values))
    records = simulate_release(CellTriples(NUMBERS.layout), values)
    for release, share in ((exact, 1.0), (records, 2_500.0)):
        variance = release.squares[0, 0] / 4_000 - (release.positive[0, 0] / 4_000) ** 2
        assert variance / values.var() == pytest.approx(share, rel=0.05)
    assert exact.resolution < records.resolution


def test_levels_are_unbiased_and_tell_the_variance_of_what_is_rounded() -> None:
    """Sixty thousand people report; bounds are six standard errors."""
    named_symbol = NamedSymbol(SlotLayout.ungrouped(1, 5), 3.0, 1, 5)
    people, value = 60_000, 0.6
    release = simulate_release(named_symbol, np.full(people, value), 3)
    gain, others = named_symbol.response.gain, 2 * release.other
    squares = gain * (value**2 + 0.1 * 0.15) + others * 0.375
    assert release.hits[0, 0] == people
    assert release.positive[0, 0] / people == pytest.approx(gain * value + release.other, abs=6 * 0.35 / people**0.5)
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
def test_levels_rise_with_epsilon(keys: int, expected: float | None, epsilon: float, levels: int) -> None:
    question = KeyedHits.from_keys(keys, 0, expected)
    assert count_levels(question, epsilon) == levels
    assert NamedSymbol.calibrated(question, epsilon).levels == levels
    assert NamedSymbol.calibrated(question, epsilon).can_answer(question)


def test_no_more_symbols_than_two_bytes_name() -> None:
    assert count_levels(KeyedHits.from_keys(8192, 0, 0.5), 16.0) == 3


def test_keys_that_are_dealt_to_buckets_have_bits() -> None:
    question = KeyedHits.from_keys(30, 0, 0.5)
    mechanism = NamedSymbol.calibrated(question, 2.0)
    assert (mechanism.is_named, mechanism.levels) == (False, 2)
    assert mechanism.can_answer(question)
    assert not NamedSymbol(question.layout, 2.0, 3, 5).can_answer(question)
    with pytest.raises(SpecError) as raised:
        NamedSymbol(question.layout, 2.0, 3, 1)
    assert raised.value.field == "levels"


@pytest.mark.parametrize("honest", [900, 1_800, 4_000, 9_000, 90_000])
def test_the_local_epsilon_of_a_batch_is_one_at_which_devices_expect_these_levels(honest: int) -> None:
    question = KeyedHits.from_keys(2, 0, 0.5)
    named_symbol = NamedSymbol.amplified(question, 1.0, 1e-6, honest, 16.0)
    assert named_symbol.can_answer(question)
    bits = NamedSymbol.amplified(KeyedHits.from_keys(2), 1.0, 1e-6, honest, 16.0)
    assert bits.levels == 2
    assert named_symbol.levels > 2
    assert named_symbol.epsilon > 0.98 * bits.epsilon
    steps = [min_epsilon for min_epsilon, levels in list_level_steps(question) if levels == named_symbol.levels]
    assert steps[0] <= named_symbol.epsilon
    event = named_symbol.batch_event(honest)
    assert account(event).delta(1.0) <= 1e-6 * (1 + 1e-6)


def test_bits_are_on_the_wire_as_before() -> None:
    bits = NamedSymbol(SlotLayout.example(), 2.0, 4)
    assert "levels" not in msgspec.msgpack.decode(encode(bits))
    assert decode(encode(bits), NamedSymbol).levels == 2
    assert decode(encode(NamedSymbol(SlotLayout.example(), 2.0, 4, 5)), NamedSymbol).levels == 5


def test_value_parts_have_their_exact_moments() -> None:
    assert ValueParts.levels(2) == BITS
    assert BERNSTEIN.noise_about(np.array(0.5)) == pytest.approx(0.5)
    assert BITS.score_square_sum == BERNSTEIN.score_square_sum == 2
    assert ValueParts.levels(3).average_square == pytest.approx(1.25 / 3)
    assert math.isclose(ValueParts.levels(5).gram[0, 1], 2.5)


@pytest.mark.parametrize("name", ["shuffle", "shuffle-numeric", "local-numeric", "central-numeric"])
def test_a_record_has_the_terms_that_keep_the_promise_and_names_levels_where_there_are_more_than_two(name: str) -> None:
    spec = TrialSpec.instances()[name]
    terms = spec.first_terms("")
    assert terms is not None
    row = describe_terms(terms)
    assert ("levels" in row.mechanism) == (name in ("shuffle-numeric", "local-numeric"))
    assert read_terms(row, TrialSpec, spec.privacy, 1).keeps_promise
