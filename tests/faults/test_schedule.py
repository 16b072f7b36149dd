"""What a seed names happens, whatever the machine's speed."""

import asyncio
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import pytest

from tests.faults.lists import drawn
from tests.faults.points import Faults
from tests.faults.runs import once, simulated
from tests.faults.shared_world import on
from tests.faults.world import World
from tests.support.postgres import Cluster

SEEDS = (15, 17)
"""Lists with two and more deaths."""


def trace_of(seed: int, kind: Callable[..., World] = World) -> list[str]:
    trace: list[str] = []
    once(drawn(seed), kind, seed, trace)
    return trace


@cache
def first_trace(seed: int) -> list[str]:
    return trace_of(seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_gives_the_same_events_again(seed: int) -> None:
    assert sum("dies" in event for event in first_trace(seed)) > 1
    assert trace_of(seed) == first_trace(seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_slow_disk_changes_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every point takes a moment of the machine's time, another one each time."""
    honest = Faults._due

    def slow(*arguments: Any) -> Any:
        time.sleep(random.uniform(0, 0.01))
        return honest(*arguments)

    monkeypatch.setattr(Faults, "_due", slow)
    assert trace_of(seed) == first_trace(seed)


@pytest.mark.postgres
@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_gives_the_same_events_on_shared_data(
    seed: int, postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = on(postgres, monkeypatch)
    assert trace_of(seed, kind) == trace_of(seed, kind)


def test_another_seed_gives_another_order() -> None:
    trace: list[str] = []
    once(drawn(SEEDS[0]), World, SEEDS[0] + 1, trace)
    assert trace != first_trace(SEEDS[0])


async def _work() -> list[str]:
    """What happens in two threads, of which one has a line, and beside them."""
    loop, one, done = asyncio.get_running_loop(), ThreadPoolExecutor(1), []

    async def have(name: str, *executor: ThreadPoolExecutor) -> None:
        await loop.run_in_executor(*(executor or (None,)), done.append, f"{name} is done")
        done.append(f"{name} is heard")

    await asyncio.gather(have("first", one), have("second", one), have("third"), have("fourth"))
    return done


def test_threads_work_in_an_order_that_the_seed_draws() -> None:
    orders = [simulated(_work(), seed) for seed in range(20)]
    assert orders == [simulated(_work(), seed) for seed in range(20)]
    assert len(set(map(tuple, orders))) > 10
    for order in orders:
        assert order.index("first is done") < order.index("second is done")
        assert all(order.index(f"{name} is done") < order.index(f"{name} is heard") for name in ("first", "third"))


def test_time_passes_without_waiting() -> None:
    began = time.monotonic()

    async def sleep() -> float:
        await asyncio.sleep(1e6)
        return asyncio.get_running_loop().time()

    assert simulated(sleep()) == pytest.approx(1e6)
    assert time.monotonic() - began < 60


def test_what_never_comes_is_told() -> None:
    async def wait() -> None:
        await asyncio.Event().wait()

    with pytest.raises(AssertionError, match="never comes"):
        simulated(wait())


def test_a_thread_that_has_ended_takes_no_work() -> None:
    async def work() -> None:
        executor = ThreadPoolExecutor(1)
        executor.shutdown()
        await asyncio.get_running_loop().run_in_executor(executor, print)

    with pytest.raises(RuntimeError, match="after shutdown"):
        simulated(work())
