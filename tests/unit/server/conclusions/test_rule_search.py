"""The search for rules: exact on policies of known structure, and fast and honest on others."""

import time

import numpy as np
import pytest
from numpy.typing import NDArray

from privateer_core.answer.conclusion import RULES_MAX
from privateer_server.conclusions.rule_search import RuleList, search_rules

Array = NDArray[np.float64]
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
