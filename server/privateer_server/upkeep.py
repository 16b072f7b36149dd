"""What the disk must lose soon: earlier states of the database, and keys that could not be erased."""

import asyncio
from typing import Final

from privateer_server.data import Data

_SECONDS: Final = 1.0


class Upkeep:
    """Cleans up once a second, so that whoever takes the disk finds the last moments of a round at most."""

    def __init__(self, data: Data) -> None:
        self._store, self._keys = data.store, data.keys
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """End."""
        if self._task:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_SECONDS)
            await asyncio.to_thread(self._store.tidy)
            await asyncio.to_thread(self._keys.retry)
