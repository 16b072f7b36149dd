"""The dashboard: the page at ``/`` and its files; versions of cached pages, and OpenAPI.

The dashboard sends requests to this server only. It has no secret and no rights. At the private listener it has forms,
too, which send an operator's changes with the token that the operator types. The public listener does not serve these
forms, so that no public page asks for the token.
"""

import re
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import msgspec
from fastapi import FastAPI, Request
from starlette.responses import Response
from starlette.types import Scope

from privateer_core.answer.conclusion import PublishedAnswer
from privateer_core.answer.export import Export
from privateer_core.errors import BatchRefused, NotFound, Unavailable
from privateer_core.privacy.record import Record
from privateer_core.privacy.risk import Risks
from privateer_core.serving.admission import ServerLimits
from privateer_core.serving.http.answer import HttpAnswer, make_answer
from privateer_core.serving.http.listeners import IS_PUBLIC_KEY
from privateer_core.serving.http.openapi import (
    ENVELOPE,
    REF,
    SCHEMAS,
    SENDER_PARAMETER,
    TOKEN_PARAMETER,
    TOKEN_REFUSALS,
    UPLOAD_REFUSALS,
    complete_document,
    describe_answer,
    describe_content,
    describe_page,
    describe_refusals,
    describe_signature,
    select_public,
)
from privateer_core.serving.http.page_cache import Version, find_common_page_version
from privateer_core.serving.http.problems import MethodNotAllowed, problem_answer
from privateer_core.serving.http.report_endpoint import json_response
from privateer_core.serving.token_gate import TokenGate
from privateer_core.wire.batch import SIGNATURE_HEADER, BatchAnswer, UploadAnswer
from privateer_core.wire.publication import MEDIA_TYPE
from privateer_core.wire.token_keys import Directory
from privateer_core.wire.transparency_log import Proof
from privateer_server.api.endpoints import is_long_poll
from privateer_server.api.models import PublishedPolicy, PublishedState
from privateer_server.experiments.catalog import Experiments
from privateer_server.experiments.changes import CHANGES
from privateer_server.experiments.experiment import Experiment

_EXPERIMENT_PAGES: Final = frozenset({"policy", "answer", "state", "history", "privacy", "risk"})
CACHED_PAGES: Final = frozenset(
    {
        *("/openapi.json", "/keys", "/experiments", "/experiments/{name}", "/experiments/{name}/policy/{version}"),
        *(f"/experiments/{{name}}/{page}" for page in _EXPERIMENT_PAGES),
    }
)
"""Pages whose bytes are cached as long as their content is the same."""
_PROOF_QUERY: Final = re.compile(
    r"experiment=(?P<name>[a-z0-9-]+)&version=(?P<version>[0-9]{1,18})(&block=[0-9]{1,9})?"
)
_ENTRIES_QUERY: Final = re.compile(r"(start=([0-9]{0,12}000|0))?")
_MAX_PATH_SEGMENTS: Final = 5
"""The segments of ``/experiments/NAME/policy/VERSION``, including the empty segment before its first slash."""
DASHBOARD_FOLDER: Final = Path(__file__).parent.parent / "dashboard"
OPERATOR_PATH: Final = "/dashboard/operator/"  # the path of the files for operators, on the private listener alone
FORMS_PATH: Final = f"{OPERATOR_PATH}changes.json"  # the path of the descriptions of the dashboard's forms
READ_METHODS: Final = frozenset({"GET", "HEAD"})
_INDEX_FILE: Final = "index.html"
_MEDIA_TYPES: Final = {
    ".html": b"text/html; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".mjs": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml",
    ".toml": b"application/toml",
    ".json": b"application/json",
}
_PRIVATE_ATTRIBUTE: Final = b' data-listener="private"'  # the attribute of the page's body at the private listener
_SECURITY_POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    b"form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Nothing from other hosts, no script but the files, and no text that a browser could take for HTML."""
_HEADERS: Final = (
    (b"content-security-policy", _SECURITY_POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-cache"),
)
_NOT_MODIFIED: Final = 304
_NO_PROGRAM: Final = problem_answer(
    NotFound("no such page", remedy="a browser gets the dashboard here; docs/answer.md lists the pages for programs")
)
_WRONG_METHOD: Final = problem_answer(
    MethodNotAllowed("the page does not take this method", remedy="see Allow"),
    ((b"allow", ", ".join(sorted(READ_METHODS)).encode()),),
)


class PageVersions:
    """The versions of cacheable pages.

    is_alone: whether no other server adds publications to the log: heads and proofs are cached.
    """

    def __init__(self, experiments: Experiments, gate: TokenGate | None, *, is_alone: bool) -> None:
        self._experiments, self._gate, self._is_alone = experiments, gate, is_alone

    def __call__(self, scope: Scope) -> Version | None:
        """Return the version of the requested page; None: the page is not cached."""
        path: str = scope["path"]
        if path in ("/keys", "/experiments"):
            return Version(path, tuple(map(_page_state, self._experiments)))
        segments = path.split("/")
        if segments[1] == "experiments" and 2 < len(segments) <= _MAX_PATH_SEGMENTS:
            try:
                experiment = self._experiments.get(segments[2])
            except (NotFound, Unavailable):  # another server may have created it, or it stands still
                return find_common_page_version(scope)
            return self._experiment_page_version(scope, experiment, *segments[3:])
        return (self._is_alone and self._log_page_version(scope)) or find_common_page_version(scope)

    def _experiment_page_version(
        self, scope: Scope, experiment: Experiment, page: str = "", version: str = ""
    ) -> Version | None:
        """Return the version of a page of a loaded experiment; None for a long poll, which waits."""
        if page == "policy" and not version and is_long_poll(scope, experiment.current.digest):
            return None
        if page == "token-keys" and self._gate:
            return Version(scope["path"], self._gate.find_keys(experiment.name))
        # A publication itself is not rendered.
        is_binary = page == "policy" and MEDIA_TYPE.encode() in dict(scope["headers"]).get(b"accept", b"")
        if is_binary or not (page == "policy" if version else page in _EXPERIMENT_PAGES or not page):
            return find_common_page_version(scope)
        return Version(scope["path"], _page_state(experiment))

    def _log_page_version(self, scope: Scope) -> Version | None:
        """Return the version of the head, a block of entries, or the proof of a current publication."""
        path, query = scope["path"], scope["query_string"].decode("latin-1")
        if proof := path == "/log/proof" and _PROOF_QUERY.fullmatch(query):
            experiment = self._experiments.loaded.get(proof["name"])
            if experiment is None or experiment.current.round.version != int(proof["version"]):
                return None
        elif path == "/log/key":
            return Version(path, None)
        elif path == "/log/head":
            query = ""  # it has no parameters
        elif not (path == "/log/entries" and _ENTRIES_QUERY.fullmatch(query)):
            return None
        return Version((path, query), tuple(experiment.current.digest for experiment in self._experiments))


def _page_state(experiment: Experiment) -> tuple[object, ...]:
    """Return all facts of an experiment that change while it runs."""
    current = experiment.current
    return (
        *(current.digest, current.received, current.state, current.plan.hold, current.plan.spec),
        *(experiment.name, experiment.n_earlier, experiment.shuffler, experiment.status),
        *(frozenset(experiment.refused.items()), current.drain and current.drain.until),
    )


class Page:
    """A file with its digest as entity tag, for requests that accept HTML if it is for browsers."""

    def __init__(self, body: bytes, kind: str, *, for_browsers: bool = False) -> None:
        self._for_browsers = for_browsers
        self._tag = b'"%s"' % sha256(body).hexdigest().encode()
        headers = (*_HEADERS, (b"etag", self._tag), *([(b"vary", b"Accept")] if for_browsers else []))
        self._page = make_answer(200, body, _MEDIA_TYPES[kind], headers)
        self._unchanged = HttpAnswer(_NOT_MODIFIED, headers)

    def find_answer(self, scope: Scope) -> HttpAnswer:
        """Return the file, that it has not changed, or a refusal of the method or the accepted types."""
        request_headers = dict(scope["headers"])
        if self._for_browsers and b"text/html" not in request_headers.get(b"accept", b""):
            return _NO_PROGRAM
        if scope["method"] not in READ_METHODS:
            return _WRONG_METHOD
        if self._tag in request_headers.get(b"if-none-match", b""):
            return self._unchanged
        return self._page if scope["method"] == "GET" else self._page._replace(body=b"")


class _Index:
    """The dashboard's page, marked for the private listener."""

    def __init__(self, path: Path) -> None:
        body = path.read_bytes()
        self._public = Page(body, path.suffix, for_browsers=True)
        self._private = Page(body.replace(b"<body", b"<body" + _PRIVATE_ATTRIBUTE), path.suffix, for_browsers=True)

    def find_answer(self, scope: Scope) -> HttpAnswer:
        """Return the page of the listener that the request came to."""
        return (self._public if IS_PUBLIC_KEY in scope else self._private).find_answer(scope)


def build_dashboard() -> dict[str, Page | _Index]:
    """Return the page of each path of the dashboard."""
    files: dict[str, Page | _Index] = {
        f"/dashboard/{path.relative_to(DASHBOARD_FOLDER).as_posix()}": Page(path.read_bytes(), path.suffix)
        for path in sorted(DASHBOARD_FOLDER.rglob("*"))
        if path.suffix in _MEDIA_TYPES and path.name != _INDEX_FILE
    }
    forms = msgspec.json.encode([change.build_form() for change in CHANGES])
    return {"/": _Index(DASHBOARD_FOLDER / _INDEX_FILE), FORMS_PATH: Page(forms, ".json"), **files}


_DESCRIBED_STRUCTS: Final = (
    *(Record, Risks, PublishedPolicy, PublishedState, PublishedAnswer, Export),
    *(UploadAnswer, BatchAnswer, Proof, Directory, ServerLimits),
)
CLAIM_PARAMETER: Final = describe_signature(
    SIGNATURE_HEADER, "The shuffler's signature of the experiment's name.", required=True
)
_BATCH_PARAMETER: Final = describe_signature(SIGNATURE_HEADER, "The shuffler's signature of the body.", required=True)
_REPORTS_PAGE: Final = describe_page(
    "Take sealed reports: one person's, or a trusted sender's.",
    "reports",
    describe_answer("UploadAnswer", "Some reports count.", 202),
    describe_refusals(*UPLOAD_REFUSALS, *TOKEN_REFUSALS),
    tags=["reports"],
    parameters=[SENDER_PARAMETER, TOKEN_PARAMETER],
    requestBody=ENVELOPE,
)
_BATCHES_PAGE: Final = describe_page(
    "Take a batch that a trusted shuffler signed, on the private listener.",
    "batches",
    describe_answer("BatchAnswer", "The batch was taken before.")
    | describe_answer("BatchAnswer", "The batch is taken.", 202),
    describe_refusals(*UPLOAD_REFUSALS, BatchRefused),
    tags=["reports"],
    parameters=[_BATCH_PARAMETER],
    requestBody=ENVELOPE,
)
_BYTES: Final = {"type": "string", "format": "binary"}
_OPENINGS_PAGE: Final = describe_page(
    "Check the reports of a batch in shares that a trusted shuffler signed, on the private listener.",
    "openings",
    describe_content("A verifier share for each report.", MEDIA_TYPE, _BYTES),
    describe_refusals(*UPLOAD_REFUSALS, BatchRefused),
    tags=["reports"],
    parameters=[_BATCH_PARAMETER],
    requestBody=ENVELOPE,
)
_CLOSINGS_PAGE: Final = describe_page(
    "Take the helper's decisions and its share of a sum, on the private listener.",
    "closings",
    describe_answer("BatchAnswer", "The batch was taken before.")
    | describe_answer("BatchAnswer", "The batch is taken.", 202),
    describe_refusals(*UPLOAD_REFUSALS, BatchRefused),
    tags=["reports"],
    parameters=[_BATCH_PARAMETER],
    requestBody={"required": True, "content": {MEDIA_TYPE: {"schema": _BYTES}}},
)
_SHUFFLER_PAGES: Final = {
    "/batches": {"post": _BATCHES_PAGE},
    "/openings": {"post": _OPENINGS_PAGE},
    "/closings": {"post": _CLOSINGS_PAGE},
}


def extend_openapi(app: FastAPI, is_public: Callable[[str, str], bool]) -> None:
    """Complete the application's OpenAPI document, and add its route, which tells the public what is public."""
    default_openapi = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = default_openapi()
            document["paths"] |= {"/reports": {"post": _REPORTS_PAGE}, **_SHUFFLER_PAGES}
            _remove_framework_refusals(document)
            _add_entity_tags(document)
            _, schemas = msgspec.json.schema_components(_DESCRIBED_STRUCTS, ref_template=REF)
            document["components"]["schemas"] |= schemas | SCHEMAS
            app.openapi_schema = complete_document(document)
        return app.openapi_schema or {}

    app.openapi = openapi  # type: ignore[method-assign]

    @app.get("/openapi.json", include_in_schema=False)
    def show(request: Request) -> Response:
        document = openapi()
        return json_response(select_public(document, is_public) if IS_PUBLIC_KEY in request.scope else document, 200)


def _add_entity_tags(document: dict[str, Any]) -> None:
    """Add entity tags to the responses of cached pages in an OpenAPI document."""
    for path in CACHED_PAGES & document["paths"].keys():
        responses = document["paths"][path]["get"]["responses"]
        responses["200"].setdefault("headers", {}).setdefault("ETag", {"schema": {"type": "string"}})
        responses.setdefault("304", {"description": "The page has one of the entity tags of If-None-Match"})


def _remove_framework_refusals(document: dict[str, Any]) -> None:
    """Remove the framework's assumed refusals from an OpenAPI document: every route declares its own refusals."""
    for operations in document["paths"].values():
        for operation in operations.values():
            refused = operation["responses"].get("422", {"content": {}})
            if "application/json" in refused["content"]:
                del operation["responses"]["422"]
