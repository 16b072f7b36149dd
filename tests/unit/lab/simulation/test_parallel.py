"""Runs side by side: the same results on every backend, and errors as they are."""

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from privateer_core.errors import SpecError
from privateer_lab.simulation.parallel import each


class _TaskError(Exception):
    def __init__(self, cause: Exception) -> None:
        self.cause = cause


class _Ray:
    """What is used of Ray, as it behaves: tasks run when they are waited for, the last one first."""

    exceptions = SimpleNamespace(RayTaskError=_TaskError)

    def __init__(self) -> None:
        self.most = 0

    def init(self, **_: object) -> None:
        pass

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 3.0}

    def remote(self, run: Callable[..., Any]) -> Any:
        return SimpleNamespace(remote=lambda *task: lambda: run(*task))

    def wait(self, under_way: list[Any]) -> tuple[list[Any], list[Any]]:
        self.most = max(self.most, len(under_way))
        return under_way[-1:], under_way[:-1]

    def get(self, done: Callable[[], Any]) -> Any:
        try:
            return done()
        except Exception as error:
            raise _TaskError(error) from None


def square(number: int) -> int:
    if number < 0:
        raise SpecError("below 0", field="number", remedy="choose another")
    return number * number


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> _Ray:
    made = _Ray()
    monkeypatch.setitem(sys.modules, "ray", made)
    return made


TASKS = [(number,) for number in range(10)]


@pytest.mark.parametrize(("jobs", "most"), [(None, 3), (2, 2), (100, 10)])
def test_ray_gives_what_processes_give_as_they_come(ray: _Ray, jobs: int | None, most: int) -> None:
    assert sorted(each(square, TASKS, jobs, "ray")) == sorted(each(square, TASKS, 1)) == [n * n for n in range(10)]
    assert ray.most == most
    assert next(each(square, TASKS, 2, "ray")) == 1


@pytest.mark.parametrize("backend", ["processes", "ray"])
def test_what_a_run_refuses_is_told_as_it_is(ray: _Ray, backend: Any) -> None:
    with pytest.raises(SpecError, match="number: below 0"):
        list(each(square, [(-1,), (2,)], 2, backend))


def test_no_runs_are_no_results() -> None:
    assert list(each(square, [], 2)) == []
