"""Paper 3: published constants, theorems by hand, FLIPHAT's noise, and regret on the same people."""

import math
from typing import Any

import numpy as np
import pytest

from privateer_lab.environments import environment_for
from privateer_papers.paper_3 import theorems
from privateer_papers.paper_3.lasso_bandits import Fliphat, Problem, ThresholdedLassoBandit, lasso
from privateer_papers.paper_3.privatelasso import GaussianTree, PrivateLasso, noise_scale, select_support
from privateer_papers.paper_3.regret import (
    FLIPHAT,
    PEER_CLASSES,
    PUBLISHED,
    build_spec,
    describe_curves,
    list_points,
    play_peers,
    run_curves,
    theorem_rate,
)
from privateer_papers.paper_3.theorems import Lemma4Conditions, theorem_2, theorem_3, theorem_4, worst_rows
from privateer_papers.reproduction import OURS, Rows

PROBLEM = Problem(30, 3, 2.0, 0.87, 1 / 3, 1 << 17, 1.0, 1e-6)


def test_constants_are_those_of_the_paper() -> None:
    """At a million people xi is 456,332, beside estimates of 1 at most."""
    assert noise_scale(1_000_000, 3, 1.0, 1e-6) == pytest.approx(456_332, rel=1e-5)
    assert noise_scale(1_000_000, 3, 2.0, 1e-6) == pytest.approx(456_332 / 2, rel=1e-5)
    assert theorem_rate(1 << 17) == pytest.approx(27**0.5 * np.log(1 << 17) ** 3 / (0.58 * (1 << 17)))


def test_the_published_support_is_a_coin_flip_for_each_candidate() -> None:
    """2,000 draws, 6 standard errors; whoever is no candidate is never there."""
    rng, estimate = np.random.default_rng(1), np.zeros(30)
    estimate[[3, 20]] = 1.0, 0.02
    support = np.array([[j in select_support(estimate, 0.001, PROBLEM, rng) for j in (3, 20, 21)] for _ in range(2000)])
    assert support[:, :2].mean(axis=0) == pytest.approx([0.5, 0.5], abs=0.067)
    assert not support[:, 2].any()


def test_lasso_meets_its_conditions_and_least_squares_where_there_is_no_penalty() -> None:
    rng = np.random.default_rng(2)
    rows, truth = rng.uniform(-1, 1, (400, 12)), np.zeros(12)
    truth[:3] = 0.5, -0.5, 0.2
    values = rows @ truth + 0.3 * rng.normal(size=400)
    gram, products = rows.T @ rows, rows.T @ values
    bare = lasso(gram, products, 400, 0.0)
    assert bare == pytest.approx(np.linalg.solve(gram, products), abs=1e-4)
    estimate = lasso(gram, products, 400, 0.1)
    slope = 2 / 400 * (products - gram @ estimate)
    support = estimate != 0
    assert slope[support] == pytest.approx(0.1 * np.sign(estimate[support]), abs=1e-4)
    assert (np.abs(slope) <= 0.1 + 1e-4).all()
    assert 0 < support.sum() < 12


def test_fliphat_has_noise_of_its_sensitivity_and_forgets() -> None:
    """Laplace noise of one peeling: mean absolute value of 4,000 draws within 10 %, another seed each."""
    noise = []
    for seed in range(4000):
        fliphat = Fliphat(PROBLEM, seed)
        values = np.zeros(30)
        values[:3] = 1e9
        noise.append(fliphat._peel(values, 0.01)[0] - 1e9)
    scale = 0.01 * 2 * np.sqrt(9 * np.log(2 / PROBLEM.delta)) / (PROBLEM.epsilon / 2)
    assert np.abs(noise).mean() == pytest.approx(scale, rel=0.1)
    fliphat = Fliphat(PROBLEM, 0)
    for start in (0, 64):
        fliphat.learn(np.ones((64, 30), np.float32), np.ones(64))
        before = fliphat.estimate
        fliphat.update_if_due()
        assert (len(fliphat._pending), fliphat.people) == (0, start + 64)
        assert not np.array_equal(fliphat.estimate, before)


def test_nodes_of_the_trees_are_symmetric_and_their_noise_is_drawn_once() -> None:
    for kind in (PrivateLasso, GaussianTree):
        mechanism = kind(PROBLEM, 1)
        mechanism._support = np.array([1, 5])
        first, second = mechanism._draw_prefix_noise(4), mechanism._draw_prefix_noise(6)
        assert (first == first.T).all() or np.allclose(first, first.T)
        assert np.allclose(mechanism._noise[:4].sum(axis=0).reshape(3, 3), first)
        assert not np.allclose(first, second)
    wishart = PrivateLasso(PROBLEM, 1)._draw_node_noise(3)
    degrees = 30 * np.log(8 * 30 / 1e-6) * 2e6
    assert np.diagonal(wishart) == pytest.approx(6 * degrees, rel=1e-2)


def test_normal_nodes_have_the_noise_of_a_tree_and_not_of_one_release() -> None:
    """Standard deviation of products over 4,000 nodes within 6 standard errors."""
    gaussian_tree = GaussianTree(PROBLEM, 2)
    products = np.array([gaussian_tree._draw_node_noise(3)[0, -1] for _ in range(4000)])
    levels = (PROBLEM.people // 128).bit_length()
    expected = np.sqrt(2) * 4.2195 * 2 * PROBLEM.reward * np.sqrt(levels)
    assert products.std() == pytest.approx(expected, rel=0.07)


def test_regret_is_read_of_the_same_people_and_the_verdict_counts() -> None:
    spec = build_spec(12, 4096, {"model": "central", "epsilon": 1.0, "delta": 1e-6})
    rows = Rows(play_peers(spec, 4))
    assert rows.values("people") == list_points(4096) == [2048, 4096]
    single = Rows(play_peers(spec, 4, {name: PEER_CLASSES[name] for name in (FLIPHAT,)}))
    assert single.where(policy=FLIPHAT) == rows.where(policy=FLIPHAT)
    assert {row["uniform"] for row in rows.where(people=4096)} == {single[-1]["uniform"]}
    bare = "thresholded LASSO bandit, no privacy"
    assert PEER_CLASSES[bare] is ThresholdedLassoBandit
    assert rows.where(policy=bare, people=4096).mean()[0] < 0.1
    curves = [row for policy in ("privateer", "privateer, no privacy") for row in run_curves(policy, 12, 4096, 4)]
    text = "\n".join(describe_curves(Rows([*rows, *curves])))
    assert f"{PUBLISHED}: " in text
    assert "below FLIPHAT at" in text


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


def test_the_published_design_has_regret_at_chance_and_our_design_has_not() -> None:
    rows = Rows(theorems.play("people", policy, 4096, 8.0, 1.0, 0) for policy in (OURS, PUBLISHED))
    our_regret, published_regret = (rows.where(policy=policy).mean()[0] for policy in (OURS, PUBLISHED))
    assert our_regret < 0.5 * published_regret
    assert published_regret == pytest.approx(0.58 * 4096, rel=0.25)
