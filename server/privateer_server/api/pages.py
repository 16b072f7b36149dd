"""The dashboard: the page at ``/`` and the files that it is made of; and what each public page shows at a moment.

The dashboard asks this server and nothing else. It has no secret and no rights. At the private listener it has forms,
too, which send what an operator wants with the token that the operator types. At the public listener the files of these
forms are not there, so that nobody is asked for the token on a page that strangers reach.
"""

from collections.abc import Hashable
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import msgspec
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from privateer_core.errors import NotFound, Unavailable
from privateer_core.serving.http.listeners import IS_PUBLIC
from privateer_core.serving.http.page_cache import Version, common_version
from privateer_core.serving.http.problems import MethodNotAllowed, problem_response
from privateer_core.wire.envelope import MEDIA_TYPE
from privateer_server.experiments.catalog import Experiments
from privateer_server.experiments.changes import CHANGES
from privateer_server.experiments.experiment import Experiment

_OF_ONE: Final = frozenset({"policy", "answer", "state", "history", "privacy", "risk"})
KEPT: Final = frozenset(
    {
        *("/openapi.json", "/keys", "/experiments", "/experiments/{name}", "/experiments/{name}/policy/{version}"),
        *(f"/experiments/{{name}}/{page}" for page in _OF_ONE),
    }
)
"""Pages of which bytes are kept for as long as they show the same."""
_DEEPEST: Final = 5
"""Parts of ``/experiments/NAME/policy/VERSION``, with the empty one before its first slash."""
FOLDER: Final = Path(__file__).parent.parent / "dashboard"
OPERATOR: Final = "/dashboard/operator/"
"""Where the files for operators are, on the private listener alone."""
FORMS: Final = f"{OPERATOR}changes.json"
"""What the dashboard makes forms of."""
READING: Final = frozenset({"GET", "HEAD"})
_INDEX: Final = "index.html"
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".toml": "application/toml",
    ".json": "application/json",
}
_PRIVATE: Final = b' data-listener="private"'
"""What the body of the page has at the private listener."""
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


class PageVersions:
    """Says what a request would show.

    experiments: what the pages are about.
    """

    def __init__(self, experiments: Experiments) -> None:
        self._experiments = experiments

    def __call__(self, scope: Scope) -> Version | None:
        """Return the version of a page; None: nothing is kept of it."""
        path: str = scope["path"]
        if path in ("/keys", "/experiments"):
            return Version(path, tuple(map(_standing, self._experiments)))
        parts = path.split("/")
        if parts[1] == "experiments" and 2 < len(parts) <= _DEEPEST:
            return self._of_one(scope, *parts[2:])
        return common_version(scope)

    def _of_one(self, scope: Scope, name: str, page: str = "", version: str = "") -> Version | None:
        if not (page == "policy" if version else page in _OF_ONE or not page):
            return None
        # A long poll waits, and of a publication itself nothing is made.
        if page == "policy" and (b"wait" in scope["query_string"] or _asks_for_bytes(scope)):
            return None
        try:
            experiment = self._experiments.get(name)
        except (NotFound, Unavailable):  # another server may have created it, or it stands still
            return None
        return Version(scope["path"], _standing(experiment))


def _standing(experiment: Experiment) -> Hashable:
    """Everything of an experiment that changes while it runs."""
    current = experiment.current
    return (
        *(current.digest, current.received, current.taken, current.given_up, current.plan.hold, current.plan.spec),
        *(experiment.name, experiment.before, experiment.shuffler, experiment.status),
        *(frozenset(experiment.refused.items()), current.drain and current.drain.until),
    )


def _asks_for_bytes(scope: Scope) -> bool:
    asked: dict[bytes, Any] = dict(scope["headers"])
    return MEDIA_TYPE.encode() in asked.get(b"accept", b"")


class Page:
    """ASGI: one file, with its digest as entity tag.

    body, kind: what is in it, and its suffix.
    for_browsers: whether those who do not ask for HTML find no page here.
    """

    def __init__(self, body: bytes, kind: str, *, for_browsers: bool = False) -> None:
        self._body, self._type, self._for_browsers = body, _TYPES[kind], for_browsers
        self._tag = f'"{sha256(self._body).hexdigest()}"'

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        await self._answer(scope["method"], Headers(scope=scope))(scope, receive, send)

    def _answer(self, method: str, asked: Headers) -> Response:
        if self._for_browsers and "text/html" not in asked.get("accept", ""):
            remedy = "a browser gets the dashboard here; docs/answer.md lists the pages for programs"
            return problem_response(NotFound("no such page", remedy=remedy))
        if method not in READING:
            answer = problem_response(MethodNotAllowed("the page does not take this method", remedy="see Allow"))
            answer.headers["Allow"] = ", ".join(sorted(READING))
            return answer
        headers = _HEADERS | {"ETag": self._tag} | ({"Vary": "Accept"} if self._for_browsers else {})
        if self._tag in asked.get("if-none-match", ""):
            return Response(status_code=_NOT_MODIFIED, headers=headers)
        return Response(self._body, headers=headers, media_type=self._type)


class Index:
    """ASGI: the page itself, which says to its modules at which listener it is.

    path: the file.
    """

    def __init__(self, path: Path) -> None:
        body = path.read_bytes()
        self._public = Page(body, path.suffix, for_browsers=True)
        self._private = Page(body.replace(b"<body", b"<body" + _PRIVATE), path.suffix, for_browsers=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        page = self._public if IS_PUBLIC in scope else self._private
        await page(scope, receive, send)


def pages() -> dict[str, ASGIApp]:
    """Return what answers at each path of the dashboard."""
    files: dict[str, ASGIApp] = {
        f"/dashboard/{path.relative_to(FOLDER).as_posix()}": Page(path.read_bytes(), path.suffix)
        for path in sorted(FOLDER.rglob("*"))
        if path.suffix in _TYPES and path.name != _INDEX
    }
    forms = msgspec.json.encode([change.form() for change in CHANGES])
    return {"/": Index(FOLDER / _INDEX), FORMS: Page(forms, ".json"), **files}
