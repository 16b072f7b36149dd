"""Somebody sends several uploads at once and hangs up before the answers: nothing of it reaches the log."""

import asyncio
from typing import Any

import uvloop

from privateer_core.serving.http.answer import with_body
from tests.unit.serving.test_http_protocol import HEAD, listening
from tests.unit.shuffler.helpers import until

UPLOAD = HEAD + b"content-length: 2\r\n\r\nab"
SECONDS = 0.1


class Durable:
    """Answers uploads once they are durable: when it is told that they are."""

    def __init__(self) -> None:
        self.stored: list[asyncio.Future[None]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("an upload that is there as a whole is taken at once")

    def at_once(self, _: Any, __: Any, reply: Any) -> bool:
        self.stored.append(asyncio.get_running_loop().create_future())
        self.stored[-1].add_done_callback(lambda _: reply(with_body(202, b"{}")))
        return True


async def hung_up(app: Durable) -> list[dict[str, Any]]:
    """What the loop would write into the log."""
    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    async with listening(app) as (port, _):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(4 * UPLOAD)
        await writer.drain()
        await until(lambda: bool(app.stored))
        writer.transport.abort()
        await asyncio.sleep(SECONDS)
        for stored in app.stored:  # what waits behind the first is taken after it
            stored.set_result(None)
            await asyncio.sleep(SECONDS)
    return errors


def test_hanging_up_on_uploads_writes_nothing_into_the_log() -> None:
    app = Durable()
    assert uvloop.run(hung_up(app)) == []  # the loop of the services
    assert len(app.stored) > 1
