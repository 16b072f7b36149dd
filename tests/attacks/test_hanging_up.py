"""Somebody sends several uploads at once and hangs up before the answers: nothing of it reaches the log."""

import asyncio
from typing import Any

import uvloop

from privateer.serving.answer import with_body
from tests.unit.serving.test_protocol import HEAD, listening

UPLOAD = HEAD + b"content-length: 2\r\n\r\nab"
SECONDS = 0.05


class Durable:
    """Answers uploads once they are durable, which takes a while."""

    taken = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("an upload that is there as a whole is taken at once")

    def at_once(self, _: Any, __: Any, reply: Any) -> bool:
        self.taken += 1
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        stored.add_done_callback(lambda _: reply(with_body(202, b"{}")))
        asyncio.get_running_loop().call_later(SECONDS, stored.set_result, None)
        return True


async def hung_up(app: Durable) -> list[dict[str, Any]]:
    """What the loop would write into the log."""
    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    async with listening(app) as (port, _):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(4 * UPLOAD)
        await writer.drain()
        await asyncio.sleep(SECONDS / 2)
        writer.transport.abort()
        await asyncio.sleep(8 * SECONDS)
    return errors


def test_hanging_up_on_uploads_writes_nothing_into_the_log() -> None:
    app = Durable()
    assert uvloop.run(hung_up(app)) == []  # the loop of the services
    assert app.taken > 1
