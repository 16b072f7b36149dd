"""A stranger asks for the answer of the widest spec: while its rules are found, no other stranger gets a page."""

import time
from types import SimpleNamespace
from typing import Any

import numpy as np

from privateer_core.policies.expected_rewards import ExpectedRewards
from privateer_core.spec.categories import Categorical
from privateer_core.spec.features import Feature
from privateer_server.conclusions.feature_parts import parts_of
from privateer_server.conclusions.rules import prospect_of, rules_of

ARMS = 16
WIDE: dict[str, Feature] = {f"city{k}": Categorical(levels=tuple(f"c{one}" for one in range(255))) for k in range(5)}
COLUMNS = sum(one.columns for one in WIDE.values())


def means(contexts: Any) -> Any:
    """Rewards that differ between all levels of all features."""
    weights = np.random.default_rng(3).normal(size=(COLUMNS, ARMS))
    return 0.5 + 0.3 * np.sin(20 * contexts @ weights)


def widest() -> ExpectedRewards:
    return ExpectedRewards.everywhere(
        COLUMNS, lambda rows: (means(rows), np.full((len(rows), ARMS), 0.01)), lambda *_: 0.01
    )


def test_the_widest_spec_has_no_more_parts_than_a_search_has_time_for() -> None:
    expected = widest()
    prospect = prospect_of(WIDE, expected, SimpleNamespace(decide=_best), (True,) * ARMS)  # type: ignore[arg-type]
    likes = prospect.people.weights[:, None] * prospect.means
    parts = parts_of(WIDE, prospect.people.contexts, (expected.lower, expected.upper), likes)
    assert 200 < len(parts) <= 240  # 2,600 took some minutes


def test_rules_of_the_widest_spec_take_seconds() -> None:
    expected = widest()
    prospect = prospect_of(WIDE, expected, SimpleNamespace(decide=_best), (True,) * ARMS)  # type: ignore[arg-type]
    began = time.process_time()
    found = rules_of([f"a{k}" for k in range(ARMS)], WIDE, (0.0, 1.0), prospect)
    assert time.process_time() - began < 20
    assert 1 < len(found.rules) <= 7


def _best(contexts: Any, _coins: Any) -> Any:
    return SimpleNamespace(arms=means(contexts).argmax(axis=1))
