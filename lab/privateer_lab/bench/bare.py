"""A bare Starlette application that answers 304: the yardstick for policies that devices have already."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import httpx

from privateer_lab.services.processes import free_port

_SECONDS: Final = 30.0
_CODE: Final = "import sys; from privateer_lab.bench.bare import serve; serve(int(sys.argv[1]))"


class Bare(NamedTuple):
    """Where it listens, and its process."""

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
