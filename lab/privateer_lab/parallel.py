"""Independent runs side by side: on this machine's cores, or on a Ray cluster."""

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Literal, TypeVar

import joblib

from privateer.errors import SpecError

R = TypeVar("R")
Backend = Literal["processes", "ray"]
SEEDS_MAX: Final = 100_000
"""Runs are kept until their figures are computed."""
JOBS_MAX: Final = 512


def each(
    run: Callable[..., R], tasks: Sequence[tuple[Any, ...]], jobs: int | None = None, backend: Backend = "processes"
) -> Iterator[R]:
    """Results of ``run(*task)`` as they come, in any order; what a task gives depends on the task alone.

    Parameters
    ----------
    run
        Picklable.
    tasks
        Arguments; a seed is one of them.
    jobs
        Processes, at most one a task; default one a core of this machine, or all of a cluster.
    backend
        ``ray`` needs the package of that name, and connects as it is configured to.

    Raises
    ------
    SpecError
        If Ray is asked for and not installed.
    """
    if backend == "ray":
        _register_ray()
    workers = min(jobs, max(1, len(tasks))) if jobs else -1 if backend == "ray" else os.cpu_count() or 1
    if backend == "processes" and min(workers, len(tasks)) <= 1:
        return (run(*task) for task in tasks)
    with joblib.parallel_config(backend="loky" if backend == "processes" else "ray", n_jobs=workers):
        parallel = joblib.Parallel(return_as="generator_unordered")
        return iter(parallel(joblib.delayed(run)(*task) for task in tasks))


def _register_ray() -> None:
    try:
        from ray.util.joblib import register_ray
    except ImportError:
        raise SpecError("ray is not installed", field="--backend", remedy="pip install ray, or use processes") from None
    register_ray()
