"""Rules: how they are searched, and how they are worded."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from privateer_core.answer.conclusion import RULES_MAX, Rules
from privateer_core.answer.share_source import ShareSource
from privateer_core.answer.shares import Shares
from privateer_core.policies.expected_rewards import ExpectedRewards
from privateer_core.spec.categories import Boolean, Categorical, Ordinal
from privateer_core.spec.features import Feature, Numeric, Ranked
from privateer_server.conclusions.rule_search import RuleList, search_rules
from privateer_server.conclusions.rules import find_arm_rules, forecast_rewards

Array = NDArray[np.float64]
OPTIONS = ("plain", "offer", "bundle")


@dataclass
class BestMeanPolicy:
    """A policy of the option with the highest mean among the playable options."""

    means: Callable[[Array], Array]
    playable: tuple[bool, ...]

    def decide(self, contexts: Array, _coins: Any) -> Any:
        return SimpleNamespace(arms=np.where(self.playable, self.means(contexts), -np.inf).argmax(axis=1))


def rules(
    features: dict[str, Feature],
    means: Callable[[Array], Array],
    deviation: float = 0.01,
    playable: tuple[bool, ...] = (True, True, True),
    boxes: tuple[Array, Array, Array] | None = None,
) -> Rules:
    columns = sum(feature.columns for feature in features.values())
    at = lambda contexts: (means(contexts), np.full((len(contexts), 3), deviation))  # noqa: E731

    def spread(_: Array, weights: Array) -> float:
        return deviation * float(np.abs(weights).sum())

    expected = ExpectedRewards.from_single_box(columns, at, spread)
    if boxes:
        lower, upper, shares = boxes
        counted = Shares.fixed(shares, ShareSource.COUNTED)
        expected = ExpectedRewards(lower, upper, counted, at, spread)
    forecast = forecast_rewards(features, expected, BestMeanPolicy(means, playable), playable)  # type: ignore[arg-type]
    return find_arm_rules(OPTIONS, features, (0.0, 1.0), forecast)


def prefer(*masks: Callable[[Array], Any]) -> Callable[[Array], Array]:
    """Return means of .2, and .3 more for each option where its mask holds."""
    return lambda contexts: np.stack(
        [0.2 + 0.3 * np.broadcast_to(mask(contexts), len(contexts)) for mask in masks], axis=1
    )


def nobody(_: Array) -> bool:
    return False


def name_rules(answer: Rules) -> list[tuple[str, str]]:
    return [(rule.people, rule.arm) for rule in answer.rules]


def test_rules_have_numbers_in_the_units_of_the_spec() -> None:
    features: dict[str, Feature] = {"days": Numeric(low=0, high=28), "age": Numeric(low=18, high=82)}
    young = prefer(lambda c: c[:, 0] >= 0.25, lambda c: c[:, 0] < 0.25, nobody)
    answer = rules(features, young)
    assert name_rules(answer) == [("days below 7", "offer"), ("everybody else", "plain")]
    assert answer.rules[0].share == pytest.approx(0.25, abs=0.002)
    assert (answer.rules[0].mean, answer.rules[0].next_best, answer.rules[0].difference) == (0.5, "plain", 0.3)
    assert answer.rules[0].confidence_label == "almost certain"
    assert answer.gain_kept == 1.0


def test_a_category_of_fifteen_levels_is_one_set() -> None:
    levels = tuple(f"c{k}" for k in range(15))
    features: dict[str, Feature] = {"country": Categorical(levels=levels)}
    codes = np.array(features["country"].blocks[0].codes)

    def some(contexts: Array) -> Any:
        powers = 2.0 ** np.arange(contexts.shape[1])[::-1]
        return np.isin(np.searchsorted(codes, contexts @ powers), (2, 5, 11))

    answer = rules(features, prefer(lambda c: ~some(c), some, nobody))
    assert name_rules(answer) == [("country is c2, c5 or c11", "offer"), ("everybody else", "plain")]


def test_rules_describe_booleans_ordered_levels_and_missing_values() -> None:
    yes: dict[str, Feature] = {"premium": Boolean(boolean=True)}
    answer = rules(yes, prefer(lambda c: c[:, 0] == 0, lambda c: c[:, 0] == 1, nobody))
    assert dict(name_rules(answer)) in (
        {"premium is yes": "offer", "everybody else": "plain"},
        {"premium is no": "plain", "everybody else": "offer"},
    )
    plan: dict[str, Feature] = {"plan": Ordinal(levels=("free", "basic", "pro", "max"), ordered=True)}
    answer = rules(plan, prefer(lambda c: c[:, 0] < 0.75, lambda c: c[:, 0] >= 0.75, nobody))
    assert name_rules(answer) == [("plan is max", "offer"), ("everybody else", "plain")]
    ranked: dict[str, Feature] = {"income": Ranked(quantiles=(0, 10_000, 20_000, 40_000, 90_000))}
    answer = rules(ranked, prefer(lambda c: c[:, 0] >= 0.25, lambda c: c[:, 0] < 0.25, nobody))
    assert name_rules(answer) == [("income below 10,000", "offer"), ("everybody else", "plain")]
    gaps: dict[str, Feature] = {"hours": Numeric(low=0, high=80, missing=True)}
    answer = rules(gaps, prefer(lambda c: c[:, 1] == 0, lambda c: c[:, 1] == 1, nobody))
    assert name_rules(answer) == [("hours is missing", "offer"), ("everybody else", "plain")]


def test_a_single_cell_or_a_constant_policy_has_one_rule_for_everybody() -> None:
    features: dict[str, Feature] = {"x": Numeric(low=0, high=1)}
    answer = rules(features, prefer(lambda _: True, nobody, nobody))
    assert name_rules(answer) == [("everybody", "plain")]
    assert answer.gain_kept is None
    assert answer.rules[0].where == ()


def test_tied_options_have_no_next_best() -> None:
    features: dict[str, Feature] = {"x": Numeric(low=0, high=1)}
    [rule] = rules(features, prefer(nobody, nobody, nobody)).rules
    assert rule.confidence_label == "not known"
    assert rule.probability_best is not None
    assert rule.probability_best <= 0.5


def test_unknown_means_have_no_rules() -> None:
    features: dict[str, Feature] = {"x": Numeric(low=0, high=1)}
    [rule] = rules(features, prefer(nobody, nobody, nobody), deviation=np.inf).rules
    assert (rule.mean, rule.next_best, rule.difference, rule.confidence_label) == (None, None, None, "not known")


def test_a_retired_arm_is_neither_recommended_nor_next_best() -> None:
    features: dict[str, Feature] = {"x": Numeric(low=0, high=1)}
    means = prefer(lambda c: c[:, 0] < 0.5, lambda _: True, lambda c: c[:, 0] >= 0.5)
    answer = rules(features, means, playable=(True, False, True))
    assert {rule.arm for rule in answer.rules} == {"plain", "bundle"}
    assert {rule.next_best for rule in answer.rules} == {"plain", "bundle"}


def test_rule_shares_are_those_of_the_observed_contexts() -> None:
    features: dict[str, Feature] = {"x": Numeric(low=0, high=1)}
    boxes = np.array([[0.0], [0.5]]), np.array([[0.5], [1.0]]), np.array([0.9, 0.1])
    answer = rules(features, prefer(lambda c: c[:, 0] < 0.5, lambda c: c[:, 0] >= 0.5, nobody), boxes=boxes)
    assert sorted(rule.share for rule in answer.rules) == pytest.approx([0.1, 0.9])


def test_sixty_four_segments_are_at_most_seven_rules_whose_shares_add_up() -> None:
    features: dict[str, Feature] = {"a": Numeric(low=0, high=1), "b": Numeric(low=0, high=1)}
    rng = np.random.default_rng(4)
    table = rng.random((8, 8, 3))
    sides = np.arange(64)[:, None] // [8, 1] % 8 / 8
    answer = rules(
        features,
        lambda c: table[tuple(np.minimum((8 * c).astype(int), 7).T)],
        boxes=(sides, sides + 1 / 8, np.full(64, 1 / 64)),
    )
    assert 2 <= len(answer.rules) <= 7
    assert sum(rule.share for rule in answer.rules) == pytest.approx(1.0, abs=0.001)
    assert answer.rules[-1].people == "everybody else"
    assert answer.gain_kept is not None
    assert 0 < answer.gain_kept < 1
    assert all(rule.difference is not None and rule.difference > 0 for rule in answer.rules)


def test_segments_that_are_left_out_are_named() -> None:
    shares = Shares.fixed(np.array([0.7, 0.3, 0.0]), ShareSource.DECLARED)
    named = replace(shares, names=("ios", "web", "other"))
    assert named.sentence.endswith("1 segment is left out, in which nobody is known to be: other.")
    listed = replace(shares, names=("os=ios", "os=web", "os=other"))
    assert "left out" not in listed.sentence  # all levels are listed
    named_alike = replace(shares, names=("os=ios", "os=web", "os=otherwise"))
    assert named_alike.sentence.endswith("nobody is known to be: os=otherwise.")
    assert shares.sentence.endswith("1 segment is left out, in which nobody is known to be.")
    long = replace(Shares.fixed(np.eye(9)[0], ShareSource.COUNTED), names=("x" * 2000,) * 9).sentence
    assert len(long) < 1000
    counted = replace(Shares.fixed(np.eye(9)[0], ShareSource.COUNTED), names=tuple("abcdefghi"))
    assert counted.sentence.endswith(
        "8 segments are left out, in which nobody is known to be: b, c, d, e, f, g and 2 more."
    )


CUTS = np.arange(1, 8) / 8


def grid(side: int = 16) -> tuple[Array, NDArray[np.bool_]]:
    """People at the middles of a grid of two numbers, and who is below and above each cut of both."""
    middles = (np.arange(side) + 0.5) / side
    people = np.stack(np.meshgrid(middles, middles, indexing="ij"), axis=-1).reshape(-1, 2)
    parts = [side(people[:, axis], cut) for axis in (0, 1) for cut in CUTS for side in (np.less, np.greater_equal)]
    return people, np.array(parts)


def worth_of(best: NDArray[np.int64], options: int, reward: float = 1.0) -> Array:
    """Return rewards of all participants: ``reward`` for the best option and 0 for others, times an equal share."""
    return reward * np.eye(options)[best] / len(best)


def assigned_options(rule_list: RuleList) -> NDArray[np.int64]:
    return np.asarray(np.array([rule.arm for rule in rule_list.rules])[rule_list.first])


def test_four_quadrants_with_four_options_are_four_rules() -> None:
    people, parts = grid()
    best = 2 * (people[:, 0] >= 0.5) + (people[:, 1] >= 0.5)
    rule_list = search_rules(parts, worth_of(best, 4), best)
    assert len(rule_list.rules) == 4
    assert rule_list.gain_kept == pytest.approx(1.0)
    assert (assigned_options(rule_list) == best).all()
    assert not rule_list.rules[-1].parts


def test_quadrants_of_two_options_are_found_without_a_main_effect() -> None:
    people, parts = grid()
    best = ((people[:, 0] >= 0.5) == (people[:, 1] >= 0.5)).astype(np.int64)
    rule_list = search_rules(parts, worth_of(best, 2), best)
    # Two of the quadrants are everybody else.
    assert len(rule_list.rules) == 3
    assert (assigned_options(rule_list) == best).all()


def test_stripes_are_a_rule_each() -> None:
    people, parts = grid()
    best = np.digitize(people[:, 0], [0.25, 0.625])
    rule_list = search_rules(parts, worth_of(best, 3), best)
    assert len(rule_list.rules) == 3
    assert (assigned_options(rule_list) == best).all()


def test_a_constant_policy_is_one_rule() -> None:
    people, parts = grid()
    rule_list = search_rules(parts, worth_of(np.zeros(len(people), np.int64), 2), np.zeros(len(people), np.int64))
    assert [(rule.parts, rule.arm) for rule in rule_list.rules] == [((), 0)]


def test_ties_between_options_are_one_rule() -> None:
    people, parts = grid()
    chosen = (people[:, 0] >= 0.5).astype(np.int64)
    rule_list = search_rules(parts, np.ones((len(people), 2)) / len(people), chosen)
    assert len(rule_list.rules) == 1


def test_rules_on_random_rewards_are_few_and_no_worse_than_one_option() -> None:
    rng = np.random.default_rng(1)
    people, parts = grid()
    worth = rng.normal(size=(len(people), 5)) / len(people)
    rule_list = search_rules(parts, worth, worth.argmax(axis=1))
    assert 1 < len(rule_list.rules) <= RULES_MAX
    assert 0 < rule_list.gain_kept < 1
    rows = np.arange(len(people))
    assert worth[rows, assigned_options(rule_list)].sum() >= worth.sum(axis=0).max()


def test_the_kept_gain_equals_the_reward_of_the_rules() -> None:
    people, parts = grid()
    best = 2 * (people[:, 0] >= 0.5) + (people[:, 1] >= 0.25)
    worth = worth_of(best, 4) * (1 + people[:, :1])
    rule_list = search_rules(parts, worth, best)
    rows, constant = np.arange(len(best)), worth.sum(axis=0).max()
    gain = worth[rows, best].sum() - constant
    assert rule_list.gain_kept == pytest.approx((worth[rows, assigned_options(rule_list)].sum() - constant) / gain)


def test_a_search_is_deterministic_and_takes_less_than_a_second() -> None:
    rng = np.random.default_rng(2)
    people = rng.random((4096, 4))
    cuts = np.arange(1, 20) / 20
    parts = np.array(
        [side(people[:, axis], cut) for axis in range(4) for cut in cuts for side in (np.less, np.greater)]
    )
    worth = np.cos(7 * people @ rng.normal(size=(4, 4))) / len(people)
    began = time.process_time()
    first = search_rules(parts, worth, worth.argmax(axis=1))
    assert time.process_time() - began < 1
    second = search_rules(parts, worth, worth.argmax(axis=1))
    assert [rule.parts for rule in first.rules] == [rule.parts for rule in second.rules]
