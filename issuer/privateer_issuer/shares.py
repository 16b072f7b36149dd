"""How many tokens of an experiment a device has had; durable before one is signed."""

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from privateer_core.errors import TokensExhausted, Unavailable
from privateer_issuer.store import Store, Taking

_WAITING_MAX: Final = 4096


class _Waiting(NamedTuple):
    taking: Taking
    granted: asyncio.Future[bool]


class Shares:
    """Counts requests. Those that come while the disk is busy share the next transaction.

    Parameters
    ----------
    most
        Tokens of an experiment that a device may have.

    Attributes
    ----------
    failed
        Whether the disk did not take the last group.
    """

    def __init__(self, store: Store, most: int) -> None:
        self._store, self._most = store, most
        self._disk = ThreadPoolExecutor(1, "disk")
        self._waiting: list[_Waiting] = []
        self._writer: asyncio.Task[None] | None = None
        self.failed = False

    async def take(self, taking: Taking) -> None:
        """Count a request, unless it is one of before; return when that is durable.

        Raises
        ------
        TokensExhausted
            If the device has had its share.
        Unavailable
            If the disk fails, or too many wait.
        """
        if len(self._waiting) >= _WAITING_MAX:
            raise _unavailable()
        granted: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(taking, granted))
        if self._writer is None:
            self._writer = asyncio.create_task(self._write())
        if not await granted:
            raise TokensExhausted("the device has had its share of tokens", remedy="use those that it has")

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                group, self._waiting = self._waiting, []
                takings = [one.taking for one in group]
                try:
                    granted = await loop.run_in_executor(self._disk, self._store.take, takings, self._most)
                except sqlite3.Error:
                    self._answer(group, None)
                else:
                    self._answer(group, granted)
        finally:
            self._writer = None

    def _answer(self, group: list[_Waiting], granted: list[bool] | None) -> None:
        self.failed = granted is None
        for index, one in enumerate(group):
            if one.granted.done():  # the device has hung up
                continue
            if granted is None:
                one.granted.set_exception(_unavailable())
            else:
                one.granted.set_result(granted[index])

    async def close(self) -> None:
        """Finish writing."""
        if self._writer is not None:
            await asyncio.wait({self._writer})
        self._disk.shutdown()


def _unavailable() -> Unavailable:
    return Unavailable("the issuer cannot count tokens now", remedy="send the same request again later")
