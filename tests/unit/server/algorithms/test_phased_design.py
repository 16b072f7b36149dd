"""Near-optimal designs of the phased learner: their gap, support and span."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from privateer_server.algorithms.phased.design import compute_span, near_optimal_design


def sphere(count, dimension, seed):
    points = np.random.default_rng(seed).normal(size=(count, dimension))
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def leverage(actions, design):
    """Largest x^T V^+ x by the pseudo-inverse of V itself."""
    played = actions[design.support]
    inverse = np.linalg.pinv(played.T @ np.diag(design.weights) @ played, hermitian=True)
    return max(float(x @ inverse @ x) for x in actions)


def best_determinant(actions):
    """Largest log det V over all designs, by sequential quadratic programming on the simplex."""
    count = len(actions)

    def objective(weights):
        matrix = actions.T @ (weights[:, None] * actions)
        inverse = np.linalg.inv(matrix)
        return -np.linalg.slogdet(matrix)[1], -np.einsum("kd,de,ke->k", actions, inverse, actions)

    optimum = minimize(
        objective,
        np.full(count, 1 / count),
        jac=True,
        method="SLSQP",
        bounds=[(0, 1)] * count,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": lambda w: np.ones(count)},
        options={"maxiter": 500, "ftol": 1e-12},
    )
    assert optimum.success
    return -optimum.fun


@pytest.mark.parametrize("seed", range(10))
def test_ties_are_decided_by_the_row(seed):
    """Lengths are 1 but for rounding; planted: one that is clearly longer comes first."""
    actions = sphere(40 + 5 * seed, 3 + seed % 8, seed)
    noise = np.random.default_rng(99).normal(0, 1e-15, actions.shape)
    support = near_optimal_design(actions).support
    assert (near_optimal_design(actions + noise).support == support).all()
    last = len(actions) - 1
    actions[last] *= 1.5
    assert last in near_optimal_design(actions).support


@pytest.mark.parametrize("seed", range(4))
def test_the_design_is_close_to_the_optimum_of_scipy(seed):
    """G- and D-optimal designs are the same (Kiefer and Wolfowitz); the optimum's leverage is the dimension."""
    actions = sphere(25, 4, seed) * np.random.default_rng(seed).uniform(0.3, 1, (25, 1))
    design = near_optimal_design(actions, gap=1.001)
    played = actions[design.support]
    determinant = np.linalg.slogdet(played.T @ (design.weights[:, None] * played))[1]
    best = best_determinant(actions)
    assert best - 4 * math.log(1.001) - 1e-6 <= determinant <= best + 1e-6
    assert leverage(actions, design) <= 1.001 * 4 * (1 + 1e-9)
    assert near_optimal_design(actions, gap=2.0).gap > design.gap


@pytest.mark.parametrize("gap", [1.1, 1.5, 2.0])
@pytest.mark.parametrize(("count", "dimension"), [(2, 1), (6, 3), (40, 5), (300, 12), (1000, 20)])
def test_the_design_has_the_stated_gap_and_support(count, dimension, gap):
    actions = sphere(count, dimension, 5) if dimension > 1 else np.array([[0.5], [-0.9]])
    design = near_optimal_design(actions, gap)
    assert design.gap == pytest.approx(leverage(actions, design) / dimension, rel=1e-9)
    assert 1 - 1e-12 <= design.gap <= gap * (1 + 1e-9)
    assert (design.weights > 0).all()
    assert design.weights.sum() == pytest.approx(1, rel=1e-12)
    assert (np.diff(design.support) > 0).all()
    if gap == 2.0 and dimension > 2:
        assert len(design.support) <= 4 * dimension * math.log(math.log(dimension)) + 16


def test_the_initial_design_needs_further_steps():
    """Planted: without steps the first actions chosen leave others far out."""
    actions = sphere(300, 6, 9)
    start, design = (near_optimal_design(actions, gap) for gap in (100.0, 1.2))
    assert len(start.support) == 6
    assert leverage(actions, start) > 1.2 * 6 >= leverage(actions, design) * (1 - 1e-9)


@pytest.mark.parametrize("rank", [1, 3, 6])
def test_a_design_for_actions_in_a_subspace(rank):
    rng = np.random.default_rng(rank)
    actions = rng.normal(size=(50, rank)) @ rng.normal(size=(rank, 9))
    actions /= 1.01 * np.linalg.norm(actions, axis=1).max()
    design = near_optimal_design(actions, 1.5)
    assert design.rank == rank == len(compute_span(actions))
    assert design.basis @ design.basis.T == pytest.approx(np.eye(rank), abs=1e-12)
    assert actions @ design.basis.T @ design.basis == pytest.approx(actions, abs=1e-12)
    assert leverage(actions, design) <= 1.5 * rank * (1 + 1e-6)


def test_a_design_for_lengths_of_different_orders_of_magnitude():
    actions = sphere(40, 5, 1) * np.geomspace(1e-6, 1, 40)[:, None]
    assert leverage(actions, near_optimal_design(actions, 1.2)) <= 1.2 * 5 * (1 + 1e-6)


def test_a_design_for_a_single_action():
    design = near_optimal_design(np.array([[0.3, 0.4]]))
    assert (design.support.tolist(), design.weights.tolist(), design.rank) == ([0], [1.0], 1)
