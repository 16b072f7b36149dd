"""The spec: refusals with field, constraint and remedy; and the sizes of rounds."""

import math
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privateer_core.algorithms import parse_spec, read_spec
from privateer_core.errors import SpecError
from privateer_core.spec.sections import _REMOVED_KEY_REMEDIES, _RENAMED, _RENAMED_VALUES
from tests.support.phased import tables as phased_tables
from tests.support.specs import SHUFFLE, make_spec, tables

PROVED = {"algorithm.name": "paper-1-proved"}
BAD = [
    ({"privacy.epsilon": 0.0}, "privacy.epsilon", "greater than or equal to 0.000000001"),
    ({"privacy.epsilon": 1e-20}, "privacy.epsilon", "greater than or equal to 0.000000001"),
    ({"privacy.epsilon": -1.0}, "privacy.epsilon", "greater than or equal to 0.000000001"),
    ({"privacy.epsilon": math.inf}, "privacy.epsilon", "finite"),
    ({"privacy.epsilon": -math.inf}, "privacy.epsilon", None),
    ({"privacy.epsilon": math.nan}, "privacy.epsilon", None),
    ({"privacy.epsilon": 17.0}, "privacy.epsilon", "16"),
    ({"privacy.epsilon": "much"}, "privacy.epsilon", "number"),
    ({"privacy.epsilon": None}, "privacy.epsilon", "must be given"),
    ({"privacy.model": "none"}, "privacy.epsilon", "promises nothing"),
    ({"privacy.model": "none", "privacy.epsilon": None, "privacy.delta": 1e-6}, "privacy.delta", "promises nothing"),
    ({"privacy.model": "central", "privacy.delta": 1e-9}, "privacy.delta", "at least 1e-08"),
    ({"privacy.model": "shuffle", "privacy.delta": 1e-16}, "privacy.delta", "at least 1e-15"),
    ({"privacy.delta": 1e-6}, "privacy.delta", "must be 0 under the model 'local'"),
    ({"privacy.delta": -1e-6}, "privacy.delta", "greater than or equal to 0"),
    ({"privacy.delta": math.nan}, "privacy.delta", None),
    ({"privacy.model": "middle"}, "privacy.model", "local, shuffle"),
    ({"privacy.calibration": "loose"}, "privacy.calibration", "unknown key"),
    ({**SHUFFLE, "privacy.delta": 0.0}, "privacy.delta", "at least 1e-15 under the model 'shuffle'"),
    ({**SHUFFLE, "privacy.delta": 0.5}, "privacy.delta", "less than 0.5"),
    ({**SHUFFLE, "algorithm.name": "paper-1-ldpmab"}, "privacy.model", "has no mechanism"),
    ({**SHUFFLE, "privacy.local_epsilon_max": 0.5}, "privacy.local_epsilon_max", "at least epsilon"),
    ({**SHUFFLE, "privacy.local_epsilon_max": math.inf}, "privacy.local_epsilon_max", "finite"),
    ({**SHUFFLE, "privacy.honest_fraction": 0.0}, "privacy.honest_fraction", "greater than 0"),
    ({**SHUFFLE, "privacy.honest_fraction": 1.1}, "privacy.honest_fraction", "less than or equal to 1"),
    ({**SHUFFLE, "privacy.honest_fraction": 0.0009}, "privacy.honest_fraction", "at least one report"),
    ({**SHUFFLE, "privacy.min_batch": 99}, "privacy.min_batch", "100"),
    ({**SHUFFLE, "privacy.min_batch": 1001}, "privacy.min_batch", "at most experiment.round_size"),
    ({"experiment.arms": ["one"]}, "experiment.arms", "at least 2"),
    ({"experiment.arms": []}, "experiment.arms", "at least 2"),
    ({"experiment.arms": [f"arm-{k}" for k in range(257)]}, "experiment.arms", "at most 256"),
    ({"experiment.arms": ["a", "a"]}, "experiment.arms", "distinct"),
    ({"experiment.arms": ["a b", "a  b"]}, "experiment.arms", "two names look the same"),
    ({"experiment.arms": ["ab", "a\u200db"]}, "experiment.arms", "two names look the same"),
    ({"experiment.arms": ["a", "a\ufe0f"]}, "experiment.arms", "two names look the same"),
    ({"experiment.arms": ["a", "a\u3164"]}, "experiment.arms", "two names look the same"),
    ({"experiment.arms": ["a", "\u3164 "]}, "experiment.arms", "a name that people see"),
    ({"experiment.arms": ["a", "名" * 65]}, "experiment.arms.1", "at most 64 characters"),
    ({"experiment.arms": ["a", ""]}, "experiment.arms.1", "match"),
    ({"experiment.name": "Has Spaces"}, "experiment.name", "lower-case"),
    ({"experiment.name": "../etc"}, "experiment.name", "lower-case"),
    ({"experiment.horizon": 0}, "experiment.horizon", "greater than or equal to 1"),
    ({"experiment.horizon": 999}, "experiment.round_size", "at most experiment.horizon"),
    ({"experiment.round_size": 0}, "experiment.round_size", "greater than or equal to 1"),
    ({"experiment.round_size": 10.5}, "experiment.round_size", "integer"),
    ({"experiment.min_round_fraction": -0.1}, "experiment.min_round_fraction", "greater than or equal to 0"),
    ({"experiment.min_round_fraction": math.nan}, "experiment.min_round_fraction", None),
    ({"context.features": {}}, "context.features", "at least 1"),
    ({"context.features": {f"x{j}": {"low": 0, "high": 1} for j in range(21)}}, "context.features", "at most 20"),
    ({"context.features.x1.high": 0.0}, "context.features.x1", "low must be below high"),
    ({"context.features.x1.high": -1.0}, "context.features.x1", "low must be below high"),
    ({"context.features.x1.low": math.nan}, "context.features.x1.low", "finite"),
    ({"context.features.x1.high": math.inf}, "context.features.x1.high", "finite"),
    ({"context.features.x1": {"low": -1e308, "high": 1e308}}, "context.features.x1", "too wide"),
    ({"reward.high": 1e-320}, "reward", "too narrow"),
    ({"reward.low": -1e300, "reward.high": 1e300}, "reward", "too wide"),
    ({"reward.low": 0.0, "reward.high": 1e-16}, "reward", "too narrow"),
    ({"reward.low": 1e14, "reward.high": 1e14 + 1}, "reward", "too narrow"),
    ({"context.features.x1.step": 1}, "context.features.x1.step", "unknown key"),
    ({"reward.low": 1.0}, "reward", "low must be below high"),
    ({"reward.high": math.nan}, "reward.high", "finite"),
    ({"algorithm.name": "magic"}, "algorithm.name", "partition"),
    ({"algorithm.confidence": "hoped"}, "algorithm.confidence", "unknown key"),
    ({**PROVED, "algorithm.lipschitz": 0.0}, "algorithm.lipschitz", "greater than 0"),
    ({**PROVED, "algorithm.density_bound": 0.9}, "algorithm.density_bound", "greater than or equal to 1"),
    ({**PROVED, "algorithm.failure": 1.0}, "algorithm.failure", "less than 1"),
    ({**PROVED, "algorithm.failure": math.nan}, "algorithm.failure", None),
    ({"algorithm.half_life": 0.0}, "algorithm.half_life", None),
    ({"algorithm.half_life": math.inf}, "algorithm.half_life", None),
    ({"algorithm.half_life": "forever"}, "algorithm.half_life", None),
    ({"algorithm.half_life": 999}, "algorithm.half_life", "experiment.round_size"),
    ({"algorithm.half_life": "auto", "experiment.round_size": 4000}, "algorithm.half_life", "experiment.round_size"),
    ({"algorithm.half_life": 5000, "algorithm.name": "paper-1-proved"}, "algorithm.half_life", "None"),
    ({"algorithm.confidence": "proved"}, "algorithm.confidence", "unknown key"),
    ({"algorithm.half_life": 5000, "algorithm.name": "paper-1-ldpmab"}, "algorithm.half_life", "None"),
    ({"privcy": {}}, "privcy", "unknown key"),
    ({"privacy.epsilom": 1.0}, "privacy.epsilom", "unknown key"),
    ({"experiment.arm": ["a", "b"]}, "experiment.arm", "unknown key"),
    ({"algorithm.depth": 3}, "algorithm.depth", "unknown key"),
    *(({key: 1}, key, "is no longer a key") for key in _REMOVED_KEY_REMEDIES if key.startswith("algorithm.")),
]


@pytest.mark.parametrize(("changes", "field", "constraint"), BAD, ids=lambda value: str(value)[:60])
def test_bad_input_names_field_constraint_and_remedy(changes, field, constraint):
    with pytest.raises(SpecError) as refused:
        parse_spec(tables(changes))
    error = refused.value
    assert error.field == field
    assert constraint is None or constraint in error.detail
    assert error.remedy
    assert "\n" not in str(error)


SOURCE = {"name": "clinic", "participants": 5, "shares": "unknown"}
PHASED = ("recruitment", "asking", "experiment.people")
INSIDE = {
    "sources.people": {"sources": [SOURCE | {"people": 5}]},
    "context.hashed": {"context.features.x1": {"hash_buckets": 4, "hashed": 4}},
}
"""Old keys of tables that have names of their own."""


@pytest.mark.parametrize(("old", "new"), _RENAMED.items())
def test_an_old_key_is_refused_with_the_new_one(old, new):
    """A trial's ``alpha`` above all: it must not be read as a level of significance."""
    kind = {"algorithm.name": "trial" if old.startswith(("segments", "algorithm")) else "partition"}
    changes = INSIDE.get(old) or {old: {}}
    sections = phased_tables(changes) if old.startswith(PHASED) else tables(kind | changes)
    with pytest.raises(SpecError) as refused:
        parse_spec(sections)
    assert (refused.value.detail, refused.value.remedy) == ("is no longer a key", f"call it {new}")


@pytest.mark.parametrize(("field", "old", "new"), [(*renamed, new) for renamed, new in _RENAMED_VALUES.items()])
def test_an_old_value_is_refused_with_the_new_one(field, old, new):
    kind = {"algorithm.name": "trial" if field.startswith("algorithm") else "partition"}
    with pytest.raises(SpecError, match=f"'{new}'") as refused:
        parse_spec(tables(kind | {field: old}))
    assert (refused.value.field, refused.value.remedy) == (field, f"call it {new}")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"privacy.epsilon": True}, "privacy.epsilon"),
        ({"experiment.round_size": True}, "experiment.round_size"),
        ({"reward.low": False}, "reward.low"),
        ({"context.features": {"x1": {"low": False, "high": 1.0}}}, "context.features.x1.low"),
        ({"context.features": {"x1": {"quantiles": [False, 2.0, 3.0]}}}, "context.features.x1.quantiles"),
        ({"sources": [{"name": "clinic", "participants": True, "shares": "unknown"}]}, "sources.0.participants"),
    ],
)
def test_true_and_false_are_no_numbers(changes, field):
    """Planted: the numbers that they would count as."""
    with pytest.raises(SpecError) as caught:
        make_spec(changes)
    assert (caught.value.field, "true" in str(caught.value)) == (field, True), caught.value


@pytest.mark.parametrize("section", ["experiment", "context", "privacy", "algorithm"])
def test_missing_sections_are_named(section):
    data = tables()
    del data[section]
    with pytest.raises(SpecError) as refused:
        parse_spec(data)
    assert refused.value.field == {"algorithm": "algorithm.name", "context": "context.features"}.get(section, section)
    assert (refused.value.remedy or "").startswith("add ")


@pytest.mark.parametrize("text", ["[experiment", "a = ", "\x00", "[a]\n[a]"])
def test_text_that_is_not_toml_is_refused(text):
    with pytest.raises(SpecError) as refused:
        read_spec(text)
    assert refused.value.field == "spec"
    assert "not TOML" in refused.value.detail


def test_toml_nan_and_inf_are_refused():
    for word in ("nan", "inf", "-inf"):
        with pytest.raises(SpecError):
            read_spec(f"[privacy]\nmodel = 'local'\nepsilon = {word}\n")


@given(
    st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5), st.lists, max_leaves=5)
)
def test_any_value_in_any_place_is_a_spec_error_or_fine(value):
    for name in (
        "privacy",
        "experiment",
        "context.features",
        "privacy.epsilon",
        "experiment.arms",
        "reward",
        "algorithm",
    ):
        with suppress(SpecError):
            parse_spec(tables({name: value}))


def test_a_spec_survives_json():
    spec = make_spec({**SHUFFLE, "population.name": "peaks"})
    assert type(spec).model_validate_json(spec.model_dump_json()) == spec


def rounds(spec):
    return [turn.batch_size for turn in spec.planned_rounds()]


def test_fixed_rounds_end_at_the_horizon():
    sizes = list(rounds(make_spec({"experiment.horizon": 2500})))
    assert sizes == [1000, 1000, 500]


def test_rounds_grow_with_the_invited_participants():
    sizes = list(rounds(make_spec({"experiment.horizon": 30_000, "experiment.min_round_fraction": 0.1})))
    assert sum(sizes) == 30_000
    n_invited = 0
    for size in sizes[:-1]:
        assert size == max(1000, math.floor(0.1 * n_invited))
        n_invited += size


def test_a_last_round_below_min_batch_is_left_out():
    changes = {**SHUFFLE, "privacy.min_batch": 600, "experiment.horizon": 2500}
    assert list(rounds(make_spec(changes))) == [1000, 1000]
    assert list(rounds(make_spec({**changes, "privacy.min_batch": 500}))) == [1000, 1000, 500]


def source(name="clinic", people=2500, epsilon=2.0, shares=(0.5, 0.25, 0.25)):
    return {"name": name, "participants": people, "epsilon": epsilon, "shares": list(shares)}


def looking_source(min_propensities):
    """A source whose earlier policy looked at the context."""
    return source() | {"shares": None, "min_propensities": min_propensities}


def turns(spec):
    return [(turn.cohort, turn.n_reported, turn.batch_size) for turn in spec.planned_rounds()]


def test_sources_have_their_turn_first_the_best_protected_last():
    spec = make_spec({"experiment.horizon": 1000, "sources": [source("weak", 1000, 0.5), source("clinic", 1500)]})
    assert list(turns(spec)) == [("clinic", 0, 1000), ("clinic", 1000, 500), ("weak", 0, 1000), ("", 0, 1000)]


def test_a_source_is_left_out_where_it_cannot_fill_a_batch():
    changes = {**SHUFFLE, "privacy.min_batch": 600, "experiment.horizon": 1000}
    spec = make_spec({**changes, "sources": [source(people=500), source("large", 1300)]})
    assert list(turns(spec)) == [("large", 0, 1000), ("", 0, 1000)]


def test_people_of_a_source_report_on_arms_by_shares_or_by_the_least_propensities():
    spec = make_spec({"sources": [source("a"), looking_source([0.2, 0.1, 0.0])]})
    assert [past.reporting_shares for past in spec.sources] == [(0.5, 0.25, 0.25), (0.2, 0.1, 0.0)]


def test_a_source_is_promised_its_own_epsilon():
    spec = make_spec({"sources": [source()]})
    assert [spec.cohort_privacy(cohort).epsilon for cohort in ("", "clinic")] == [1.0, 2.0]
    assert spec.cohort_privacy("clinic").model == "local"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"sources": [source(), source()]}, "sources"),
        ({"sources": [source(shares=(0.5, 0.5))]}, "sources.clinic.shares"),
        ({"sources": [source(shares=(0.5, 0.5, 0.5))]}, "sources.clinic.shares"),
        ({"sources": [source() | {"shares": "unknown"}]}, "sources.clinic.shares"),
        ({"sources": [source() | {"min_propensities": [0.1] * 3}]}, "sources.clinic.shares"),
        ({"sources": [source() | {"shares": None}]}, "sources.clinic.shares"),
        ({"sources": [looking_source([0.1, 0.1])]}, "sources.clinic.min_propensities"),
        ({"sources": [looking_source([0.5, 0.5, 0.5])]}, "sources.clinic.min_propensities"),
        ({"sources": [looking_source([0.0, 0.0, 0.0])]}, "sources.clinic.min_propensities"),
        ({"sources": [looking_source([1e-320, 0.5, 0.4])]}, "sources.clinic.min_propensities"),
        ({"sources": [looking_source([9e-10, 0.0, 0.4])]}, "sources.clinic.min_propensities"),
        ({"sources": [looking_source([0.5, 0.5, float("nan")])]}, "sources.0.min_propensities.2"),
        ({"algorithm.name": "linear", "sources": [looking_source([0.1] * 3)]}, "sources"),
        ({"sources": [source(epsilon=1e-20)]}, "sources.0.epsilon"),
        ({"sources": [source(epsilon=None)]}, "sources.clinic.epsilon"),
        ({**SHUFFLE, "sources": [source(epsilon=9.0)]}, "sources.clinic.epsilon"),
        ({"sources": [source(name="Clinic")]}, "sources.0.name"),
    ],
)
def test_impossible_sources_are_refused(changes, field):
    with pytest.raises(SpecError) as error:
        make_spec(changes)
    assert error.value.field == field


def test_arms_of_an_unknown_policy_are_learned_from_as_published_only():
    spec = make_spec({"algorithm.name": "paper-1-ldpmab", "sources": [source() | {"shares": "unknown"}]})
    assert spec.source(spec.cohorts[0]).shares == "unknown"


@given(
    st.integers(1, 3000),
    st.integers(0, 200_000),
    st.floats(0, 1),
    st.sampled_from(["local", "shuffle"]),
    st.integers(100, 3000),
)
def test_no_round_breaks_its_bounds(size, n_after_first, growth, model, fewest):
    changes = {
        "experiment.round_size": size,
        "experiment.horizon": size + n_after_first,
        "experiment.min_round_fraction": growth,
        "privacy.model": model,
        "privacy.min_batch": fewest,
    }
    if model == "shuffle":
        changes["privacy.delta"] = 1e-6
        if fewest > size:
            return
    spec = make_spec(changes)
    n_invited = 0
    for number, batch in enumerate(turn.batch_size for turn in spec.planned_rounds()):
        assert 0 < batch <= spec.experiment.horizon - n_invited
        assert model == "local" or batch >= fewest
        n_invited += batch
        if number > 50:
            return
    assert spec.experiment.horizon - n_invited < (fewest if model == "shuffle" else 1)


def test_a_round_that_does_not_open_uses_no_places():
    """The schedule counts reports that opened: more rounds, or fewer if batches brought more than was asked."""
    spec = make_spec({**SHUFFLE, "experiment.horizon": 5000, "privacy.min_batch": 1000})
    turns, turn = 0, spec.next_round("", 0)
    while turn.batch_size:
        turns, turn = turns + 1, spec.next_round("", turn.n_reported + 800)
    assert (turns, turn.n_reported) == (6, 4800)
    assert spec.next_round("", 6000).batch_size == 0


def test_only_algorithms_that_recall_take_sources():
    data = phased_tables({"sources": [source(shares=[1 / 30] * 30)]}, "local")
    with pytest.raises(SpecError) as refused:
        parse_spec(data)
    assert refused.value.field == "sources"
