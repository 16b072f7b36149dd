"""Bins of numbers: how many evidence asks for, and that features are judged independently."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privateer_core.algorithms.additive.cells import Cells, Questions, ShapeCells
from privateer_server.algorithms import learner_for
from privateer_server.algorithms.additive.feature_products import independent_products
from privateer_server.algorithms.additive.participant_shares import ArmShares
from privateer_server.algorithms.additive.posterior import TermPosterior, list_blocks
from privateer_server.algorithms.additive.resolution import Resolution, choose_bins, coarsest_bins, is_due
from tests.unit.algorithms.test_additive import spec_of

CELLS = Cells((ShapeCells(0, 64), ShapeCells(1, 64, missing=True), ShapeCells(3, 0, (0, 1, 2), 2)))
QUESTIONS = Questions(CELLS, merges=True)
MASSES = np.concatenate([[1.0], np.full(64, 1 / 64), np.full(65, 1 / 65), [0.5, 0.3, 0.2]])
COARSE = Resolution(QUESTIONS, coarsest_bins(CELLS))


def simulate_sums(jumps: float, people: float, seed: int = 1) -> tuple[Any, Any]:
    """Information and scores of two arms: the first number has a smooth wave, and ``jumps`` from bin to bin."""
    rng, theta = np.random.default_rng(seed), np.zeros((2, CELLS.count))
    wave = 0.15 * np.sin(2 * np.pi * np.arange(64) / 64) + jumps * rng.choice([-1.0, 1.0], 64)
    theta[:, 0], theta[0, 1:65], theta[1, 1:65] = 0.5, wave, -wave
    slopes = independent_products(CELLS, people * MASSES) / 0.25
    draws, roots = rng.normal(size=(2, CELLS.count)), np.sqrt(MASSES)
    noise = draws[:, :1] * MASSES + roots * draws * (np.arange(CELLS.count) > 0)
    for block in list_blocks(CELLS)[1:]:  # numpy's draws of this singular law differ between processors
        noise[:, block] -= MASSES[block] * (draws[:, block] @ roots[block])[:, None]
    return np.stack([slopes] * 2), theta @ slopes + np.sqrt(people / 0.25) * noise


def review(jumps: float, people: float) -> tuple[int, ...]:
    information, scores = simulate_sums(jumps, people)
    merged = COARSE.merged.cells
    arguments = *COARSE.merge_statistics(information, scores), merged, COARSE.merge(MASSES)
    posterior = TermPosterior.from_statistics(*arguments, None)
    return choose_bins(COARSE, information, scores, MASSES, posterior)


def test_evidence_asks_for_fine_bins_where_rewards_jump_and_people_are_many() -> None:
    assert coarsest_bins(CELLS) == (16, 16, 0)
    assert review(0.0, 300) == (16, 16, 0), "a smooth wave: so with 99 of 100 seeds"
    assert review(0.1, 40_000) == (64, 16, 0)
    assert review(0.1, 200) == (16, 16, 0), "so few do not tell"


@pytest.mark.parametrize(
    ("reported", "reviewed", "due"), [(250, 0, True), (374, 250, False), (375, 250, True), (9, 250, True)]
)
def test_bins_are_chosen_again_after_half_as_many_people_more(reported: int, reviewed: int, due: bool) -> None:
    assert is_due(reported, reviewed) == due


def test_learned_bins_are_those_of_a_posterior_of_merged_terms() -> None:
    """The matrix that merges terms gives the same sums. Planted: bins merged one further on."""
    information, scores = simulate_sums(0.1, 3_000)
    matrix = (COARSE.terms[:, None] == np.arange(COARSE.merged.cells.count)).astype(float)
    assert matrix.sum(axis=0)[1:].tolist() == [4.0] * 32 + [1.0] * 4
    merged_information, merged_scores = COARSE.merge_statistics(information, scores)
    assert np.allclose(merged_information, matrix.T @ information @ matrix)
    assert np.allclose(merged_scores, scores @ matrix)
    assert not np.allclose(merged_scores, scores @ np.roll(matrix, 1, axis=0))
    posterior = TermPosterior.from_statistics(
        merged_information, merged_scores, COARSE.merged.cells, COARSE.merge(MASSES), None
    )
    expanded = COARSE.expand(posterior)
    assert np.allclose(expanded.covariances, matrix @ posterior.covariances @ matrix.T)
    whole = Resolution(QUESTIONS, tuple(feature.bins for feature in CELLS.features))
    assert whole.expand(posterior) is posterior
    assert whole.merge(scores) is scores


def test_questions_about_learned_bins_are_those_of_reports_in_order() -> None:
    """All but those about a number's own bins have as many parts. Planted: a number that is learned in 8 bins."""
    merged = Resolution(QUESTIONS, (16, 32, 0)).merged
    assert QUESTIONS.sizes.tolist() == [1, 64, 2, 4, 8, 65, 3, 5, 9, 3]
    assert merged.sizes.tolist() == [1, 16, 2, 4, 8, 33, 3, 5, 9, 3]
    assert merged.features.tolist() == QUESTIONS.features.tolist()
    assert Resolution(QUESTIONS, (8, 32, 0)).merged.count < QUESTIONS.count


def test_shares_of_cells_with_equal_terms_are_those_of_each_cell() -> None:
    """Terms of an arm without participants are equal, or differ, so that cells are solved together, or one by one."""
    spec: Any = spec_of("none", algorithm={"bins": 32})
    policy: Any = learner_for(spec).open_next_round(learner_for(spec).start(1), 1, 1).policy
    rng, cells = np.random.default_rng(2), policy.questions.cells
    columns = cells.feature_slice(0)
    steps = np.repeat(np.arange(cells.count), np.where(np.arange(cells.count) % 4, 0, 4))[: cells.count]
    draws = rng.integers(-900, 900, policy.draws.shape, np.int16)[:, :, steps]
    merged = replace(
        policy, draws=draws, means=draws.mean(axis=0).astype(np.int16), playable=np.array([True, True, False])
    )
    apart = replace(merged, means=merged.means.copy())
    apart.means[2, columns] += np.arange(columns.stop - columns.start, dtype=np.int16)
    masses = np.ones(cells.count)
    for index, feature in enumerate(cells.features):
        masses[cells.feature_slice(index)] = 1 / feature.count
    at_once, one_by_one = (ArmShares.from_policy(each, masses) for each in (merged, apart))
    for name in ("shares", "weighted", "cut", "spread"):
        assert np.allclose(getattr(at_once, name), getattr(one_by_one, name))
    assert len(np.unique(at_once.shares[0, columns])) < columns.stop - columns.start


RANKED = {"age": {"quantiles": np.linspace(0.0, 1.0, 65).tolist()}, "size": {"low": 0, "high": 1}}


@pytest.mark.parametrize(("model", "bins", "reported"), [("none", 64, 64), ("central", 64, 64), ("shuffle", 16, 16)])
def test_quantiles_give_fine_bins_where_reports_have_no_noise_of_their_own(
    model: str, bins: int, reported: int
) -> None:
    """Planted: 64 bins that are written, of which shuffled reports are about 16."""
    tables: Any = {"context": {"features": RANKED}}
    spec: Any = spec_of(model, **tables)
    unset = spec.algorithm.model_fields_set - {"bins"}
    open_spec = spec.model_copy(
        update={"algorithm": spec.algorithm.model_construct(unset, **dict(spec.algorithm) | {"bins": 16})}
    )
    assert open_spec.with_dependent_defaults().algorithm.bins == bins
    written: Any = spec_of(model, **tables, algorithm={"bins": 64})
    assert [feature.bins for feature in written.questions.cells.features[:2]] == [reported] * 2


def test_many_shuffled_arms_have_large_rounds_and_advice_on_the_cap() -> None:
    """Planted: the advised cap, with which nothing is advised."""
    experiment = {"arms": [f"arm {index}" for index in range(24)], "horizon": 42_000}
    numbers: Any = {"features": {f"x{index}": {"low": 0, "high": 1} for index in range(6)}}
    spec: Any = spec_of("shuffle", experiment=experiment, algorithm={"bins": 16}, context=numbers)
    assert spec.experiment.round_size == 4000
    (concern,) = [text for text in spec.concerns() if "first rounds" in text]
    assert "privacy.local_epsilon_max = 6" in concern
    assert "99.8% at most in place of 98.2%" in concern
    raised = spec.model_copy(update={"privacy": spec.privacy.model_copy(update={"local_epsilon_max": 6.0})})
    assert not [text for text in raised.concerns() if "first rounds" in text]
    few: Any = spec_of("shuffle", experiment={**experiment, "arms": ["a", "b"]}, context=numbers)
    assert few.experiment.round_size == 1000
