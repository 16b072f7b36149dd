"""Pages that strangers ask for again and again: rules of a wide spec, privacy records and risks cost little."""

import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from privateer_core.accounting import amplification
from privateer_core.algorithms import parse_spec
from privateer_core.policies.expected_rewards import ExpectedRewards
from privateer_core.privacy.certificate import certify
from privateer_core.privacy.risk import assess_risks
from privateer_core.privacy.terms import Terms, calibrate
from privateer_core.spec.categories import Categorical
from privateer_core.spec.features import Feature
from privateer_server.conclusions.rule_search import build_feature_parts
from privateer_server.conclusions.rules import find_arm_rules, forecast_rewards

ARMS = 16
WIDE: dict[str, Feature] = {f"city{k}": Categorical(levels=tuple(f"c{j}" for j in range(255))) for k in range(5)}
COLUMNS = sum(feature.columns for feature in WIDE.values())


def means(contexts: Any) -> Any:
    """Rewards that differ between all levels of all features."""
    weights = np.random.default_rng(3).normal(size=(COLUMNS, ARMS))
    return 0.5 + 0.3 * np.sin(20 * contexts @ weights)


def widest() -> ExpectedRewards:
    return ExpectedRewards.from_single_box(
        COLUMNS, lambda rows: (means(rows), np.full((len(rows), ARMS), 0.01)), lambda *_: 0.01
    )


def test_the_widest_spec_has_no_more_parts_than_a_search_has_time_for() -> None:
    expected = widest()
    forecast = forecast_rewards(WIDE, expected, SimpleNamespace(decide=_best), (True,) * ARMS)  # type: ignore[arg-type]
    likes = forecast.population.weights[:, None] * forecast.means
    parts = build_feature_parts(WIDE, forecast.population.contexts, (expected.lower, expected.upper), likes)
    assert 200 < len(parts) <= 240  # 2,600 took some minutes


def test_rules_of_the_widest_spec_take_seconds() -> None:
    expected = widest()
    forecast = forecast_rewards(WIDE, expected, SimpleNamespace(decide=_best), (True,) * ARMS)  # type: ignore[arg-type]
    began = time.process_time()
    rules = find_arm_rules([f"a{k}" for k in range(ARMS)], WIDE, (0.0, 1.0), forecast)
    assert time.process_time() - began < 20
    assert 1 < len(rules.rules) <= 7


def _best(contexts: Any, _coins: Any) -> Any:
    return SimpleNamespace(arms=means(contexts).argmax(axis=1))


# Strangers who ask for a privacy record, or its risks, again and again: the server reckons each round once.


SPEC = parse_spec(
    {
        "experiment": {"name": "test", "arms": ["a", "b"], "horizon": 90_000, "reports_per_person": 4},
        "context": {"features": {"x": {"low": 0.0, "high": 1.0}}},
        "privacy": {"model": "shuffle", "epsilon": 1.0, "delta": 1e-6},
        "algorithm": {"name": "linear"},
    }
)
FEW = 300
"""A curve on its grid needs about a thousand sums over a batch, which take a tenth of a second a round."""


@pytest.fixture(scope="module")
def terms() -> list[Terms]:
    """The privacy terms of three rounds."""
    batches = (1001, 1303, 1707)
    return [calibrate(SPEC.privacy, batch, SPEC.typical_question(), reports=SPEC.reports) for batch in batches]


@pytest.fixture
def summed_batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the batches for which the accountant has computed a sum."""
    amplification.shuffled_delta.cache_clear()
    batch_sizes: list[int] = []
    binomial_range = amplification.binomial_range

    def count_and_sum(trials: int, probability: float, tail: float) -> tuple[int, int]:
        batch_sizes.append(trials)
        return binomial_range(trials, probability, tail)

    monkeypatch.setattr(amplification, "binomial_range", count_and_sum)
    return batch_sizes


def test_a_record_that_is_asked_for_again_costs_nothing(summed_batches: list[int], terms: list[Terms]) -> None:
    first = certify("test", SPEC.privacy, terms)
    assert len(summed_batches) > FEW, "planted: the first who asks has the server reckon"
    assess_risks(first)
    summed_batches.clear()
    certificate = certify("test", SPEC.privacy, list(terms))
    assert (certificate, assess_risks(certificate)) == (first, assess_risks(first))
    assert not summed_batches


def test_a_round_that_is_added_leaves_the_others_as_they_are(summed_batches: list[int], terms: list[Terms]) -> None:
    certify("test", SPEC.privacy, terms)
    added_terms = calibrate(SPEC.privacy, 1999, SPEC.typical_question(), reports=SPEC.reports)
    summed_batches.clear()
    certify("test", SPEC.privacy, [*terms, added_terms])
    assert not {term.honest - 1 for term in terms} & set(summed_batches)
