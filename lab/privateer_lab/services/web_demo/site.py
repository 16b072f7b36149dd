"""The page of the demo, its modules and the SDK for JavaScript, for browsers of this machine."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Final

from privateer_core.errors import SpecError

_PAGE: Final = Path(__file__).parent / "page"
_SDK: Final = Path(__file__).parents[4] / "sdk" / "js" / "src"
"""Where a clone has the SDK."""
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
}


@dataclass(frozen=True)
class Told:
    """What the page needs to know.

    Attributes
    ----------
    sdk
        Folder of the SDK.
    server, shuffler
        Addresses of the services.
    experiment
        Its name.
    """

    sdk: Path
    server: str
    shuffler: str
    experiment: str

    @property
    def headers(self) -> dict[str, str]:
        """Headers of every answer: nothing from other hosts, no script but the files, and no text taken for HTML."""
        policy = (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
            f"connect-src 'self' {self.server} {self.shuffler}; base-uri 'none'; form-action 'none'; "
            "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
        )
        return {
            "Content-Security-Policy": policy,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cache-Control": "no-cache",
        }

    def files(self) -> dict[str, tuple[str, bytes]]:
        """Return the type and the content of each path."""
        told = {"server": self.server, "shuffler": self.shuffler, "experiment": self.experiment}
        found = {"/told.json": (_TYPES[".json"], json.dumps(told).encode())}
        for start, folder in (("", _PAGE), ("/sdk", self.sdk)):
            for path in folder.rglob("*"):
                if path.suffix in _TYPES:
                    found[f"{start}/{path.relative_to(folder).as_posix()}"] = (_TYPES[path.suffix], path.read_bytes())
        return found | {"/": found["/index.html"]}


def sdk_folder() -> Path:
    """Return the folder of the SDK's modules.

    Raises
    ------
    SpecError
        If it is not beside this installation.
    """
    if not (_SDK / "index.js").is_file():
        remedy = "clone the repository, and run make demo there once"
        raise SpecError("the SDK for JavaScript is in sdk/js of the repository, not here", field="--web", remedy=remedy)
    return _SDK


@contextmanager
def serving(told: Told, port: int) -> Iterator[None]:
    """Answer browsers at a port of the loopback interface."""
    files, headers = told.files(), told.headers

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            """Answer with a file."""
            kind, body = files.get(self.path, ("text/plain; charset=utf-8", b"no such page"))
            self.send_response(HTTPStatus.OK if self.path in files else HTTPStatus.NOT_FOUND)
            for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Write no log: it would say who visits when."""

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        server.daemon_threads = True
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
