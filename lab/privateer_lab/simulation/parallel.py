"""Parallel execution of independent runs: on this machine's cores, or on a Ray cluster."""

import os
from collections.abc import Callable, Generator, Sequence
from importlib import import_module
from itertools import islice
from typing import Any, Final, Literal, TypeVar, cast

from privateer_core.errors import SpecError

R = TypeVar("R")
Backend = Literal["processes", "ray"]
SEEDS_MAX: Final = 100_000
"""Most seeds, since runs are kept until their figures are computed."""
JOBS_MAX: Final = 512


def run_tasks(
    run: Callable[..., R], tasks: Sequence[tuple[Any, ...]], jobs: int | None = None, backend: Backend = "processes"
) -> Generator[R, None, None]:
    """Yield the results of ``run(*task)`` as they finish, in any order; a result depends only on its task.

    Tasks begin in their order; closing the generator ends the work. ``run`` is pickled. ``jobs`` are by default the
    cores of this machine or cluster; the backend ``ray`` needs the package of that name, configured.
    """
    if backend == "ray":
        try:
            ray = import_module("ray")
        except ImportError:
            remedy = "pip install ray, or use processes"
            raise SpecError("ray is not installed", field="--backend", remedy=remedy) from None
        return _run_on_ray(ray, run, tasks, jobs)
    workers = min(jobs or os.cpu_count() or 1, len(tasks))
    if workers <= 1:
        return (run(*task) for task in tasks)
    import joblib  # takes longer to import than most commands to run

    with joblib.parallel_config(backend="loky", n_jobs=workers):
        parallel = joblib.Parallel(return_as="generator_unordered")
        return cast(Generator[R, None, None], parallel(joblib.delayed(run)(*task) for task in tasks))


def _run_on_ray(
    ray: Any, run: Callable[..., R], tasks: Sequence[tuple[Any, ...]], jobs: int | None
) -> Generator[R, None, None]:
    """Run tasks on Ray, a few at a time, and yield each result as soon as it is there."""
    # Joblib's Ray backend returns results only when all are done.
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")  # only the first error is reported
    ray.init(ignore_reinit_error=True, log_to_driver=False, logging_level="ERROR")
    remote, remaining = ray.remote(run), iter(tasks)
    n_parallel = jobs or int(ray.cluster_resources()["CPU"])
    running = [remote.remote(*task) for task in islice(remaining, n_parallel)]
    while running:
        (finished,), running = ray.wait(running)
        running += [remote.remote(*task) for task in islice(remaining, 1)]
        try:
            yield ray.get(finished)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
