"""Default limits of a promise follow from its epsilon: the cost of a single report, and the minimum batch size."""

from typing import Any

import pytest

from privateer_client.participation import Participation
from privateer_client.publication_parts import meaning
from privateer_core.algorithms import parse_spec
from privateer_core.errors import SpecError, TermsRefused
from privateer_core.privacy.terms_verification import Limits
from privateer_core.spec.privacy import Privacy
from privateer_lab.planning.plans import make_variants
from tests.support.publications import published
from tests.support.specs import make_spec, tables

SHUFFLE = {"privacy.model": "shuffle", "privacy.delta": 1e-6}
GROWING = {"name": "test", "arms": ["a", "b", "c"], "horizon": 20_000, "min_round_fraction": 0.1}


def growing_spec(epsilon, **privacy) -> Any:
    sections = tables({**SHUFFLE, "privacy.epsilon": epsilon, **{f"privacy.{name}": v for name, v in privacy.items()}})
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
    sections = tables({**SHUFFLE, "privacy.epsilon": 4.0})
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
        make_spec(SHUFFLE | changes)
    assert refused.value.field == field
    assert word in str(refused.value)


def test_choices_that_are_kept_stand_for_the_limits_that_earlier_versions_left_out():
    """Their digests leave out only a cap of 4 and batches of 1,000."""
    usual, capped = make_spec(SHUFFLE | {"privacy.epsilon": 1.0}), {**SHUFFLE, "privacy.epsilon": 1.0}
    assert meaning(usual) == meaning(make_spec(capped | {"privacy.local_epsilon_max": 4.0, "privacy.min_batch": 1000}))
    assert meaning(usual) != meaning(make_spec(capped | {"privacy.local_epsilon_max": 5.0}))
