"""How many files and functions a report passes on the server, from the ASGI call until the accumulator has it."""

import asyncio
import sys
import threading
from types import FrameType
from typing import Any

from privateer_core.serving.http.answer import HttpAnswer
from privateer_server.app import create_app
from privateer_server.settings import ServerSettings
from tests.support.asgi import serving
from tests.support.sealing import body_of, sealed_reports
from tests.support.servers import SMALL, Api

FILES_MAX, FUNCTIONS_MAX = 33, 118
"""Those of the listener, the intake, the round, the store, and of the policy and the mechanism of the experiment."""


class Trace:
    """Ours among the functions that are called in all threads, until the accumulator has taken a report."""

    def __init__(self) -> None:
        self.calls: dict[tuple[str, str], None] = {}
        self.is_on = False

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_qualname
        place = frame.f_code.co_filename.rpartition("/privateer_")
        if not self.is_on or not place[1]:
            return
        if event == "call":
            self.calls[place[2], name] = None
        elif event == "return" and name == "Accumulator.count_upload":
            self.is_on = False


def request_for(body: bytes) -> dict[str, Any]:
    headers = [(b"host", b"server"), (b"content-length", b"%d" % len(body))]
    return {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "headers": headers,
        "path": "/reports",
        "raw_path": b"/reports",
        "query_string": b"",
        "client": ("127.0.0.1", 1),
    }


async def test_a_report_passes_a_bounded_number_of_files_and_functions(settings: ServerSettings) -> None:
    trace, app = Trace(), create_app(settings)
    threading.setprofile(trace)  # of the thread that counts, which begins with the first report
    try:
        async with serving(app) as client:
            await Api(client).create(SMALL)
            publication = await Api(client).publication()
            first, second = (body_of(publication, [sealed]) for sealed in sealed_reports(publication, 2))
            assert (await client.post("/reports", content=first)).status_code == 202
            answer: asyncio.Future[HttpAnswer] = asyncio.get_running_loop().create_future()
            trace.is_on = True
            sys.setprofile(trace)
            try:
                assert app.public.answer_at_once(request_for(second), bytearray(second), answer.set_result)
                assert (await answer).status == 202
            finally:
                sys.setprofile(None)
    finally:
        threading.setprofile(None)  # type: ignore[arg-type]
    files = {file for file, _ in trace.calls}
    assert ("server/intake/accumulator.py", "Accumulator.count_upload") in trace.calls
    assert (len(files) <= FILES_MAX, len(trace.calls) <= FUNCTIONS_MAX) == (True, True), (
        f"{len(files)} files, {len(trace.calls)} functions: {sorted(trace.calls)}"
    )
