"""Runs: side by side, their figures, regrets, and the welfare of following their answers."""

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from privateer_core.algorithms import parse_spec
from privateer_core.errors import SpecError
from privateer_lab.environments import PlayedRewards, default_environment
from privateer_lab.planning.expectation.partial_runs import PartialRun, run_partially
from privateer_lab.simulation.parallel import run_tasks
from privateer_lab.simulation.scores import Judgement, Score
from privateer_lab.simulation.simulate import half_width_95, simulate_once, summarize
from tests.support.specs import make_spec


def test_the_interval_of_two_values_is_students() -> None:
    assert half_width_95(np.array([0.0, 1.0])) == pytest.approx(12.7062 / 2, abs=1e-4)
    assert half_width_95(np.array([3.0])) is None


@pytest.mark.parametrize("runs", [2, 4, 10])
def test_the_confidence_interval_contains_the_mean_at_its_level(runs: int) -> None:
    """Of 4,000 draws 5 % miss, within 5 deviations (false alarms 1e-6); the normal interval misses more."""
    samples = np.random.default_rng(runs).standard_normal((4_000, runs))
    half_widths = np.array([half_width_95(values) for values in samples])
    errors = np.abs(samples.mean(axis=1))
    allowed = 5 * (0.05 * 0.95 / len(samples)) ** 0.5
    assert abs((errors > half_widths).mean() - 0.05) < allowed
    assert (errors > 1.96 * samples.std(axis=1, ddof=1) / runs**0.5).mean() > 0.05 + allowed


def test_the_error_of_effects_is_a_root_mean_square_over_runs_too() -> None:
    """Planted: with a single effect, the mean of the runs' figures is a mean of absolute errors."""
    spec = parse_spec(
        {
            "experiment": {"name": "one", "arms": ["old", "new"], "horizon": 400, "round_size": 400},
            "context": {"features": {"x": {"low": 0.0, "high": 1.0}}},
            "privacy": {"model": "none"},
            "algorithm": {"name": "trial"},
            "population": {"name": "effects", "base": 0.5, "effects": {"new": 0.1}},
        }
    )
    runs = [simulate_once(spec, seed) for seed in range(3)]
    errors = np.array([run.facts["effect_error"] for run in runs])
    assert summarize(spec, runs, 0.0)["effect_error"] == pytest.approx(np.square(errors).mean() ** 0.5)
    assert errors.mean() < np.square(errors).mean() ** 0.5


def test_runs_without_estimates_do_not_count_in_coverage() -> None:
    """With 89 randomized reports hardly any run has an interval: no coverage of 1 and no width of 0."""
    spec = parse_spec(
        {
            "experiment": {"name": "few", "arms": ["a", "b"], "horizon": 89, "round_size": 89},
            "context": {"features": {"everybody": {"levels": ["everybody"]}}},
            "privacy": {"model": "local", "epsilon": 1.0},
            "algorithm": {"name": "trial"},
            "population": {"name": "effects", "base": 0.1, "effects": {"b": 0.1}},
        }
    )
    runs = [simulate_once(spec, seed) for seed in range(4)]
    figures = summarize(spec, runs, 0.0)
    silent = [run for run in runs if run.facts["judged"] == 0]
    assert silent
    assert all(np.isnan(run.facts["coverage"]) for run in silent)
    assert [run["coverage"] for run in figures["runs"] if run["judged"] == 0] == [None] * len(silent)
    half_widths = [run.facts["half_width"] for run in runs if run.facts["judged"]]
    assert figures["half_width"] == (pytest.approx(np.mean(half_widths)) if half_widths else None)


class _TaskError(Exception):
    def __init__(self, cause: Exception) -> None:
        self.cause = cause


class _Ray:
    """A stand-in for Ray: tasks run when the caller waits for them, in reverse order."""

    exceptions = SimpleNamespace(RayTaskError=_TaskError)

    def __init__(self) -> None:
        self.max_under_way = 0

    def init(self, **_: object) -> None:
        pass

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 3.0}

    def remote(self, run: Callable[..., Any]) -> Any:
        return SimpleNamespace(remote=lambda *task: lambda: run(*task))

    def wait(self, under_way: list[Any]) -> tuple[list[Any], list[Any]]:
        self.max_under_way = max(self.max_under_way, len(under_way))
        return under_way[-1:], under_way[:-1]

    def get(self, task: Callable[[], Any]) -> Any:
        try:
            return task()
        except Exception as error:
            raise _TaskError(error) from None


def square(number: int) -> int:
    if number < 0:
        raise SpecError("below 0", field="number", remedy="choose another")
    return number * number


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> _Ray:
    stand_in = _Ray()
    monkeypatch.setitem(sys.modules, "ray", stand_in)
    return stand_in


TASKS = [(number,) for number in range(10)]


@pytest.mark.parametrize(("jobs", "max_under_way"), [(None, 3), (2, 2), (100, 10)])
def test_ray_gives_the_results_of_processes_as_they_come(ray: _Ray, jobs: int | None, max_under_way: int) -> None:
    assert (
        sorted(run_tasks(square, TASKS, jobs, "ray"))
        == sorted(run_tasks(square, TASKS, 1))
        == [n * n for n in range(10)]
    )
    assert ray.max_under_way == max_under_way
    assert next(run_tasks(square, TASKS, 2, "ray")) == 1


@pytest.mark.parametrize("backend", ["processes", "ray"])
def test_an_error_of_a_run_is_raised_unchanged(ray: _Ray, backend: Any) -> None:
    with pytest.raises(SpecError, match="number: below 0"):
        list(run_tasks(square, [(-1,), (2,)], 2, backend))


def test_no_runs_are_no_results() -> None:
    assert list(run_tasks(square, [], 2)) == []


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


def test_an_option_that_is_always_best_loses_nothing() -> None:
    """Its sum and that of the best option are added in different orders, which must not give a regret."""
    score = Score()
    score.add(PlayedRewards(30_000, 6_000.0, 7_500.0 + 4.5e-12, np.array([6_000.0, 7_500.0])), reward=0.0)
    assert (score.best_constant_regret, score.regret > 1_000) == (0.0, True)
    score.add(PlayedRewards(1, 0.0, 1e-6, np.zeros(2)), reward=0.0)
    assert score.best_constant_regret > 0


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_people_who_measure_a_gain_follow_the_last_policy(epsilon):
    """Planted: their report would have no alphabet in a round without participants."""
    tables = {
        "experiment": {"name": "test", "arms": ["a", "b"], "horizon": 3000, "evaluation_fraction": 0.05},
        "context": {"features": {"x": {"low": 0.0, "high": 1.0}}},
        "privacy": {"model": "local", "epsilon": epsilon},
        "algorithm": {"name": "additive"},
    }
    spec = parse_spec(tables)
    partial_run = run_partially(spec.model_copy(update={"population": default_environment(spec)}), 0, 4.0)
    assert isinstance(partial_run, PartialRun)
    assert partial_run.run.choices == 3000
