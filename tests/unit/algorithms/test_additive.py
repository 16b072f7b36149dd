"""The additive bandit on a device: cells, questions, contributions, refused policies, and one alphabet of reports."""

from dataclasses import replace
from itertools import product
from typing import Any

import msgspec
import numpy as np
import pytest

from privateer_core.accounting.accountant import account
from privateer_core.accounting.events import ShuffledResponse
from privateer_core.algorithms import parse_spec
from privateer_core.algorithms.additive.policy import Residuals
from privateer_core.errors import InputError, SpecError
from privateer_core.policies.policy import Arms
from privateer_core.spec.context import encode_features
from privateer_lab.simulation.scores import SeededNoise
from privateer_server.algorithms import learner_for

FEATURES = {
    "age": {"low": 0.0, "high": 80.0, "missing": True},
    "job": {"levels": ["clerk", "cook", "driver"]},
    "size": {"levels": ["s", "m", "l"], "ordered": True},
    "member": {"boolean": True},
}
PROMISES = {
    "none": {},
    "central": {"epsilon": 1.0, "delta": 1e-6},
    "shuffle": {"epsilon": 1.0, "delta": 1e-6},
    "local": {"epsilon": 4.0},
}
RETURNS = {"none": 1, "central": 2, "shuffle": 1, "local": 1}


def spec_of(model, **changes):
    tables = {
        "experiment": {"name": "test", "arms": ["a", "b", "c"], "horizon": 20_000},
        "context": {"features": FEATURES},
        "privacy": {"model": model, **PROMISES[model]},
        "algorithm": {"name": "additive", "bins": 8},
    }
    return parse_spec({name: {**tables.get(name, {}), **changes.get(name, {})} for name in {**tables, **changes}})


def policy_of(model, **changes):
    spec = spec_of(model, **changes)
    learner = learner_for(spec)
    return spec, learner.open_next_round(learner.start(1), 1, 7).policy


def people(spec, count, seed=1):
    rng = np.random.default_rng(seed)
    ages = np.where(rng.random(count) < 0.2, np.nan, rng.uniform(0, 80, count))
    raw = np.column_stack([ages, rng.integers(0, 4, count), rng.integers(0, 3, count), rng.integers(0, 2, count)])
    coins = rng.integers(0, 2**32, count, dtype=np.uint32)
    return encode_features(spec.features, raw), coins, Arms(rng.integers(0, 3, count)), rng.random(count)


def test_cells_are_bins_levels_and_missing_values():
    spec = spec_of("none")
    raw = np.array([[0, 0, 0, 0], [80, 2, 2, 1], [np.nan, 3, 1, 0], [39.9, 1, 1, 1], [40, 1, 1, 1]])
    cells = spec.questions.cells
    indices = cells.locate(encode_features(spec.features, raw)) - cells.starts[:-1]
    assert indices[:, 0].tolist() == [0, 7, 8, 3, 4]
    assert len(set(indices[:4, 1].tolist())) == 4
    assert indices[:, 2].tolist() == [0, 2, 1, 1, 1]
    assert indices[:, 3].tolist() == [0, 1, 0, 1, 1]
    names = spec.cell_names
    assert len(names) == len(set(names)) == cells.count - 1
    assert {"age: 0 to 10", "age: missing", "job: cook", "job: other", "size: m", "member: yes"} <= set(names)


def test_a_value_that_is_no_number_is_refused_without_an_echo():
    spec = spec_of("none")
    with pytest.raises(InputError) as refused:
        spec.questions.cells.locate(np.full((1, spec.dimension), np.nan))
    assert refused.value.field == "context"


def test_every_question_partitions_its_feature_and_merges_neighbouring_cells_alone():
    questions = spec_of("shuffle").questions
    assert questions.incidence_matrix[0].tolist() == [1.0] + [0.0] * (questions.cells.count - 1)
    for question in range(1, questions.count):
        rows = questions.incidence_matrix[questions.starts[question] : questions.starts[question + 1]]
        assert rows.sum(axis=0).tolist() == (rows.sum(axis=0) > 0).astype(float).tolist()
        assert all((np.diff(np.flatnonzero(row)) == 1).all() for row in rows)
        assert rows.any(axis=1).all()


def test_an_answer_is_the_part_that_holds_the_cell_of_the_participant():
    spec = spec_of("central")
    questions = spec.questions
    terms = questions.cells.locate(people(spec, 50)[0])
    for question, column in enumerate(questions.locate(terms).T):
        feature_terms = terms[:, questions.features[question]] if question else np.zeros(50, np.int64)
        assert (questions.incidence_matrix[questions.starts[question] + column, feature_terms] == 1).all()


def moved_sums(mechanism, contributions, participants):
    """Return the largest distance of what two participants add to a curator's sums, in sensitivities."""
    records = mechanism.randomize(contributions, SeededNoise(1))[participants]
    vectors = [mechanism.add(mechanism.empty(), records[[row]]).sums for row in range(len(records))]
    return max(np.linalg.norm(left - right) for left, right in product(vectors, vectors)) / mechanism.sensitivity


def test_participants_of_a_round_are_no_farther_apart_than_a_curators_noise_hides():
    """Two of them are almost that far: the same arm and answers, and opposite rewards."""
    spec, policy = policy_of("central", experiment={"reports_per_person": 2})
    contexts, coins, arms, _ = people(spec, 200)
    contexts[1], arms.arms[1] = contexts[0], arms.arms[0]
    contributions = policy.contribute(contexts, coins, arms, (np.arange(200) % 2).astype(float))
    assert 0.99 < moved_sums(policy.terms.mechanism, contributions, np.arange(60)) <= 1


def test_residuals_say_how_far_a_reward_is_from_what_was_expected():
    expected, usual = np.array([0.25, 0.5, 1.5, -0.5]), Residuals(1.0)
    assert usual.compute(expected, np.array([1.0, 0.0, 0.0, 1.0])).tolist() == pytest.approx([1.0, -1.0, -1.0, 1.0])
    # A sum beyond 1 is known to be too large even from a reward of 1: clipped to 1, it would be taken as right.
    assert usual.compute(expected[2:], np.array([1.0, 0.0])).tolist() == pytest.approx([-1 / 3, 1 / 3])
    assert not usual.clipped_excess(expected).any()


@pytest.mark.parametrize("below", [1.0, 0.25])
def test_residuals_are_linear_in_rewards_and_never_beyond_one(below):
    rng, residuals = np.random.default_rng(0), Residuals(below)
    expected, rewards = rng.normal(0.5, 2.0, 10_000), rng.choice([0.0, 1.0, 0.3], 10_000)
    values = residuals.compute(expected, rewards)
    assert -below <= values.min() <= values.max() <= 1
    differences = rewards - expected + residuals.clipped_excess(expected)
    assert values / residuals.weights(expected) == pytest.approx(differences)


def test_residuals_of_rare_rewards_are_hardly_negative():
    expected, rare = np.array([0.01, 0.05, 0.2, -0.3]), Residuals(1 / 19)
    assert rare.compute(expected, np.ones(4)).tolist() == pytest.approx([1.0] * 4)
    assert rare.compute(expected, np.zeros(4)).tolist() == pytest.approx([-1 / 99, -1 / 19, -1 / 19, 3 / 13])
    assert rare.clipped_excess(expected).tolist() == pytest.approx([0, 0, 0.15, 0])


@pytest.mark.parametrize("model", PROMISES)
def test_residuals_of_rare_rewards_have_a_lower_bound(model):
    # Who comes back shares out a promise of normal noise.
    spec, policy = policy_of(model, reward={"base_rate": 0.01}, experiment={"reports_per_person": RETURNS[model]})
    assert policy.below == pytest.approx(0.01 / 0.99, rel=0.02)
    assert policy.is_compatible(spec)
    assert not replace(policy, below=0.0).is_compatible(spec)
    assert not replace(policy, below=1.5).is_compatible(spec)
    contributions = policy.contribute(*people(spec, 400)[:3], (np.arange(400) % 80 == 0).astype(float))
    if model in ("none", "central"):
        mechanism = policy.terms.mechanism
        assert not replace(policy, below=0.5).is_compatible(spec), "the bound of residuals is another"
        assert contributions.values.min() >= -policy.below == -mechanism.below
        assert 0.9 < moved_sums(mechanism, contributions, np.arange(0, 400, 80)) <= 1
    else:
        assert 0 <= contributions.values.min() < 0.01
        assert contributions.values.max() == 1


def test_rare_rewards_have_half_of_the_noise_of_others():
    """And the same promise: a sum moves by little more than the root of 2 in place of 2."""
    wide, rare_rewards = {"context": {"features": FEATURES | NUMBERS}}, {"reward": {"base_rate": 0.01}}
    usual, rare = (policy_of("central", **wide, **changes)[1].terms for changes in ({}, rare_rewards))
    assert rare.mechanism.value_noise < 0.56 * usual.mechanism.value_noise
    assert account(rare.event).delta(1.0) <= 1e-6
    planted = msgspec.structs.replace(usual.mechanism, standard_deviation=rare.mechanism.standard_deviation)
    assert account(planted.release_event).delta(1.0) > 1e-5


@pytest.mark.parametrize("model", PROMISES)
def test_a_policy_that_no_learner_makes_is_refused(model):
    spec, policy = policy_of(model)
    assert policy.is_compatible(spec)
    falling = policy.edges.copy()
    falling[0] = falling[-1] + 1
    wrong_changes = [
        {"draws": policy.draws.astype(np.int32)},
        {"draws": policy.draws[:0]},
        {"draws": policy.draws[:, :, :-1]},
        {"means": policy.means[:-1]},
        {"edges": falling},
        {"edges": policy.edges[:-1]},
        {"counts_arms": not policy.counts_arms},
        {"playable": ~policy.playable},
        {"seed": -1},
        {"questions": spec_of("none" if model != "none" else "central").questions},
    ]
    assert not any(replace(policy, **change).is_compatible(spec) for change in wrong_changes)


def test_a_policy_whose_thresholds_do_not_match_its_question_shares_is_refused():
    spec, policy = policy_of("shuffle")
    other = replace(policy, edges=(policy.edges // 2).astype(np.uint32))
    assert not other.is_compatible(spec)


NUMBERS = {f"x{place}": {"low": 0, "high": 1} for place in range(40)}


def levels(count, features):
    return {"features": {f"level {place}": {"levels": list(range(count))} for place in range(features)}}


@pytest.mark.parametrize(
    ("model", "context", "arms", "message"),
    [
        ("none", levels(60, 9), 2, "549 cells of numbers and of features with fewer than 65 levels"),
        ("none", levels(1000, 5), 2, "5005 cells in all; at most 4095"),
        ("none", levels(1000, 1), 70, "too many for 70 arms"),
        ("central", levels(50, 6), 60, "306 cells, too many for 60 arms"),
        ("shuffle", levels(1000, 24), 4, "cells in all"),
        ("shuffle", {"features": levels(1000, 1)["features"] | NUMBERS}, 10, "where reports are private by themselves"),
    ],
)
def test_more_cells_than_there_is_room_for_are_refused(model, context, arms, message):
    names = [f"arm {arm}" for arm in range(arms)]
    spec_of(model, context=levels(200, 1), experiment={"arms": names})
    with pytest.raises(SpecError, match=message) as refused:
        spec_of(model, context=context, experiment={"arms": names})
    assert refused.value.field == "context.features"
    assert "fewer levels" in refused.value.remedy


def test_a_category_of_a_thousand_levels_and_eighty_arms_are_possible():
    assert spec_of("shuffle", context=levels(1000, 1)).questions.cells.count == 1002
    assert spec_of("central", experiment={"arms": [f"arm {arm}" for arm in range(256)]}).arm_count == 256


def test_a_batch_of_contexts_gets_the_same_arms_as_single_contexts():
    """Terms are looked up for all features at once: as cell by cell, whatever the kinds of features."""
    context = {
        "features": {
            "n": {"low": 0, "high": 1, "missing": True},
            "l": {"levels": ["a", "b", "c"], "missing": True},
            "o": {"levels": ["s", "m", "l"], "ordered": True},
            "h": {"hash_buckets": 70},
            "b": {"boolean": True},
        }
    }
    spec = spec_of("central", context=context)
    rng, cells = np.random.default_rng(3), spec.questions.cells
    numbers = np.stack([rng.random(400), *(rng.integers(0, top, 400) for top in (3, 3, 70, 2))], axis=1)
    numbers[rng.random(numbers.shape) < [0.3, 0.3, 0, 0, 0]] = np.nan
    indices = cells.locate(encode_features(spec.features, numbers)) - cells.starts[:-1]
    is_missing = np.isnan(numbers)
    assert (indices[:, 0] == np.where(is_missing[:, 0], 8, np.floor(8 * np.nan_to_num(numbers[:, 0])))).all()
    assert (indices[:, 1] == np.where(is_missing[:, 1], 3, np.nan_to_num(numbers[:, 1]))).all()
    assert (indices[:, 2:] == numbers[:, 2:]).all()
    learner = learner_for(spec)
    policy: Any = learner.open_next_round(learner.start(1), 1, 7).policy
    policy = replace(policy, draws=rng.integers(-900, 900, policy.draws.shape).astype(np.int16))
    contexts, coins = encode_features(spec.features, numbers), rng.integers(0, 1 << 32, 400, dtype=np.uint32)
    arms = policy.decide(contexts, coins).arms
    assert [int(policy.decide(contexts[[n]], coins[[n]]).arms[0]) for n in range(400)] == arms.tolist()
    terms, chosen = cells.locate(contexts), policy.select_draws(coins)
    scores = [policy.draws[d, :, 0] + policy.draws[d][:, row].sum(axis=1) for d, row in zip(chosen, terms, strict=True)]
    assert [int(score.argmax()) for score in scores] == arms.tolist()


def test_the_default_min_round_fraction_is_larger_where_a_curator_adds_noise_to_each_round():
    assert [spec_of(model).experiment.min_round_fraction for model in PROMISES] == [0.3, 0.3, 0.1, 0.1]
    assert spec_of("central", experiment={"min_round_fraction": 0.0}).experiment.min_round_fraction == 0


def test_the_default_first_round_is_set_before_it_is_checked():
    """Before, the 1,000 of other algorithms was checked: a horizon of 600 was refused."""
    assert spec_of("none", experiment={"horizon": 600}).experiment.round_size == 250


def test_reports_on_all_questions_have_the_same_alphabet():
    spec, policy = policy_of("shuffle")
    mechanism = policy.terms.mechanism
    contributions = policy.contribute(*people(spec, 40_000))
    assert set(contributions.groups.tolist()) == set(range(policy.questions.count))
    symbol = mechanism.randomize(contributions, SeededNoise(1))["symbol"]
    for question in range(policy.questions.count):
        assert set(symbol[contributions.groups == question].tolist()) == set(range(2 * mechanism.buckets))


def test_planted_an_alphabet_for_each_question_breaks_the_promise():
    """Reports would hide among those on the same question alone, which the alphabet reveals."""
    spec, policy = policy_of("shuffle")
    terms, mechanism = policy.terms, policy.terms.mechanism
    event = terms.event
    assert account(event).delta(spec.privacy.epsilon) <= spec.privacy.delta
    share = float(policy.shares.max())
    assert share < 0.5
    planted = ShuffledResponse(mechanism.epsilon, 2 * mechanism.buckets, int(share * terms.honest))
    assert account(planted).delta(spec.privacy.epsilon) > 10 * spec.privacy.delta


@pytest.mark.parametrize(
    ("privacy", "people", "warns"),
    [
        ({"model": "none"}, 20_000, False),
        ({"model": "central"}, 200_000, False),
        ({"model": "central"}, 5_000, True),
        ({"model": "shuffle"}, 20_000, True),
        ({"model": "shuffle", "local_epsilon_max": 8.0}, 500_000, False),
        ({"model": "local", "epsilon": 1.0}, 50_000, True),
    ],
)
def test_a_base_rate_below_the_noise_is_a_concern(privacy, people, warns):
    promise = {**PROMISES[privacy["model"]], **privacy}
    rare = spec_of(promise["model"], privacy=promise, experiment={"horizon": people}, reward={"base_rate": 0.01})
    concerns = [concern for concern in rare.concerns() if "reward.base_rate" in concern]
    assert len(concerns) == warns
    usual = spec_of(promise["model"], privacy=promise, experiment={"horizon": people}, reward={"base_rate": 0.3})
    assert not [concern for concern in usual.concerns() if "reward.base_rate" in concern]


def list_noise_concerns(model, options, people, **changes):
    table = {"arms": [f"arm {option}" for option in range(options)], "horizon": people}
    return [concern for concern in spec_of(model, experiment=table, **changes).concerns() if "noise alone" in concern]


@pytest.mark.parametrize("model", ["central", "shuffle"])
def test_noise_larger_than_differences_between_many_options_is_a_concern(model):
    assert list_noise_concerns(model, 4, 20_000) == list_noise_concerns(model, 80, 1_000_000) == []
    (concern,) = list_noise_concerns(model, 80, 20_000)
    assert "with 80 options" in concern
    assert "List fewer options" in concern


def test_options_with_rare_rewards_differ_by_less():
    rarer = {"reward": {"base_rate": 0.06}}
    assert list_noise_concerns("central", 20, 20_000) == list_noise_concerns("central", 20, 200_000, **rarer) == []
    assert list_noise_concerns("central", 20, 20_000, **rarer)


def test_many_options_chosen_by_coins_are_no_concern():
    weak = {"privacy": {"model": "local", "epsilon": 1.0}}
    assert spec_of("local", **weak).has_coin_plan
    assert list_noise_concerns("local", 16, 2000, **weak) == []
