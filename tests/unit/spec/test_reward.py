"""Rewards, sizes of rounds and usual limits of a spec."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from privateer_client.participation import Participation
from privateer_client.publication_parts import digest_meaning
from privateer_core.algorithms import parse_spec
from privateer_core.errors import InputError, SpecError, TermsRefused
from privateer_core.privacy.terms_verification import Limits
from privateer_core.spec.arms import RoundSizes
from privateer_core.spec.columns import is_number
from privateer_core.spec.privacy import Privacy
from privateer_core.spec.reward import Reward
from privateer_lab.planning.plans import make_variants
from tests.support.publications import published
from tests.support.specs import SHUFFLE, make_spec, tables


def test_rewards_are_scaled_and_clipped() -> None:
    reward = Reward(low=-1, high=3)
    assert reward.scale_and_clip(1) == (0.5, False)
    assert reward.scale_and_clip(9) == (1.0, True)
    assert reward.scale_and_clip(-9) == (0.0, True)


@pytest.mark.parametrize("value", [float("nan"), "41.5", None, True, [41.5], 10**400])
def test_a_reward_that_is_no_number_is_refused_and_not_echoed(value: object) -> None:
    assert not is_number(value)
    with pytest.raises(InputError) as error:
        Reward().scale_and_clip(value)
    assert error.value.field == "reward"
    assert "41" not in str(error.value)


@pytest.mark.parametrize("rate", [0.0, 1.0, -0.1, float("nan")])
def test_a_base_rate_is_between_the_bounds(rate: float) -> None:
    assert Reward(base_rate=0.005).base_rate == 0.005
    with pytest.raises(ValidationError):
        Reward(base_rate=rate)


@pytest.mark.parametrize("value", [0, -1.5, np.int64(3), np.float32(0.5), float("inf")])
def test_numbers_of_every_kind_are_numbers(value: object) -> None:
    assert is_number(value)


def test_default_fields_are_left_out_so_that_earlier_specs_keep_their_bytes() -> None:
    assert Reward().model_dump() == {"low": 0.0, "high": 1.0, "default": None}
    reward = Reward(high=300.0, kind="numeric", base_rate=2.0, standard_deviation=15.0)
    assert Reward.model_validate_json(reward.model_dump_json()) == reward
    assert reward.expected_rate == pytest.approx(2 / 300)


@pytest.mark.parametrize(
    "wrong",
    [
        {"base_rate": 0.0},
        {"base_rate": 1.5},
        {"standard_deviation": 0.2},
        {"kind": "numeric", "standard_deviation": 0.6},
        {"kind": "numeric", "standard_deviation": 0.0},
        {"kind": "count"},
    ],
)
def test_impossible_base_rates_and_deviations_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - pydantic's
        Reward.model_validate(wrong)


def test_numbers_that_cannot_vary_so_much_about_their_mean_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"at most 6\.778"):
        Reward(kind="numeric", low=0.0, high=200.0, base_rate=0.23, standard_deviation=14.0)
    assert (
        Reward(kind="numeric", low=0.0, high=200.0, base_rate=2.3, standard_deviation=14.0).standard_deviation == 14.0
    )


def test_very_wide_bounds_are_a_concern_where_there_is_noise() -> None:
    """Planted: bounds 50 standard deviations apart, which revenue may have."""
    wide = Reward(high=1e6, kind="numeric", base_rate=5.0, standard_deviation=1.0)
    (concern,) = wide.concerns(has_noise=True)
    assert "1,000,000 standard deviations" in concern
    assert "with bounds 10 apart it would be 100,000 times smaller" in concern
    assert wide.concerns(has_noise=False) == []
    assert Reward(high=50.0, kind="numeric", base_rate=5.0, standard_deviation=1.0).concerns(has_noise=True) == []


@given(
    first=st.integers(1, 300),
    growth=st.one_of(st.just(0.0), st.floats(1e-4, 1.0)),
    n_before=st.integers(0, 3000),
    people=st.integers(0, 6000),
    share=st.floats(0.0, 1.0),
)
def test_rounds_in_one_step_are_rounds_one_by_one(first, growth, n_before, people, share):
    sizes = RoundSizes(first, growth, max(1, int(share * first)))
    at = n_before
    while batch := sizes.batch_size(at, people):
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


MIN_SHUFFLE = {"privacy.model": "shuffle", "privacy.delta": 1e-6}
GROWING = {"name": "test", "arms": ["a", "b", "c"], "horizon": 20_000, "min_round_fraction": 0.1}


def growing_spec(epsilon, **privacy) -> Any:
    sections = tables(
        {**MIN_SHUFFLE, "privacy.epsilon": epsilon, **{f"privacy.{name}": v for name, v in privacy.items()}}
    )
    return parse_spec(sections | {"experiment": GROWING})


@pytest.mark.parametrize(
    ("epsilon", "cap", "batch"),
    [(0.5, 4, 1000), (1, 4, 1000), (2, 4, 300), (3.9, 5.9, 300), (4, 6, 100), (8, 10, 100), (16, 16, 100)],
)
def test_caps_are_above_epsilon_and_batches_as_small_as_it_allows(epsilon, cap, batch):
    spec = growing_spec(epsilon)
    limits = (spec.privacy.local_epsilon_max, spec.privacy.min_batch, spec.experiment.round_size)
    assert limits == (cap, batch, batch)
    assert parse_spec(spec.model_dump(mode="json", exclude_none=True)) == spec
    assert spec.first_terms("").keeps_promise


@pytest.mark.parametrize("cap", [4.0, 8.0])
def test_stated_limits_are_kept(cap):
    spec = growing_spec(4.0, local_epsilon_max=cap, min_batch=500)
    assert (spec.privacy.local_epsilon_max, spec.experiment.round_size) == (cap, 500)


def test_first_rounds_are_small_only_where_later_ones_grow():
    sections = tables({**MIN_SHUFFLE, "privacy.epsilon": 4.0})
    spec: Any = parse_spec(sections | {"experiment": GROWING | {"min_round_fraction": 0.0}})
    assert spec.experiment.round_size == 1000


@pytest.mark.parametrize("model", ["local", "central"])
def test_limits_without_a_shuffler_do_not_depend_on_epsilon(model):
    privacy = Privacy(model=model, epsilon=8.0)
    assert (privacy.local_epsilon_max, privacy.min_batch) == (4.0, 1000)


def test_plans_take_the_limits_of_each_promise():
    specs: Any = {
        variant.epsilon: variant.spec for variant in make_variants(growing_spec(1.0), ["shuffle"], [1.0, 4.0])
    }
    sizes = {epsilon: (spec.privacy.local_epsilon_max, spec.experiment.round_size) for epsilon, spec in specs.items()}
    assert sizes == {1.0: (4.0, 1000), 4.0: (6.0, 100)}
    (stated,) = make_variants(growing_spec(1.0, local_epsilon_max=5.0, min_batch=1000), ["shuffle"], [4.0])
    assert (stated.spec.privacy.local_epsilon_max, stated.spec.privacy.min_batch) == (5.0, 1000)


def test_a_device_needs_its_applications_consent_for_a_cap_above_4():
    body = published(growing_spec(4.0, min_batch=1000))
    with pytest.raises(TermsRefused, match=r"allows 4.*Limits\(local_epsilon=") as refused:
        Participation(body, "test", Limits(epsilon=4.0))
    assert refused.value.field == "local_epsilon"
    assert Participation(body, "test", Limits(epsilon=4.0, local_epsilon=6.0)).terms.mechanism.local_epsilon > 4.0


def test_a_device_says_which_limit_small_batches_need():
    with pytest.raises(TermsRefused, match=r"may have 100 .*Limits\(min_batch=") as refused:
        Participation(published(growing_spec(4.0)), "test", Limits(epsilon=4.0, local_epsilon=6.0))
    assert refused.value.field == "batch_size"


@pytest.mark.parametrize(
    ("changes", "field", "word"),
    [
        (
            {"privacy.local_epsilon_max": 0.5, "privacy.epsilon": 1.0},
            "privacy.local_epsilon_max",
            "at least epsilon, 1",
        ),
        ({"privacy.epsilon": 50.0}, "privacy.epsilon", "16"),
        ({"privacy.epsilon": 1.0, "privacy.local_epsilon_max": 50.0}, "privacy.local_epsilon_max", "16"),
        (
            {"privacy.epsilon": 1.0, "privacy.arm_visibility": "as-local", "experiment.reports_per_person": 2},
            "privacy.arm_visibility",
            "1",
        ),
        (
            {"privacy.epsilon": 1.0, "privacy.arm_visibility": "as-local", "privacy.model": "central"},
            "privacy.arm_visibility",
            "central",
        ),
    ],
)
def test_impossible_limits_are_refused_with_the_figure(changes, field, word):
    with pytest.raises(SpecError) as refused:
        make_spec(MIN_SHUFFLE | changes)
    assert refused.value.field == field
    assert word in str(refused.value)


def test_choices_that_are_kept_stand_for_the_limits_that_earlier_versions_left_out():
    """Their digests leave out only a cap of 4 and batches of 1,000."""
    usual, capped = make_spec(MIN_SHUFFLE | {"privacy.epsilon": 1.0}), {**MIN_SHUFFLE, "privacy.epsilon": 1.0}
    assert digest_meaning(usual) == digest_meaning(
        make_spec(capped | {"privacy.local_epsilon_max": 4.0, "privacy.min_batch": 1000})
    )
    assert digest_meaning(usual) != digest_meaning(make_spec(capped | {"privacy.local_epsilon_max": 5.0}))
