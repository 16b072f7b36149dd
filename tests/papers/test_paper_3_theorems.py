"""Theorems 2 to 4 of paper 3: bounds by hand, the design's constants, slopes beside them, and which is stated first."""

import math
from typing import Any

import numpy as np
import pytest

from privateer_lab.environments import environment_for
from privateer_papers.paper_3 import theorems
from privateer_papers.paper_3.regret import PUBLISHED, build_spec
from privateer_papers.paper_3.theorems import THEOREMS, Lemma4Conditions, theorem_2, theorem_3, theorem_4, worst_rows
from privateer_papers.reproduction import OURS, Rows


def test_bounds_by_hand() -> None:
    people = math.exp(10)
    assert theorem_2(people, 0.5) == pytest.approx(3**1.5 * 1000 / 0.5)
    assert theorem_3(people, 1.0) == pytest.approx(3**1.5 * math.exp(5) * 100)
    assert theorem_4(people, 2.0) == pytest.approx(10 * 3 * math.log(100) / 2)
    assert theorem_4(people, 0.5) == theorem_4(people, 0.01) == theorem_4(people, 1.0)


def test_the_design_has_the_constants_that_lemma_4_is_given() -> None:
    """Second moments of all features are a third of the identity, within what 20,000 people leave open."""
    spec: Any = build_spec(20, 1000, {"model": "none"})
    raw = environment_for(spec, 0).contexts(0, 20_000, np.random.default_rng(1)).reshape(20_000, 5, 20)
    scaled = (raw - spec.context.low) * 2 / (spec.context.high - spec.context.low) - 1
    moments = np.einsum("nki,nkj->ij", scaled, scaled) / (5 * len(scaled))
    assert np.abs(moments - np.eye(20) / 3).max() < 0.01
    assert np.linalg.eigvalsh(moments).min() > 1 / 3 - 0.02
    assert np.abs(scaled.mean(axis=(0, 1))).max() < 0.01


def test_both_conditions_of_lemma_4_meet_at_the_epsilon_that_is_named() -> None:
    lemma = Lemma4Conditions.from_smallest_coefficient(0.5)
    assert lemma.min_threshold_times_epsilon / lemma.epsilon == pytest.approx(lemma.max_threshold)
    weight = 4 * 3 * 9 + math.sqrt((1 + 4 * 9) * 3)
    assert lemma.max_threshold == pytest.approx(0.5 / (4 * weight))
    assert lemma.min_threshold_times_epsilon == pytest.approx(128 * 3 * math.log(2 * 3**1.5 * 9 / 0.05) * math.log(1e6))
    assert Lemma4Conditions.from_smallest_coefficient(5.0).epsilon == pytest.approx(lemma.epsilon / 10)


def rows_of_rates(in_people: float, in_epsilon: float) -> Rows:
    """Regrets of three seeds that grow by these exponents; the middle size of the coefficients costs the most."""
    rng, rows = np.random.default_rng(9), Rows()
    settings = [("people", 2**k, 1.0, 1.0) for k in (12, 14, 16)]
    settings += [("epsilon", 2**16, epsilon, 1.0) for epsilon in (0.5, 1.0, 2.0)]
    settings += [("worst", 2**k, 1.0, size) for k in (12, 14, 16) for size in (0.25, 0.5, 1.0)]
    for panel, people, epsilon, size in settings:
        for policy in (OURS, PUBLISHED):
            for seed in range(3):
                regret = people**in_people * epsilon**in_epsilon * float(np.exp(0.01 * rng.normal()))
                facts = {"panel": panel, "policy": policy, "people": people, "epsilon": epsilon, "size": size}
                rows.append({**facts, "seed": seed, "regret": regret * (2 if size == 0.5 else 1)})
    return rows


def test_the_worst_size_is_taken_at_each_number_of_people() -> None:
    rows = rows_of_rates(0.5, -1.0)
    assert {row["size"] for row in worst_rows(rows)} == {0.5}
    assert len(worst_rows(rows)) == 2 * 3 * 3


def test_what_grows_faster_than_the_bounds_is_said_first() -> None:
    slow, fast = rows_of_rates(0.2, -1.2), rows_of_rates(1.0, 0.0)
    assert THEOREMS.warnings(slow) == []
    assert len(THEOREMS.warnings(fast)) == 3
    assert "From epsilon 1 to 2 it falls to 99% alone" in THEOREMS.warnings(fast)[1]
    assert "in 3 of 3 ways of ours and in 3 of PrivateLASSO's" in THEOREMS.sentence(fast)
    assert THEOREMS.verdict(fast).count("(above)") == 6
    assert len(THEOREMS.compared(slow)) == 4
    assert len(THEOREMS.draw(THEOREMS.title, slow).axes) == 3


def test_the_published_design_has_regret_at_chance_and_our_design_has_not() -> None:
    rows = Rows(theorems.play("people", policy, 4096, 8.0, 1.0, 0) for policy in (OURS, PUBLISHED))
    our_regret, published_regret = (rows.where(policy=policy).mean()[0] for policy in (OURS, PUBLISHED))
    assert our_regret < 0.5 * published_regret
    assert published_regret == pytest.approx(0.58 * 4096, rel=0.25)
