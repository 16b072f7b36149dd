"""What a seed names happens, whatever the machine's speed."""

import asyncio
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import pytest

from tests.faults.lists import draw_operations
from tests.faults.points import Faults
from tests.faults.runs import run_on_simulated_time, run_simulation
from tests.faults.shared_world import shared_world_factory
from tests.faults.world import World

SEEDS = (15, 17)
"""Lists with two and more deaths."""


def trace_of(seed: int, kind: Callable[..., World] = World) -> list[str]:
    trace: list[str] = []
    run_simulation(draw_operations(seed), kind, seed, trace)
    return trace


@cache
def first_trace(seed: int) -> list[str]:
    return trace_of(seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_gives_the_same_events_again(seed: int) -> None:
    assert sum("dies" in event for event in first_trace(seed)) > 1
    assert trace_of(seed) == first_trace(seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_slow_disk_does_not_change_the_events(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every point takes a moment of the machine's time, another one each time."""
    honest = Faults._due

    def slow(*arguments: Any) -> Any:
        time.sleep(random.uniform(0, 0.01))
        return honest(*arguments)

    monkeypatch.setattr(Faults, "_due", slow)
    assert trace_of(seed) == first_trace(seed)


@pytest.mark.postgres
@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_gives_the_same_events_on_shared_data(seed, postgres, monkeypatch):
    kind = shared_world_factory(postgres, monkeypatch)
    assert trace_of(seed, kind) == trace_of(seed, kind)


def test_another_seed_gives_another_order() -> None:
    trace: list[str] = []
    run_simulation(draw_operations(SEEDS[0]), World, SEEDS[0] + 1, trace)
    assert trace != first_trace(SEEDS[0])


async def _work() -> list[str]:
    """Record the order in which work ends in an executor of one thread, in the default executor, and in tasks."""
    loop, pool, log = asyncio.get_running_loop(), ThreadPoolExecutor(1), []

    async def run_and_log(name: str, executor: ThreadPoolExecutor | None = None) -> None:
        await loop.run_in_executor(executor, log.append, f"{name} is done")
        log.append(f"{name} is heard")

    await asyncio.gather(
        run_and_log("first", pool), run_and_log("second", pool), run_and_log("third"), run_and_log("fourth")
    )
    return log


def test_threads_work_in_an_order_that_the_seed_draws() -> None:
    orders = [run_on_simulated_time(_work(), seed) for seed in range(20)]
    assert orders == [run_on_simulated_time(_work(), seed) for seed in range(20)]
    assert len(set(map(tuple, orders))) > 10
    for order in orders:
        assert order.index("first is done") < order.index("second is done")
        assert all(order.index(f"{name} is done") < order.index(f"{name} is heard") for name in ("first", "third"))


def test_time_passes_without_waiting() -> None:
    began = time.monotonic()

    async def sleep() -> float:
        await asyncio.sleep(1e6)
        return asyncio.get_running_loop().time()

    assert run_on_simulated_time(sleep()) == pytest.approx(1e6)
    assert time.monotonic() - began < 60


def test_an_endless_wait_is_an_error() -> None:
    async def wait() -> None:
        await asyncio.Event().wait()

    with pytest.raises(AssertionError, match="never comes"):
        run_on_simulated_time(wait())


def test_a_thread_that_has_ended_takes_no_work() -> None:
    async def work() -> None:
        executor = ThreadPoolExecutor(1)
        executor.shutdown()
        await asyncio.get_running_loop().run_in_executor(executor, print)

    with pytest.raises(RuntimeError, match="after shutdown"):
        run_on_simulated_time(work())
