"""Independent runs side by side: on this machine's cores, or on a Ray cluster."""

import os
from collections.abc import Callable, Generator, Sequence
from importlib import import_module
from itertools import islice
from typing import Any, Final, Literal, TypeVar, cast

from privateer_core.errors import SpecError

R = TypeVar("R")
Backend = Literal["processes", "ray"]
SEEDS_MAX: Final = 100_000
"""Runs are kept until their figures are computed."""
JOBS_MAX: Final = 512


def each(
    run: Callable[..., R], tasks: Sequence[tuple[Any, ...]], jobs: int | None = None, backend: Backend = "processes"
) -> Generator[R, None, None]:
    """Yield the results of ``run(*task)`` as they come, in any order; a result depends only on its task.

    Tasks begin in their order. Closing the generator ends the work.

    run: a picklable function.
    tasks: its arguments; a seed is one of them.
    jobs: number of processes, at most one a task; by default one a core of this machine, or all cores of a cluster.
    backend: ``ray`` needs the package of that name, which connects as it is configured.
    """
    if backend == "ray":
        return _on_ray(_ray(), run, tasks, jobs)
    workers = min(jobs or os.cpu_count() or 1, len(tasks))
    if workers <= 1:
        return (run(*task) for task in tasks)
    import joblib  # takes longer to import than most commands to run

    with joblib.parallel_config(backend="loky", n_jobs=workers):
        parallel = joblib.Parallel(return_as="generator_unordered")
        return cast(Generator[R, None, None], parallel(joblib.delayed(run)(*task) for task in tasks))


def _ray() -> Any:
    try:
        return import_module("ray")
    except ImportError:
        raise SpecError("ray is not installed", field="--backend", remedy="pip install ray, or use processes") from None


def _on_ray(
    ray: Any, run: Callable[..., R], tasks: Sequence[tuple[Any, ...]], jobs: int | None
) -> Generator[R, None, None]:
    # Joblib's Ray backend returns results only when all are there.
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")  # only the first error is reported
    ray.init(ignore_reinit_error=True, log_to_driver=False, logging_level="ERROR")
    remote, left = ray.remote(run), iter(tasks)
    at_once = jobs or int(ray.cluster_resources()["CPU"])
    under_way = [remote.remote(*task) for task in islice(left, at_once)]
    while under_way:
        (done,), under_way = ray.wait(under_way)
        under_way += [remote.remote(*task) for task in islice(left, 1)]
        try:
            yield ray.get(done)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
