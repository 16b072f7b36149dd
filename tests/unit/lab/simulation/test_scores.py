"""The welfare that people lose after an experiment if they follow the largest estimate of their group."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from privateer_lab.simulation.scores import Judgement
from tests.support.specs import make_spec

MEANS = np.array([[0.5, 0.7, 0.1], [0.5, 0.4, 0.9]])
"""Of two groups: the second arm is the best of the first, the third of the second."""


class Halves:
    """People of two groups in turn, and the comparisons among them."""

    def contexts(self, _n_seen: int, people: int, _rng: np.random.Generator) -> np.ndarray:
        return np.column_stack([np.arange(people) % 2, np.zeros(people)])

    def means(self, contexts: np.ndarray) -> np.ndarray:
        return MEANS[contexts[:, 0].astype(int)]

    def groups(self, contexts: np.ndarray) -> np.ndarray:
        return (contexts[:, 0] > 0.5).astype(int)

    def comparisons(self, _spec: Any) -> Any:
        for group, name in ((0, "first"), (1, "second"), (None, "all")):
            for arm in (1, 2):
                yield f"{name}: {arm}", group, arm, 0


def welfare_loss(**estimates: float) -> float:
    """Return the welfare lost after an answer with these estimates, named by group and arm."""
    halves: Any = Halves()
    judgement = Judgement(make_spec({"experiment.horizon": 1000}), halves)
    intervals = [
        SimpleNamespace(name=name.replace("_", ": "), value=value, low=value - 1, high=value + 1)
        for name, value in estimates.items()
    ]
    answer: Any = SimpleNamespace(estimates=intervals)
    judgement.add_answer(halves, answer)
    return judgement.facts()["welfare_lost"]


def test_right_signs_lose_nothing() -> None:
    assert welfare_loss(first_1=0.2, first_2=-0.4, second_1=-0.1, second_2=0.4) == pytest.approx(0.0)


def test_each_group_follows_its_own_estimates() -> None:
    """The first half gets the third arm, which loses .6; the second keeps the first, which loses .4."""
    assert welfare_loss(first_1=0.1, first_2=0.2, second_1=-0.1, second_2=-0.2) == pytest.approx((0.6 + 0.4) / 2)


def test_where_a_group_is_unknown_the_average_decides() -> None:
    assert welfare_loss(first_1=0.2, all_1=-0.1, all_2=0.1) == pytest.approx(0.0)
    assert welfare_loss(all_1=0.3, all_2=0.1) == pytest.approx((0.0 + 0.5) / 2)


def test_without_estimates_no_effect_is_judged() -> None:
    assert welfare_loss() == 0.0
