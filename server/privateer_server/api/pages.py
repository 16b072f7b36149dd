"""The dashboard: the page at ``/`` and the files that it is made of, for browsers.

The page asks the public routes of this server and nothing else. It has no secret and no rights.
"""

from hashlib import sha256
from pathlib import Path
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from privateer.errors import NotFound
from privateer.serving.problems import MethodNotAllowed, problem_response

FOLDER: Final = Path(__file__).parent.parent / "dashboard"
READING: Final = frozenset({"GET", "HEAD"})
_INDEX: Final = "index.html"
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Nothing from other hosts, no script but the files, and no text that a browser could take for HTML."""
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
_NOT_MODIFIED: Final = 304


class Page:
    """ASGI: one file, with its digest as entity tag.

    Parameters
    ----------
    path
        The file, which is read once.
    for_browsers
        Whether those who do not ask for HTML find no page here.
    """

    def __init__(self, path: Path, *, for_browsers: bool = False) -> None:
        self._body, self._type, self._for_browsers = path.read_bytes(), _TYPES[path.suffix], for_browsers
        self._tag = f'"{sha256(self._body).hexdigest()}"'

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        await self._answer(scope["method"], Headers(scope=scope))(scope, receive, send)

    def _answer(self, method: str, asked: Headers) -> Response:
        if self._for_browsers and "text/html" not in asked.get("accept", ""):
            remedy = "a browser gets the dashboard here; docs/operations.md lists the pages for programs"
            return problem_response(NotFound("no such page", remedy=remedy))
        if method not in READING:
            answer = problem_response(MethodNotAllowed("the page does not take this method", remedy="see Allow"))
            answer.headers["Allow"] = ", ".join(sorted(READING))
            return answer
        headers = _HEADERS | {"ETag": self._tag} | ({"Vary": "Accept"} if self._for_browsers else {})
        if self._tag in asked.get("if-none-match", ""):
            return Response(status_code=_NOT_MODIFIED, headers=headers)
        return Response(self._body, headers=headers, media_type=self._type)


def pages() -> dict[str, ASGIApp]:
    """Return what answers at each path of the dashboard."""
    files: dict[str, ASGIApp] = {
        f"/dashboard/{path.name}": Page(path)
        for path in sorted(FOLDER.iterdir())
        if path.suffix in _TYPES and path.name != _INDEX
    }
    return {"/": Page(FOLDER / _INDEX, for_browsers=True), **files}
