"""A server that kills itself now and then while it closes a round: before or after one of the steps."""

import os
import random
import signal
from collections.abc import Callable
from typing import Any

from privateer_core.serving.store.leases import Leases
from privateer_server import app
from privateer_server.intake.decryption import RoundKeys
from privateer_server.store.journal import Journal
from privateer_server.store.store import Store

_RNG = random.Random(os.getpid())
_CHANCE = float(os.environ.get("PRIVATEER_TEST_DEATHS", "0"))


def _may_die() -> None:
    if _RNG.random() < _CHANCE:
        os.kill(os.getpid(), signal.SIGKILL)


def _deadly(owner: type, method: str, dies: Callable[..., bool] = lambda *_: True) -> None:
    honest: Callable[..., Any] = getattr(owner, method)

    def wrapped(*arguments: Any) -> Any:
        if not dies(*arguments):
            return honest(*arguments)
        _may_die()
        result = honest(*arguments)
        _may_die()
        return result

    setattr(owner, method, wrapped)


def main() -> None:
    """Run the server, whose leases are short."""
    Leases.__init__.__defaults__ = (1.0,)
    for owner, method in ((RoundKeys, "create_key"), (RoundKeys, "destroy"), (Journal, "record_publication")):
        _deadly(owner, method)
    _deadly(Store, "commit", lambda _, changes: any(change.following for change in changes))
    app.main([])
