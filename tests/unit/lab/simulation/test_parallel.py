"""Runs side by side: the same results on every backend, and errors as they are."""

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from privateer_core.errors import SpecError
from privateer_lab.simulation.parallel import run_tasks


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
