"""Paper 4's frontier, and welfare after an experiment: the published algorithms beside our results."""

import numpy as np
import pytest

from privateer_core.spec.privacy import Privacy
from privateer_papers.paper_4 import welfare
from privateer_papers.paper_4.frontier import LINE, play_matching, play_published, trial_setting
from privateer_papers.paper_4.interval_peers import compute_intervals
from privateer_papers.paper_4.welfare import WELFARE
from privateer_papers.paper_4.world import EFFECT_AMPLITUDE, ConSE, World
from privateer_papers.reproduction import Effort, Rows

MILLION = 1_000_000


def test_sequences_are_those_of_the_paper() -> None:
    private, public = ConSE(MILLION, 1 / 3, 0.01), ConSE(MILLION, 1 / 3)
    assert (public.bins, public.wide_bins, public.coins) == (100, 21, 464)
    assert ConSE(MILLION, 0.0).coins == 10_000
    assert public.epoch_length(2) == pytest.approx(32 * np.log(64e6) * 16 + 1)
    assert private.epoch_length(2) == pytest.approx(8 * np.log(32e6) / (0.01 * 0.25) + 1)
    sampling = np.sqrt(np.log(64e6) / (2 * public.epoch_length(2)))
    assert public.elimination_margin(2) == pytest.approx(2 * sampling)
    con_se = ConSE(MILLION, 1 / 3, 1.0)
    assert con_se.elimination_margin(2) - public.elimination_margin(2) == pytest.approx(
        4 * np.log(32e6) / con_se.epoch_length(2)
    )
    short = ConSE(MILLION, 1 / 3, 1.0, "appendix")
    assert short.elimination_margin(2) - public.elimination_margin(2) == pytest.approx(
        2 * np.log(32e6) / short.epoch_length(2)
    )


def test_lengths_are_discrete_laplace_of_scale_2_over_epsilon_and_never_below_0() -> None:
    rng, algorithm = np.random.default_rng(1), ConSE(MILLION, 1 / 3, 1.0)
    lengths = np.array([algorithm.randomize_length(40.7, rng) for _ in range(20_000)])
    decay = np.exp(-0.5)
    assert (lengths == 40).mean() == pytest.approx((1 - decay) / (1 + decay), abs=0.012)
    assert lengths.std() == pytest.approx(np.sqrt(2 * decay) / (1 - decay), rel=0.04)
    assert min(algorithm.randomize_length(1, rng) for _ in range(200)) == 0


def test_the_world_is_a_sine() -> None:
    assert LINE.losses(64).mean() == pytest.approx(LINE.uniform, rel=1e-3)
    effects = LINE.means(64) @ [-1, 1]
    assert LINE.root_mean_square_error(effects) == pytest.approx(0.3 * 2 * np.pi / 64 / 24**0.5, rel=0.01)


def test_published_points_are_those_that_others_measured() -> None:
    """Regret .295, .344 and error .049, .051 of an independent prototype; runs differ by a tenth."""
    conse, private = (
        np.mean([play_published(MILLION, 1 / 3, epsilon, "algorithm", seed)[:2] for seed in range(6)], axis=0)
        for epsilon in (None, 1.0)
    )
    assert conse == pytest.approx([0.295, 0.049], rel=0.08)
    assert private == pytest.approx([0.344, 0.051], rel=0.1)


@pytest.mark.parametrize(("model", "regret", "error"), [("central", 0.045, 0.045), ("local", 0.21, 0.12)])
def test_our_regret_and_error_are_beyond_the_published_frontier(model: str, regret: float, error: float) -> None:
    point = np.mean([play_matching(model, MILLION, 1 / 3, 1.0, seed) for seed in range(5)], axis=0)
    assert point[0] <= regret
    assert point[1] <= error


@pytest.mark.nightly
def test_a_shuffled_trial_is_beyond_the_published_frontier() -> None:
    point = np.mean([play_matching("shuffle", MILLION, 1 / 3, 1.0, seed) for seed in range(5)], axis=0)
    assert point[0] <= 0.05
    assert point[1] <= 0.04


def test_settings_are_those_of_the_products_mechanisms() -> None:
    named = trial_setting(Privacy.model_validate({"model": "local", "epsilon": 2.0}), 4, 1_000)
    assert named.counted
    assert named.keep == pytest.approx(np.expm1(2) / (np.exp(2) + 7), rel=1e-6)
    assert not trial_setting(Privacy.model_validate({"model": "local", "epsilon": 1.0}), 64, 1_000).counted
    curator = trial_setting(Privacy.model_validate({"model": "central", "epsilon": 1.0}), 4, 1_000)
    assert curator.decay == pytest.approx(np.exp(-0.5), rel=1e-3)


def test_a_public_arm_makes_intervals_a_third_as_wide() -> None:
    last = {row["rule"]: row["half"] for row in compute_intervals(1) if row["people"] == 100_000}
    assert last["local 1: repeated"] <= 0.015
    assert last["local 1: the same, tuned to the plan"] == pytest.approx(0.0372, abs=0.001)


@pytest.mark.benchmark
def test_intervals_of_a_library_agree_with_the_textbook_and_miss_no_more_than_they_may() -> None:
    """Bonferroni over the looks: at most .05 of trials miss, so 5 or more of 20 do with probability .0026 at most."""
    rows = [row for seed in range(20) for row in compute_intervals(seed) if row["rule"].startswith("none: statsmodels")]
    missed = {row["seed"] for row in rows if abs(row["estimate"] - 0.03) > row["half"]}
    assert len(missed) <= 4
    last = [row["half"] for row in rows if row["people"] == 100_000]
    variance = (0.3 * 0.7 + 0.33 * 0.67) / 50_000
    assert np.mean(last) == pytest.approx(2.8653 * variance**0.5, rel=0.01)


@pytest.mark.parametrize("world", [World(1), World(2), World(1, 0.137), World(2, 0.137)])
def test_cells_have_the_means_of_their_points(world: World) -> None:
    """The reference are effects at random points, averaged by cell."""
    side, rng = 8, np.random.default_rng(3)
    points = rng.random((400_000, world.dimension))
    effect = EFFECT_AMPLITUDE * np.sin(2 * np.pi * (points + world.phase)).prod(axis=1)
    cells = (points * side).astype(int) @ [side ** (world.dimension - 1 - axis) for axis in range(world.dimension)]
    count = np.bincount(cells, minlength=side**world.dimension)
    means = world.means(side)
    assert np.bincount(cells, effect) / count == pytest.approx(means[:, 1] - means[:, 0], abs=0.006)
    losses = np.bincount(cells, np.maximum(effect, 0)) / count
    assert losses == pytest.approx(world.losses(side)[:, 0], abs=0.006)
    assert world.uniform == pytest.approx(np.abs(effect).mean() / 2, rel=0.01)


def test_wide_cells_hold_the_middles_of_narrow_ones() -> None:
    assert World(1).wide_bin_indices(8, 2).tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    grid = World(2).wide_bin_indices(4, 2).reshape(4, 4)
    assert grid.tolist() == [[0, 0, 1, 1], [0, 0, 1, 1], [2, 2, 3, 3], [2, 2, 3, 3]]


def test_welfare_is_lossless_where_the_sign_is_right_everywhere() -> None:
    """At phase 0 halves have one sign each. Planted: one wrong cell loses all of the effect, and a phase costs more."""
    world = World(1)
    right = world.means(64) @ [-1, 1] > 0
    assert world.max_loss(right) == pytest.approx(0.0, abs=1e-3)
    wrong = right.copy()
    wrong[16] = not wrong[16]
    assert world.max_loss(wrong) == pytest.approx(EFFECT_AMPLITUDE, rel=0.01)
    shifted = World(1, 0.137)
    assert 0.001 < shifted.max_loss(shifted.means(64) @ [-1, 1] > 0) < EFFECT_AMPLITUDE * 2 * np.pi / 64


def test_the_paper_s_sequences_with_two_covariates() -> None:
    two = ConSE(1_000_000, 0.25, dimension=2)
    assert (two.n_side, two.bins) == (31, 961)
    assert (two.wide_side, two.wide_bins) == (13, 169)
    assert two.coins == int(1e6 ** (0.5 * 0.75))


def test_an_algorithm_that_cannot_eliminate_recommends_the_control_and_has_its_loss() -> None:
    world = World(2, 0.137)
    outcome = play_published(300_000, 0.25, None, "algorithm", 0, world)
    assert outcome.welfare == pytest.approx(1.0, rel=0.02)
    assert outcome.worst == pytest.approx(EFFECT_AMPLITUDE, rel=0.01)
    played_trial = play_matching("none", 300_000, 0.25, 1.0, 0, world)
    assert played_trial.welfare < 0.3 * outcome.welfare
    assert played_trial.worst < outcome.worst


def test_small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(welfare, "_QUICK_HORIZONS", (2000, 6000, 20_000))
    rows = Rows(WELFARE.rows(Effort(quick=True, seeds=1, jobs=1)))
    assert len(rows) == 2 * 3 * 3 * 5
    assert all(row["worst"] <= EFFECT_AMPLITUDE and row["product"] > 0 for row in rows)
