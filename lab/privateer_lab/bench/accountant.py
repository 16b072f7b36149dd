"""How long the accountant takes to compose."""

import time
from collections.abc import Callable
from typing import Any, Final

from privateer_core.accounting.accountant import account
from privateer_core.accounting.events import Event, Laplace, Pure, Repeated

_COMPOSED: Final = 100
_DELTA: Final = 1e-6
_EPSILON: Final = 4.0
_TRIES: Final = 5


def bench_accountant() -> dict[str, Any]:
    """Measure how long a hundred events take to compose, beside one delta of theirs: the least a search could take.

    Returns
    -------
    dict
        For each kind of event the seconds of one epsilon and of one delta, and their ratio; the best of a few tries.
    """
    found: dict[str, Any] = {"events": _COMPOSED}
    for name, event in (("laplace", Laplace(10.0)), ("pure", Pure(0.1))):
        epsilon, delta = _composing(Repeated(event, _COMPOSED))
        found |= {f"{name}_epsilon_seconds": epsilon, f"{name}_delta_seconds": delta, f"{name}_ratio": epsilon / delta}
    return found


def _composing(event: Event) -> tuple[float, float]:
    epsilon = _best_seconds(lambda: account(event).epsilon(_DELTA))
    return epsilon, _best_seconds(lambda: account(event).delta(_EPSILON))


def _best_seconds(work: Callable[[], object]) -> float:
    def once() -> float:
        started = time.perf_counter()
        work()
        return time.perf_counter() - started

    return min(once() for _ in range(_TRIES))
