"""A shuffler that kills itself now and then while it delivers a batch: before or after one of the steps."""

import os
import random
import signal
from collections.abc import Callable
from typing import Any

from privateer_core.serving.store.leases import Leases
from privateer_shuffler import app
from privateer_shuffler.pool.shared_store import SharedRound
from privateer_shuffler.upstream import Upstream

_RNG = random.Random(os.getpid())
_CHANCE = float(os.environ.get("PRIVATEER_TEST_DEATHS", "0"))


def _may_die() -> None:
    if _RNG.random() < _CHANCE:
        os.kill(os.getpid(), signal.SIGKILL)


def _deadly(owner: type, method: str) -> None:
    honest: Callable[..., Any] = getattr(owner, method)

    def wrapped(*arguments: Any, **options: Any) -> Any:
        _may_die()
        result = honest(*arguments, **options)
        _may_die()
        return result

    setattr(owner, method, wrapped)


def _deadly_delivery() -> None:
    honest = Upstream.deliver

    async def wrapped(*arguments: Any) -> Any:
        _may_die()
        result = await honest(*arguments)
        _may_die()
        return result

    Upstream.deliver = wrapped  # type: ignore[method-assign]


def main() -> None:
    """Run the shuffler, whose leases are short."""
    Leases.__init__.__defaults__ = (1.0,)
    for method in ("read_batch", "start_next_batch", "erase"):
        _deadly(SharedRound, method)
    _deadly_delivery()
    app.main()
