"""Paper 3: the published constants, estimates without privacy, FLIPHAT's noise, and regret on the same people."""

import numpy as np
import pytest

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
from privateer_papers.reproduction import Rows

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
        first, second = mechanism._prefix(4), mechanism._prefix(6)
        assert (first == first.T).all() or np.allclose(first, first.T)
        assert np.allclose(mechanism._noise[:4].sum(axis=0).reshape(3, 3), first)
        assert not np.allclose(first, second)
    wishart = PrivateLasso(PROBLEM, 1)._draw_node(3)
    degrees = 30 * np.log(8 * 30 / 1e-6) * 2e6
    assert np.diagonal(wishart) == pytest.approx(6 * degrees, rel=1e-2)


def test_normal_nodes_have_the_noise_of_a_tree_and_not_of_one_release() -> None:
    """Standard deviation of products over 4,000 nodes within 6 standard errors."""
    gaussian_tree = GaussianTree(PROBLEM, 2)
    products = np.array([gaussian_tree._draw_node(3)[0, -1] for _ in range(4000)])
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
