"""Measures answers that do nothing: a policy that a device has already, and an upload refused by its headers."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

import httpx

from privateer_core.errors import Unavailable
from privateer_core.wire.batch import UPLOAD
from privateer_core.wire.envelope import MEDIA_TYPE
from privateer_lab.bench.processor_time import cpu_seconds, open_seconds
from privateer_lab.bench.uploads import bench_spec, send_all
from privateer_lab.services.processes import free_port, running
from privateer_lab.services.rest import create

_NAME: Final = "bench"
_PAGE: Final = f"/experiments/{_NAME}/policy"
_REQUESTS: Final = 10_000
"""At a time."""
_TRIES: Final = 3
_BODY: Final = bytes(150)
"""Has the length of one report's envelope."""
_NOT_MODIFIED, _REFUSED = 304, 403
_SECONDS: Final = 30.0
_CODE: Final = "import sys; from privateer_lab.bench.answers import serve; serve(int(sys.argv[1]))"


def bench_answers(people: int) -> dict[str, dict[str, float]]:
    """Measure answers that open and store nothing, as the processor time of one at the server, in opens.

    Each is sent in turn with the same request to a bare Starlette application, which answers 304.

    people: in a round of the experiment that is asked about.

    Returns
    -------
    dict
        ``share_of_bare`` is how many of these answers one core gives, for each one of the bare application's.
    """
    with (
        tempfile.TemporaryDirectory(prefix="privateer-") as folder,
        running(Path(folder), free_port(), free_port(), quiet=True) as at,
        bare() as other,
    ):
        create(at.admin, bench_spec(_NAME, "server", people), at.token)
        tag = httpx.get(at.server + _PAGE, headers={"Accept": MEDIA_TYPE}).raise_for_status().headers["etag"]
        asking, forged = _asking(tag), _forged()
        server, rows = at.processes.pid("server"), []
        for _ in range(_TRIES):
            bare_seconds = _seconds(other.url, other.pid, asking, _NOT_MODIFIED)
            policy = _seconds(at.server, server, asking, _NOT_MODIFIED)
            rows.append((bare_seconds, policy, _seconds(at.server, server, forged, _REFUSED)))
    unit = open_seconds()
    bare_seconds, policy, refusal = (median(each) for each in zip(*rows, strict=True))
    return {
        "policy that a device has already": {
            "server": policy / unit,
            "bare_starlette": bare_seconds / unit,
            "share_of_bare": median(row[0] / row[1] for row in rows),
        },
        "upload refused by its headers": {"server": refusal / unit, "a_second_of_one_core": 1 / refusal},
    }


def _asking(tag: str) -> bytes:
    return f"GET {_PAGE} HTTP/1.1\r\nHost: bench\r\nAccept: {MEDIA_TYPE}\r\nIf-None-Match: {tag}\r\n\r\n".encode()


def _forged() -> bytes:
    """Return an upload whose signature nobody made."""
    signature = f"{'0' * 16}.1.{len(_BODY)}.{'0' * 64}.{'0' * 128}"
    head = f"POST /reports HTTP/1.1\r\nHost: bench\r\n{UPLOAD.header}: {signature}\r\nContent-Length: {len(_BODY)}\r\n"
    return head.encode() + b"\r\n" + _BODY


def _seconds(url: str, pid: int, request: bytes, status: int) -> float:
    """Return the processor time of one answer, in seconds."""
    before = cpu_seconds(pid)
    statuses = send_all(url, [request] * _REQUESTS)
    if set(statuses) != {status}:
        raise Unavailable(f"the answers were {dict(statuses)}", remedy="see the services' log above")
    return (cpu_seconds(pid) - before) / _REQUESTS


class Bare(NamedTuple):
    """A bare HTTP server: its address and its process."""

    url: str
    pid: int


def serve(port: int) -> None:
    """Run it on a port of the loopback interface."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    async def unchanged(request: Request) -> Response:
        return Response(status_code=304, headers={"ETag": request.headers.get("if-none-match", "")})

    app = Starlette(routes=[Route("/experiments/{name}/policy", unchanged)])
    how: dict[str, Any] = {"loop": "uvloop", "http": "httptools", "access_log": False, "log_level": "error"}
    uvicorn.run(app, port=port, **how)


@contextmanager
def bare() -> Iterator[Bare]:
    """Run it as a process of its own."""
    port = free_port()
    process = subprocess.Popen([sys.executable, "-P", "-c", _CODE, str(port)], env=os.environ)
    url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + _SECONDS
    try:
        while not _answers(url) and time.monotonic() < deadline:
            time.sleep(0.05)
        yield Bare(url, process.pid)
    finally:
        process.terminate()
        process.wait()


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/experiments/bench/policy", timeout=2).status_code == httpx.codes.NOT_MODIFIED
    except httpx.TransportError:
        return False
