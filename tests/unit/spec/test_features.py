"""Features of every kind: valid sections of a spec, the columns of values, and refusals."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privateer_core.algorithms import parse_spec
from privateer_core.answer.facts import Among, Between
from privateer_core.errors import InputError, SpecError
from privateer_core.spec.categories import LEVELS_MAX, Boolean, Categorical, Hashed, Ordinal, hash_bucket
from privateer_core.spec.context import (
    COLUMNS_MAX,
    FEATURES_MAX,
    describe_box,
    encode_features,
    find_inhabited_boxes,
    list_blocks,
)
from privateer_core.spec.features import Feature, Numeric, Ranked
from tests.support.specs import make_spec

TABLES = {
    "hours": {"low": 0, "high": 80},
    "age": {"low": 18, "high": 98, "missing": True},
    "income": {"quantiles": [0, 0, 10, 100]},
    "country": {"levels": ["NL", "DE", "FR"]},
    "code": {"levels": [1, 2, 3, 4], "missing": True},
    "plan": {"levels": ["free", "basic", "pro"], "ordered": True},
    "premium": {"boolean": True},
    "owner": {"boolean": True, "missing": True},
    "town": {"hash_buckets": 5, "missing": True},
    "hour": {"low": 0, "high": 24, "cyclic": True, "missing": True},
}
FEATURES = make_spec({"context.features": TABLES}).features
BAD = {
    "half a range": ({"low": 0}, "context.features.x.high", "required"),
    "nothing": ({}, "context.features.x.low", "required"),
    "no table": (5, "context.features.x", "dictionary"),
    "no level": ({"levels": []}, "context.features.x.levels", "at least 1"),
    "too many levels": (
        {"levels": list(range(LEVELS_MAX + 1))},
        "context.features.x.levels",
        "at most 1,000, not 1,001; .*hash_buckets",
    ),
    "ten thousand levels": (
        {"levels": list(range(10_000))},
        "context.features.x.levels",
        "at most 1,000, .*hash_buckets",
    ),
    "too many in order": ({"levels": list(range(257)), "ordered": True}, "context.features.x.levels", "at most 256"),
    "one bucket": ({"hash_buckets": 1}, "context.features.x.hash_buckets", "greater than or equal to 2"),
    "too many buckets": ({"hash_buckets": 1001}, "context.features.x.hash_buckets", "less than or equal to 1000"),
    "a level twice": ({"levels": ["a", "a"]}, "context.features.x.levels", "distinct"),
    "a truth as a level": ({"levels": [True, "a"]}, "context.features.x.levels.0", "text .* or a whole number"),
    "an empty level": ({"levels": ["", "a"]}, "context.features.x.levels.0", "text .* or a whole number"),
    "half a number": ({"levels": [0.5, 1]}, "context.features.x.levels.0", "text .* or a whole number"),
    "a long level": ({"levels": ["a" * 257]}, "context.features.x.levels.0", "1 to 256 printable"),
    "a huge level": ({"levels": [10**30]}, "context.features.x.levels.0", "whole number"),
    "one level in order": ({"levels": ["a"], "ordered": True}, "context.features.x.levels", "two or more"),
    "two kinds": ({"levels": ["a"], "low": 0}, "context.features.x.low", "unknown key"),
    "no yes": ({"boolean": False}, "context.features.x.boolean", "True"),
    "one cut point": ({"quantiles": [1]}, "context.features.x.quantiles", "at least 2"),
    "equal cut points": ({"quantiles": [1, 1]}, "context.features.x.quantiles", "must rise"),
    "falling cut points": ({"quantiles": [0, 2, 1]}, "context.features.x.quantiles", "must rise"),
    "no number": ({"quantiles": [0, math.nan]}, "context.features.x.quantiles.1", "finite"),
    "too wide": ({"quantiles": [-1e308, 1e308]}, "context.features.x", "too wide"),
    "levels that come round": ({"levels": ["a"], "cyclic": True}, "context.features.x", "only a number with low and"),
    "ranks that come round": ({"quantiles": [0, 1], "cyclic": True}, "context.features.x", "only a number with low"),
    "may come round": ({"low": 0, "high": 1, "cyclic": "often"}, "context.features.x.cyclic", "boolean"),
    "maybe missing": ({"boolean": True, "missing": "often"}, "context.features.x.missing", "boolean"),
}


@pytest.mark.parametrize("name", BAD)
def test_errors_in_a_feature_are_named(name: str) -> None:
    table, field, constraint = BAD[name]
    with pytest.raises(SpecError, match=f"(?i){constraint}") as refused:
        make_spec({"context.features": {"x": table}})
    assert refused.value.field == field
    assert refused.value.remedy


def test_there_are_at_most_twenty_features_of_forty_columns() -> None:
    twenty = {f"x{j}": {"low": 0, "high": 1, "missing": True} for j in range(FEATURES_MAX)}
    assert make_spec({"context.features": twenty}).dimension == COLUMNS_MAX
    with pytest.raises(SpecError, match=r"context.features: .*at most 20"):
        make_spec({"context.features": twenty | {"x20": {"low": 0, "high": 1}}})
    wide = {f"x{j}": {"levels": list(range(200))} for j in range(6)}
    with pytest.raises(SpecError, match=r"context.features: are 6 and make 48 columns, .*at most 20 in 40"):
        make_spec({"context.features": wide})


def test_a_spec_comes_back_from_json_and_says_no_more_than_it_was_told() -> None:
    spec = make_spec({"context.features": TABLES})
    data = spec.model_dump(mode="json", exclude_none=True)
    assert data["context"]["features"]["hours"] == {"low": 0.0, "high": 80.0}
    assert data["context"]["features"]["hour"] == {"low": 0.0, "high": 24.0, "cyclic": True, "missing": True}
    assert parse_spec(data) == spec
    assert type(spec).model_validate_json(spec.model_dump_json()) == spec


ENCODED = [
    ("hours", 20, [0.25]),
    ("hours", -math.inf, [0.0]),
    ("hours", np.float32(90), [1.0]),
    ("age", 38, [0.25, 0.0]),
    ("age", None, [0.5, 1.0]),
    ("age", np.float64("nan"), [0.5, 1.0]),
    ("income", -5, [1 / 6]),
    ("income", 0, [1 / 6]),
    ("income", 5, [0.5]),
    ("income", 10, [2 / 3]),
    ("income", 1e300, [1.0]),
    ("country", "NL", [0.0, 0.0]),
    ("country", "FR", [1.0, 0.0]),
    ("country", "Atlantis", [1.0, 1.0]),
    ("code", 1, [0.0, 0.0, 0.0]),
    ("code", 4.0, [1.0, 0.0, 0.0]),
    ("code", np.int64(2), [0.0, 0.0, 1.0]),
    ("code", None, [1.0, 0.0, 1.0]),
    ("code", 9.5, [1.0, 1.0, 0.0]),
    ("plan", "basic", [0.5]),
    ("premium", True, [1.0]),
    ("premium", np.bool_(False), [0.0]),
    ("premium", 0, [0.0]),
    ("owner", True, [0.0, 1.0]),
    ("owner", None, [1.0, 0.0]),
    ("hour", 6, [0.25, 0.0]),
    ("hour", 24, [0.0, 0.0]),
    ("hour", 49.5, [0.0625, 0.0]),
    ("hour", -6, [0.75, 0.0]),
    ("hour", -1e-30, [1.0, 0.0]),
    ("hour", math.inf, [0.6640625, 0.0]),
    ("hour", None, [0.5, 1.0]),
]


@pytest.mark.parametrize(("name", "value", "columns"), ENCODED)
def test_values_become_columns(name: str, value: object, columns: list[float]) -> None:
    feature = FEATURES[name]
    encoded = feature.encode(np.array([feature.read(name, value)]))
    assert encoded.tolist() == [pytest.approx(columns)]
    assert encoded.shape == (1, feature.columns)


REFUSED = [
    ("hours", "38", "must be a number"),
    ("hours", True, "must be a number"),
    ("hours", None, "has no value, .* missing = true"),
    ("hours", math.nan, "has no value"),
    ("country", 31, "must be text"),
    ("country", ["NL"], "must be text"),
    ("country", None, "has no value"),
    ("code", "1", "must be a whole number"),
    ("code", True, "must be a whole number"),
    ("plan", "gold", "not one of the spec's ordered levels"),
    ("premium", "yes", "must be true or false"),
    ("premium", 2, "must be true or false"),
    ("owner", {}, "must be true or false"),
]


@pytest.mark.parametrize(("name", "value", "message"), REFUSED)
def test_invalid_values_of_a_feature_are_named_and_not_echoed(name: str, value: object, message: str) -> None:
    with pytest.raises(InputError, match=message) as refused:
        FEATURES[name].read(name, value)
    assert refused.value.field == name
    assert refused.value.remedy
    assert "38" not in str(refused.value)
    assert "gold" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_others_share_the_last_level_where_they_would_take_a_column_more() -> None:
    four = Categorical(levels=("a", "b", "c", "d"))
    assert four.columns == 2
    assert four.encode(np.array([3.0, 4.0])).tolist() == [[1, 1], [1, 1]]
    named = Categorical(levels=("a", "other", "c", "d"))
    assert named.encode(np.array([1.0, 4.0])).tolist() == [[0, 1], [0, 1]]
    assert Categorical(levels=("a",)).encode(np.array([0.0, 1.0])).tolist() == [[0], [1]]
    assert Categorical(levels=("other",)).columns == 1


@given(st.integers(1, 60), st.booleans(), st.booleans())
def test_levels_have_codes_of_their_own_in_as_few_columns_as_can_be(count: int, missing: bool, named: bool) -> None:
    levels = [f"level {place}" for place in range(count - named)] + ["other"] * named
    feature = Categorical(levels=tuple(levels), missing=missing)
    listed = feature.encode(np.arange(count, dtype=np.float64))
    gaps = feature.encode(np.array([math.nan] * missing))
    assert len(np.unique(np.concatenate([listed, gaps.reshape(-1, feature.columns)]), axis=0)) == count + missing
    assert feature.columns == max(1, math.ceil(math.log2(count + missing)))
    halves = np.array(feature.blocks[0].codes) >> (feature.columns - 1)
    assert abs(int((halves == 0).sum()) - int((halves == 1).sum())) <= 1


@given(st.lists(st.integers(-50, 50), min_size=2, max_size=20), st.lists(st.floats(-60, 60), min_size=2, max_size=20))
def test_ranks_rise_with_numbers_and_are_shares_of_the_cut_points(cuts: list[int], numbers: list[float]) -> None:
    cuts.sort()
    if cuts[0] == cuts[-1]:
        return
    feature = Ranked(quantiles=tuple(cuts))
    places = feature.encode(np.array(sorted([*numbers, *cuts])))[:, 0]
    assert (np.diff(places) >= -1e-12).all()
    assert places.min() >= 0
    assert places.max() <= 1
    for number in np.clip(numbers, cuts[0], cuts[-1]):
        below, at = sum(cut < number for cut in cuts), sum(cut <= number for cut in cuts)
        place = feature.encode(np.array([number]))[0, 0] * (len(cuts) - 1)
        assert below - 1 - 1e-9 <= place <= at + 1e-9


@given(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9), st.floats(1e-3, 1e9))
def test_numbers_are_scaled_by_their_bounds(number: float, low: float, width: float) -> None:
    feature = Numeric(low=low, high=low + width)
    before = min(1.0, max(0.0, (number - feature.low) / (feature.high - feature.low)))
    assert feature.encode(np.array([number]))[0, 0] == before


def draw_numbers(seed: int, people: int) -> np.ndarray:
    """Draw numbers as `read` returns them, with unlisted levels and missing values if features allow any."""
    rng = np.random.default_rng(seed)
    sizes = {"country": 4, "code": 5, "plan": 3, "premium": 2, "owner": 2, "town": 5}
    draws = [rng.integers(sizes[name], size=people) if name in sizes else rng.normal(30, 40, people) for name in TABLES]
    numbers = np.stack(draws, axis=1).astype(np.float64)
    for j, feature in enumerate(FEATURES.values()):
        if feature.missing:
            numbers[rng.random(people) < 0.3, j] = math.nan
    return numbers


@given(st.integers(0, 2**32))
def test_people_together_and_alone_are_encoded_alike_within_the_cube(seed: int) -> None:
    numbers = draw_numbers(seed, 20)
    features = encode_features(FEATURES, numbers)
    assert features.shape == (20, sum(block.columns for block in list_blocks(FEATURES)))
    assert ((features >= 0) & (features <= 1)).all()
    assert (features == np.concatenate([encode_features(FEATURES, number[None]) for number in numbers])).all()


def test_boxes_are_shown_by_the_values_that_they_have() -> None:
    lower, upper = np.zeros(12), np.ones(12)
    assert describe_box(FEATURES, lower, upper) == ()
    names = ["hours", "age", "age?", "income", "country", "country", "code", "code", "code", "plan", "premium", "owner"]
    upper[names.index("hours")], lower[names.index("age?")] = 0.5, 0.5
    lower[names.index("country")], upper[names.index("code")] = 0.5, 0.5
    lower[names.index("plan")], lower[names.index("premium")] = 0.5, 0.5
    assert describe_box(FEATURES, np.append(lower, 0.0), np.append(upper, 1.0)) == (
        Between("hours", 0.0, 40.0),
        Among("age", (), missing=True),
        Among("country", ("FR", "other")),
        Among("code", (1, 2, 3)),
        Among("plan", ("basic", "pro")),
        Among("premium", (True,)),
    )
    numbers = Categorical(levels=(1, 2, 3, 4), missing=True)
    assert numbers.list_box_values(np.array([0.5, 0, 0]), np.ones(3)) == [4, None, "other"]
    assert Categorical(levels=("a", "b")).list_box_values(np.array([0.5]), np.ones(1)) == ["b", "other"]
    assert Categorical(levels=("a", "b")).list_box_values(np.array([0.0]), np.array([0.5])) == ["a"]
    assert Boolean(boolean=True, missing=True).list_box_values(np.array([0.5, 0.0]), np.ones(2)) == [None]
    ordinal = Ordinal(levels=("a", "b"), ordered=True, missing=True)
    assert ordinal.list_box_values(np.array([0, 0.5]), np.ones(2)) is None
    assert Ranked(quantiles=(0, 10, 100)).list_box_values(np.array([0.5]), np.ones(1)) == [10.0, 100.0]


def test_a_box_that_also_holds_people_without_a_number_says_so() -> None:
    number, plan = Numeric(low=0, high=8, missing=True), Ordinal(levels=("a", "b"), ordered=True, missing=True)
    upper_half, everybody = np.array([0.5, 0.0]), np.array([1.0, 1.0])
    assert number.list_box_values(upper_half, everybody) == [4.0, 8.0, None]
    assert number.list_box_values(upper_half, np.array([1.0, 0.5])) == [4.0, 8.0]
    assert number.list_box_values(np.zeros(2), np.array([0.5, 1.0])) == [0.0, 4.0]
    assert plan.list_box_values(upper_half, everybody) == ["b", None]
    assert number.condition("n", upper_half, everybody) == Between("n", 4.0, 8.0, missing=True)
    assert plan.condition("p", upper_half, everybody) == Among("p", ("b",), missing=True)


def draw_box(columns: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw the corners of a box of repeated halvings."""
    widths = 0.5 ** rng.choice([0, 0, 0, 1, 2, 3], size=columns)
    lower = np.floor(rng.random(columns) / widths) * widths
    return lower, lower + widths


@given(st.integers(0, 2**32))
def test_boxes_with_people_are_found_inhabited(seed: int) -> None:
    rng, people = np.random.default_rng(seed), encode_features(FEATURES, draw_numbers(seed, 200))
    lower, upper = map(np.array, zip(*(draw_box(people.shape[1], rng) for _ in range(60)), strict=True))
    is_inside = (people[:, None] >= lower) & ((people[:, None] < upper) | (upper == 1))
    assert find_inhabited_boxes(FEATURES, lower, upper)[is_inside.all(axis=2).any(axis=0)].all()


EMPTY = {
    "the fourth code of three answers": (Boolean(boolean=True, missing=True), [0.5, 0.5], [1, 1]),
    "a code of no level": (Categorical(levels=(1, 2, 3, 4), missing=True), [0.5, 0.5, 0.5], [1, 1, 1]),
    "no number is missing in the lower half": (Numeric(low=0, high=1, missing=True), [0, 0.5], [0.5, 1]),
    "nor in the upper quarter": (Numeric(low=0, high=1, missing=True), [0.75, 0.5], [1, 1]),
    "between two levels": (Ordinal(levels=("a", "b", "c"), ordered=True), [0.25], [0.375]),
    "half have the same number": (Ranked(quantiles=(0, 0, 0, 1, 2)), [0], [0.25]),
}


@pytest.mark.parametrize("name", EMPTY)
def test_boxes_without_possible_people_are_found(name: str) -> None:
    feature, lower, upper = EMPTY[name]
    assert feature.find_inhabited(np.array([lower], float), np.array([upper], float)).tolist() == [False]
    assert feature.find_inhabited(np.zeros((1, len(lower))), np.ones((1, len(lower)))).tolist() == [True]


def test_a_bucket_is_that_of_a_text_or_of_its_digits() -> None:
    town = Hashed(hash_buckets=64)
    numbers = [town.read("town", value) for value in ("12", 12, 12.0, "Nîmes", "Nimes")]
    assert numbers[0] == numbers[1] == numbers[2] == hash_bucket("12", 64)
    assert numbers[3] != numbers[4]
    counts = np.bincount([hash_bucket(f"user {n}", 64) for n in range(6400)], minlength=64)
    # Of 64 even buckets the largest is above 158, or the least below 46, one time in ten thousand.
    assert counts.min() > 46
    assert counts.max() < 158
    for wrong in (1.5, math.inf, True, ["a"]):
        with pytest.raises(InputError, match="town"):
            town.read("town", wrong)
    gap, empty = town.encode(np.array([math.nan, float(hash_bucket("", 64))]))
    assert gap.tolist() == empty.tolist()


def test_kinds_are_told_by_their_keys() -> None:
    kinds = [Numeric, Numeric, Ranked, Categorical, Categorical, Ordinal, Boolean, Boolean, Hashed, Numeric]
    assert [type(feature) for feature in FEATURES.values()] == kinds
    assert all(isinstance(feature, Feature) for feature in FEATURES.values())


@pytest.mark.parametrize("wrong", ["a\x1b[2J", "a\nb", "a\u202eb"])
def test_names_and_levels_that_control_a_screen_are_refused(wrong: str) -> None:
    for features in ({wrong: {"low": 0, "high": 1}}, {"country": {"levels": ["NL", wrong]}}):
        with pytest.raises(SpecError, match="printable"):
            make_spec({"context.features": features})
