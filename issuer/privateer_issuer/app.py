"""The issuer as a web service, and its OpenAPI document."""

import asyncio
import logging
import os
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Scope

from privateer_core.clock import Clock, SystemClock
from privateer_core.errors import (
    AttestationRefused,
    NotFound,
    TokenRequestRefused,
    TokensExhausted,
    TooLarge,
    Unavailable,
)
from privateer_core.serving.body_budget import Budget
from privateer_core.serving.http.listeners import IS_PUBLIC, Hosts, Origins, PublicPages
from privateer_core.serving.http.openapi import REF, SCHEMAS, answers, public_part, refusals
from privateer_core.serving.http.page_cache import PageCache, common_version
from privateer_core.serving.http.problems import answer_problems
from privateer_core.serving.http.report_endpoint import answer
from privateer_core.serving.http.timing import Timed
from privateer_core.serving.logs import BUILD, Build
from privateer_core.serving.process import (
    Background,
    Listener,
    ServiceListeners,
    listen,
    prepare_process,
    run,
)
from privateer_core.serving.settings import ServiceParser
from privateer_core.serving.store.sqlite import is_writable
from privateer_core.serving.write_health import WriteHealth, free_bytes
from privateer_core.wire.attestation import HEADER
from privateer_core.wire.token import REQUEST_SIZE, REQUEST_TYPE, RESPONSE_TYPE, SIGNATURE_SIZE
from privateer_core.wire.token_keys import MEDIA_TYPE, Directory
from privateer_issuer.attestation import attestation
from privateer_issuer.metrics import IssuerMetrics
from privateer_issuer.settings import IssuerSettings, read_settings
from privateer_issuer.signing_keys import IssuerKeys
from privateer_issuer.store import IssuerStore
from privateer_issuer.token_requests import TokenRequests, TokenShares

_OK: Final = 200
_BUDGET: Final = 4 << 20
_ROTATE_SECONDS: Final = 600.0
_log = logging.getLogger(__name__)


class IssuerStatus(msgspec.Struct, frozen=True):
    """How the service is."""

    status: str


_Answers = dict[int | str, dict[str, Any]]


def _binary(media: str, size: int, what: str) -> dict[str, Any]:
    schema = {"type": "string", "format": "binary", "minLength": size, "maxLength": size, "description": what}
    return {media: {"schema": schema}}


_NAME: Final = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
_ATTESTATION: Final = {
    "name": HEADER,
    "in": "header",
    "required": False,
    "description": "Says which device asks, for the plug that the operator chose (docs/tokens.md).",
    "schema": {"type": "string"},
}
_REQUEST: Final = {"required": True, "content": _binary(REQUEST_TYPE, REQUEST_SIZE, "A TokenRequest of RFC 9578, 6.1.")}
_SIGNED: Final[_Answers] = {
    200: {
        "description": "The blinded token is signed.",
        "content": _binary(RESPONSE_TYPE, SIGNATURE_SIZE, "A TokenResponse of RFC 9578, 6.2."),
    }
}
_KEYS: Final[_Answers] = {
    200: {"description": "All keys.", "content": {MEDIA_TYPE: {"schema": {"$ref": REF.format(name="Directory")}}}}
}
_METRICS: Final[_Answers] = {
    200: {"description": "Counts.", "content": {CONTENT_TYPE_LATEST: {"schema": {"type": "string"}}}}
}
_TOKEN_REFUSALS: Final = (NotFound, TokenRequestRefused, AttestationRefused, TokensExhausted, TooLarge, Unavailable)


def _page(summary: str, operation: str, good: _Answers, bad: _Answers, **more: Any) -> dict[str, Any]:
    responses = {str(status): answer for status, answer in (good | bad).items()}
    return {"summary": summary, "operationId": operation, **more, "responses": responses}


def document() -> dict[str, Any]:
    """Return the OpenAPI document."""
    _, schemas = msgspec.json.schema_components((IssuerStatus, Directory, Build), ref_template=REF)
    alive, signs = answers("IssuerStatus", "It is so."), refusals(*_TOKEN_REFUSALS)
    asks = {"parameters": [_NAME, _ATTESTATION], "requestBody": _REQUEST}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Privateer issuer",
            "description": "It signs upload tokens blindly. /version and /metrics are on the private listener alone.",
            "version": BUILD.version,
        },
        "paths": {
            "/experiments/{name}/tokens": {"post": _page("Sign a blinded token.", "tokens", _SIGNED, signs, **asks)},
            "/token-keys": {"get": _page("Show the public keys of all experiments.", "keys", _KEYS, refusals())},
            "/healthz": {"get": _page("Say that the process answers.", "healthz", alive, refusals())},
            "/readyz": {"get": _page("Say whether tokens can be issued.", "readyz", alive, refusals(Unavailable))},
            "/version": {"get": _page("Say which build this is.", "version", answers("Build", "It."), refusals())},
            "/metrics": {"get": _page("Show counts for Prometheus.", "metrics", _METRICS, refusals())},
        },
        "components": {"schemas": schemas | SCHEMAS},
    }


class IssuerPages:
    """The pages that are not for tokens."""

    def __init__(self, keys: IssuerKeys, writes: WriteHealth, background: Background, metrics: IssuerMetrics) -> None:
        self._keys, self._writes, self._background, self._metrics = keys, writes, background, metrics

    async def keys(self, _: Request) -> Response:
        """Show the public keys."""
        return Response(self._keys.directory.encode(), media_type=MEDIA_TYPE)

    async def healthz(self, _: Request) -> Response:
        """Answer, since the process runs."""
        return answer(IssuerStatus("ok"), _OK)

    async def readyz(self, _: Request) -> Response:
        """Answer whether tokens can be counted and signed."""
        if self._background.failed or not await self._writes.check():
            raise Unavailable("the issuer cannot count tokens", remedy="check its disk and its log")
        return answer(IssuerStatus("ready"), _OK)

    async def version(self, _: Request) -> Response:
        """Show which build this is."""
        return answer(BUILD, _OK)

    async def metrics(self, _: Request) -> Response:
        """Show counts for Prometheus."""
        return Response(self._metrics.page(), media_type=CONTENT_TYPE_LATEST)

    async def openapi(self, request: Request) -> Response:
        """Describe all pages that are here."""
        whole = document()
        return answer(public_part(whole, _is_public) if IS_PUBLIC in request.scope else whole, _OK)


def create_app(settings: IssuerSettings, clock: Clock | None = None) -> ASGIApp:
    """Make the issuer's application, which holds its data folder until its lifespan ends."""
    clock = clock or SystemClock()
    plug = attestation(settings.attestation, settings.environment)
    settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
    settings.data.chmod(0o700)
    store = IssuerStore(settings.data)
    try:
        keys = IssuerKeys(
            store, settings.experiments, settings.key_days, settings.name, settings.public_keys_file, clock
        )
    except (sqlite3.Error, OSError):
        store.close()
        raise
    writes = WriteHealth(partial(asyncio.to_thread, is_writable, settings.data), _log, clock)
    shares, metrics, background = TokenShares(store, settings.tokens_per_device, writes), IssuerMetrics(), Background()
    metrics.watch_keys(lambda: keys.newest)
    metrics.watch("counting", "1 as long as tokens can be counted", lambda: writes.is_writing and not background.failed)
    metrics.watch("time_seconds", "The time of day here, in seconds since 1970", clock.now)
    metrics.watch("disk_free_bytes", "Free bytes of the disk with the data", partial(free_bytes, settings.data))
    pages = IssuerPages(keys, writes, background, metrics)
    issuing = TokenRequests(keys, shares, plug, metrics, Budget(_BUDGET), clock)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        background.start(_rotating(keys))
        background.start(writes.run())
        try:
            yield
        finally:
            await background.stop()
            await shares.close()
            store.close()

    app = Starlette(
        routes=[
            Route("/experiments/{name}/tokens", issuing.sign, methods=["POST"]),
            Route("/token-keys", pages.keys),
            Route("/openapi.json", pages.openapi),
            Route("/healthz", pages.healthz),
            Route("/readyz", pages.readyz),
            Route("/version", pages.version),
            Route("/metrics", pages.metrics),
        ],
        lifespan=lifespan,
    )
    answer_problems(app, "issuer")
    app.router.redirect_slashes = False
    return Timed(PageCache(app, common_version), _route, metrics.answer)


async def _rotating(keys: IssuerKeys) -> None:
    """Look now and then whether a key is due, until the task is cancelled."""
    while True:
        await asyncio.sleep(_ROTATE_SECONDS)
        try:
            keys.rotate()
        except (sqlite3.Error, OSError):
            _log.error("the disk does not take new keys; the issuer tries again")


def _route(scope: Scope) -> str:
    """Return the template of a page."""
    path = str(scope["path"])
    parts = path.split("/")
    if len(parts) == 4 and parts[1] == "experiments" and parts[3] == "tokens":
        return "/experiments/{name}/tokens"
    return path if path in ("/token-keys", "/healthz", "/readyz", "/metrics", "/version", "/openapi.json") else ""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the issuer with the settings of the environment; print one line and exit with code 2 if it cannot start."""
    ServiceParser("privateer-issuer", "Gives out tokens that admit one report each.").parse_args(arguments)
    prepare_process("privateer_issuer")
    run("privateer-issuer", _start)


def _start() -> ServiceListeners:
    settings = read_settings(os.environ)
    addresses = (settings.host, settings.port), (settings.admin_host, settings.admin_port)
    with listen(*addresses) as (public, private):
        app = create_app(settings)
        return ServiceListeners(
            Listener(Origins(PublicPages(app, _is_public), settings.origins), public),
            Listener(Hosts(app, (settings.admin_host, *settings.admin_names)), private),
            str(settings.data),
        )


def _is_public(_: str, path: str) -> bool:
    return path not in ("/metrics", "/version")
