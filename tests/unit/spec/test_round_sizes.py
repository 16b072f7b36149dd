"""The number of people in no round is the remainder after all rounds in sequence."""

from hypothesis import given
from hypothesis import strategies as st

from privateer_core.spec.arms import RoundSizes
from tests.support.specs import SHUFFLE, make_spec


@given(
    first=st.integers(1, 300),
    growth=st.one_of(st.just(0.0), st.floats(1e-4, 1.0)),
    n_before=st.integers(0, 3000),
    people=st.integers(0, 6000),
    share=st.floats(0.0, 1.0),
)
def test_rounds_in_one_step_are_rounds_one_by_one(
    first: int, growth: float, n_before: int, people: int, share: float
) -> None:
    sizes = RoundSizes(first, growth, max(1, int(share * first)))
    at = n_before
    while batch := sizes.batch(at, people):
        assert sizes.fewest <= batch <= sizes.max_batch(people)
        at += batch
    assert sizes.count_unreachable(n_before, people) == max(0, people - at)


def test_ten_billion_people_in_rounds_of_one_take_no_time() -> None:
    assert RoundSizes(1, 0.0, 1).count_unreachable(0, 10**10) == 0
    assert RoundSizes(7, 1e-9, 5).count_unreachable(0, 10**10) < 7


def test_sources_have_a_rest_each() -> None:
    """Planted: 700 of 5,700 people of shuffled rounds, as learned from."""
    source = {"name": "clinic", "participants": 2300, "epsilon": 1.0, "shares": [1 / 3] * 3}
    spec = make_spec({**SHUFFLE, "experiment.horizon": 5700, "sources": [source]})
    assert spec.count_unreachable("clinic", 0) == 300 + 700
    assert spec.count_unreachable("clinic", 2000) == 300 + 700
    assert spec.count_unreachable("", 0) == 700
    local = make_spec({"experiment.horizon": 5700})
    assert local.count_unreachable("", 0) == 0
