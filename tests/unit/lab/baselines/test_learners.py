"""Baselines that learn: the tree without privacy, and linear and network by private gradients."""

import numpy as np
import pytest
from scipy.special import expit

from privateer_core.mechanisms.vectors.vector_symbol import VectorSymbol
from privateer_lab.baselines.descent import Descent, Logistic, Network
from privateer_lab.baselines.tree import Abse, ContextBins, CubeTree
from tests.support.baselines import one_round, regrets, visitors_at
from tests.support.specs import SHUFFLE, make_spec
from tests.support.statistics import centred


def grow_bins(dimension: int, seed: int = 0, rounds: int = 6) -> ContextBins:
    rng = np.random.default_rng(seed)
    bins = ContextBins(dimension)
    for _ in range(rounds):
        indices = np.flatnonzero(rng.random(len(bins)) < 0.6)
        if len(indices):
            bins.halve(indices, bins.longest_edges(indices, rng))
    return bins


@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_every_context_is_in_one_bin_and_it_is_found(dimension):
    bins = grow_bins(dimension)
    contexts = np.random.default_rng(1).random((2000, dimension))
    inside = (contexts[:, None] >= bins.lower) & (contexts[:, None] < bins.upper)
    assert (inside.all(axis=2).sum(axis=1) == 1).all()
    assert (bins.locate(contexts) == inside.all(axis=2).argmax(axis=1)).all()
    assert np.prod(bins.upper - bins.lower, axis=1) == pytest.approx(0.5**bins.depths)
    assert np.prod(bins.upper - bins.lower, axis=1).sum() == pytest.approx(1.0)


def test_the_ends_of_the_cube_have_bins():
    bins = grow_bins(2)
    corners = np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [0.5, 0.5]])
    indices = bins.locate(corners)
    assert ((corners >= bins.lower[indices]) & (corners <= bins.upper[indices])).all()


def test_halves_have_the_index_of_their_bin():
    bins = ContextBins(2)
    bins.halve(np.array([0]), np.array([0]))
    origin = bins.halve(np.array([1]), np.array([1]))
    assert origin.tolist() == [0, 1, 1]
    assert bins.depths.tolist() == [1, 2, 2]
    assert bins.lower.tolist() == [[0, 0], [0.5, 0], [0.5, 0.5]]


def test_the_longest_edge_is_halved_and_ties_are_broken_either_way():
    bins, rng = ContextBins(2), np.random.default_rng(0)
    ties = np.concatenate([bins.longest_edges(np.array([0]), rng) for _ in range(200)])
    assert 50 < ties.sum() < 150, "a fair coin is outside once in 1e12"
    bins.halve(np.array([0]), np.array([0]))
    assert (bins.longest_edges(np.array([0, 1]), rng) == 1).all()


def make_tree(kind: type[CubeTree] = CubeTree, horizon: int = 80_000) -> CubeTree:
    return kind(make_spec({"experiment.horizon": horizon}), 0)


def test_cubes_burst_into_four_that_keep_the_active_arms():
    """Arm 0 pays 0, arms 1 and 2 are equal: arm 0 is dropped, and undecided cubes burst."""
    tree, rng = make_tree(), np.random.default_rng(0)
    for _ in range(3):
        one_round(tree, rng.random((300, 2)), np.tile([0.0, 0.9, 0.9], (300, 1)))
    assert not tree.active[:, 0].any()
    assert tree.active[:, 1:].all()
    assert (tree.bins.depths % 2 == 0).all()
    assert len(tree.bins) >= 4
    assert (tree.bins.upper - tree.bins.lower).min(axis=1) == pytest.approx((tree.bins.upper - tree.bins.lower).max(1))


def test_no_dropped_arm_is_played():
    tree = make_tree()
    tree.active[0, 1] = False
    tree.open(3000)
    counts = np.bincount(tree.choose(visitors_at(np.full((3000, 2), 0.3))), minlength=3)
    assert counts[1] == 0
    assert abs(counts[0] - 1500) < 200, "a fair coin is outside once in 1e12"


def test_the_authors_radii_and_bursts():
    """Perchet and Rigollet: 2 sqrt(2 log(n |B|^d / s) / s) <= 4 L sqrt(d) |B|; the logarithm is at least 1."""
    tree = make_tree(Abse)
    assert tree.radius(np.array([100.0])) == pytest.approx(2 * np.sqrt(2 * np.log(800) / 100))
    assert tree.radius(np.array([60_000.0])) == pytest.approx(2 * np.sqrt(2 / 60_000))
    assert tree.tolerance() == pytest.approx(4 * np.sqrt(2))
    assert tree.most_bursts == np.ceil(np.log2(80_000 / (3 * np.log(3))) / 4)


def test_radii_are_those_of_hoeffding():
    tree = make_tree()
    assert tree.radius(np.array([100.0])) == pytest.approx(np.sqrt(np.log(800) / 200))
    assert tree.tolerance() == pytest.approx(0.5)


def test_a_tree_learns_peaks():
    """10,000 people, 6 seeds: a fifth of uniform's 4,139, measured 835 with deviation 20."""
    assert regrets("tree", 10_000, 1.0, 6).mean() < 4139 / 4


def test_a_tree_that_hears_nothing_is_caught(monkeypatch):
    """Planted: rewards independent of arms."""
    heard = CubeTree.learn
    monkeypatch.setattr(
        CubeTree, "learn", lambda self, visitors, arms, values: heard(self, visitors, arms, np.full(len(arms), 0.5))
    )
    assert regrets("tree", 10_000, 1.0, 2).mean() > 4139 / 2


def test_the_best_arm_is_seldom_dropped():
    """Arms at .6, .5 and .4 everywhere, 20 runs of 20,000: the union over looks fails far less than once in two."""
    n_dropped = 0
    for seed in range(20):
        tree, rng = CubeTree(make_spec({"experiment.horizon": 20_000}), seed), np.random.default_rng([seed, 1])
        for _ in range(40):
            one_round(tree, rng.random((500, 2)), rng.random((500, 3)) < [0.6, 0.5, 0.4])
        n_dropped += not tree.active[:, 0].all()
    assert n_dropped <= 10


KINDS = [Logistic, Network]
SMALL = {"experiment.horizon": 1000, "experiment.round_size": 100}


def make_baseline(kind: type[Descent], seed: int = 0, **changes: object) -> Descent:
    """Return a baseline with random models, past its warm start."""
    baseline = kind(make_spec({**SMALL, **changes}), seed)
    baseline.models = baseline.models + np.random.default_rng(9).normal(size=baseline.models.shape)
    baseline.n_seen = 500
    return baseline


def people(n: int = 40) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(2)
    return rng.random((n, 2)), rng.integers(0, 3, n), (rng.random(n) < 0.5).astype(float)


def losses(baseline: Descent, contexts: np.ndarray, arms: np.ndarray, values: np.ndarray) -> np.ndarray:
    means = expit(baseline.logits(contexts)[np.arange(len(arms)), arms])
    return -values * np.log(means) - (1 - values) * np.log(1 - means)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_the_logistic_loss(kind):
    baseline, (contexts, arms, values) = make_baseline(kind), people()
    gradients = baseline.gradients(contexts, arms, values)
    models, step = baseline.models.copy(), 1e-6
    for coordinate in range(models.shape[1]):
        sides = []
        for sign in (1, -1):
            baseline.models = models.copy()
            baseline.models[:, coordinate] += sign * step
            sides.append(losses(baseline, contexts, arms, values))
        assert gradients[:, coordinate] == pytest.approx((sides[0] - sides[1]) / (2 * step), abs=1e-6)


def test_linear_gradients_need_no_clipping():
    baseline, (contexts, arms, values) = make_baseline(Logistic), people(500)
    baseline.models = 50 * baseline.models
    assert np.linalg.norm(baseline.gradients(contexts, arms, values), axis=1).max() <= 1 + 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_epsilon_is_the_specs_and_for_all_arms_together(kind):
    baseline = make_baseline(kind, **{**SHUFFLE, "experiment.round_size": 1000, "privacy.epsilon": 3.0})
    for mechanism in (baseline.dealt, baseline.greedy):
        assert mechanism.response.epsilon == 3.0
    assert baseline.greedy.ball.coordinates == baseline.models.size
    assert baseline.dealt.ball.coordinates == baseline.models.shape[1]


def count_reports(kind: type[Descent], n_seen: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the number of reports in a round of 90 participants."""
    sizes, simulate = [], VectorSymbol.simulate
    monkeypatch.setattr(
        VectorSymbol, "simulate", lambda self, vectors, rng: sizes.append(len(vectors)) or simulate(self, vectors, rng)
    )
    baseline = make_baseline(kind)
    baseline.n_seen = n_seen
    contexts, _, values = people(90)
    one_round(baseline, contexts, values)
    return sum(sizes)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_seen", [0, 500], ids=["dealt", "greedy"])
def test_each_participant_sends_one_report(kind, n_seen, monkeypatch):
    assert count_reports(kind, n_seen, monkeypatch) == 90


def test_a_report_for_every_arm_is_caught(monkeypatch):
    """Planted: each arm's gradient in a report of its own at the whole epsilon."""

    def learn_arms_apart(self, visitors, arms, values):
        gradients = self.gradients(visitors.contexts, arms, values)
        for arm in range(3):
            self.total[arm] += self._sum_reports(self.dealt, gradients * (arms == arm)[:, None])

    monkeypatch.setattr(Descent, "learn", learn_arms_apart)
    assert count_reports(Logistic, 500, monkeypatch) == 270


def test_dealt_arms_are_in_turn_and_independent_of_contexts():
    """Arms of the warm start do not depend on contexts, across groups too."""
    baseline = make_baseline(Logistic)
    baseline.n_seen = 0
    baseline.open(10)
    dealt = [baseline.choose(visitors_at(np.random.default_rng(k).random((5, 2)))) for k in range(2)]
    assert np.concatenate(dealt).tolist() == [0, 1, 2, 0, 1, 2, 0, 1, 2, 0]


def sums(kind: type[Descent], rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """Return noisy sums of a greedy round's gradients, (rounds, parameters), and the exact sum after clipping."""
    baseline, (contexts, _, values) = make_baseline(kind, **{"privacy.epsilon": 4.0}), people()
    visitors, totals = visitors_at(contexts), []
    for _ in range(rounds):
        baseline.open(len(contexts))
        arms = baseline.choose(visitors)
        baseline.learn(visitors, arms, values)
        totals.append(baseline.total.ravel())
    exact = np.zeros_like(baseline.models)
    gradients = baseline.gradients(contexts, arms, values)
    lengths = np.maximum(1.0, np.linalg.norm(gradients, axis=1, keepdims=True))
    np.add.at(exact, arms, gradients / lengths)
    return np.array(totals), exact.ravel()


@pytest.mark.parametrize("kind", KINDS)
def test_sums_are_unbiased(kind):
    """800 rounds of 40 people; a probability of 1e-6 to fail right code."""
    assert centred(*sums(kind, 800))


def test_a_biased_sum_is_caught():
    """Planted: a parameter whose gradients have the opposite sign."""
    totals, exact = sums(Logistic, 800)
    exact[np.abs(exact).argmax()] *= -1
    assert not centred(totals, exact)


def test_a_step_is_against_the_gradient():
    baseline, (contexts, _, values) = make_baseline(Logistic), people(100)
    before = baseline.models.copy()
    one_round(baseline, contexts, values)
    step = 1 / ((500 + 100 + 2000) / (4 * 3 * 3))
    assert baseline.models == pytest.approx(before - step * baseline.total)


@pytest.mark.parametrize("kind", ["linear", "network"])
def test_baselines_learn_peaks(kind):
    """10,000 people at epsilon 8, 6 seeds: below half of uniform's 4,139; measured 1,017 and 1,176."""
    assert regrets(kind, 10_000, 8.0, 6).mean() < 4139 / 2


def test_a_network_whose_reports_are_noise_is_caught(monkeypatch):
    """Planted: gradients of 0."""
    monkeypatch.setattr(Descent, "gradients", lambda self, contexts, arms, values: np.zeros((len(arms), 17)))
    assert regrets("network", 10_000, 8.0, 4).mean() > 4139 / 2
