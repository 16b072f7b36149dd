"""The issuer as a web service, and its OpenAPI document."""

import asyncio
import logging
import os
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Scope

from privateer_core.clock import Clock, SystemClock
from privateer_core.errors import (
    AttestationRefused,
    NotFound,
    TokenRequestRefused,
    TokensExhausted,
    TooLarge,
    Unavailable,
)
from privateer_core.serving.http.answer import TimingMiddleware
from privateer_core.serving.http.bodies import Budget
from privateer_core.serving.http.listeners import IS_PUBLIC_KEY, HostGuard, OriginMiddleware, PublicPages
from privateer_core.serving.http.openapi import (
    NAME_PARAMETER,
    REF,
    ServiceStatus,
    describe_content,
    describe_page,
    describe_refusals,
    describe_service,
    select_public,
)
from privateer_core.serving.http.page_cache import PageCache, Version, find_common_page_version
from privateer_core.serving.http.problems import install_problem_handlers
from privateer_core.serving.http.report_endpoint import json_response
from privateer_core.serving.logs import BUILD
from privateer_core.serving.process import Background, Listener, ServiceListeners, listen, prepare_process, run
from privateer_core.serving.settings import ServiceParser
from privateer_core.serving.store.sqlite import is_writable
from privateer_core.serving.write_health import WriteHealth, free_bytes
from privateer_core.wire.attestation import HEADER
from privateer_core.wire.token import REQUEST_SIZE, REQUEST_TYPE, RESPONSE_TYPE, SIGNATURE_SIZE
from privateer_core.wire.token_keys import MEDIA_TYPE, Directory
from privateer_issuer.metrics import IssuerMetrics
from privateer_issuer.settings import IssuerSettings, read_settings
from privateer_issuer.signing_keys import KeyRing
from privateer_issuer.store import IssuerStore
from privateer_issuer.token_requests import DeviceQuotas, TokenRequests, load_attestation

_OK: Final = 200
_BODY_BUDGET_BYTES: Final = 4 << 20
_ROTATE_SECONDS: Final = 600.0
_log = logging.getLogger(__name__)


def _binary_schema(size: int, description: str) -> dict[str, Any]:
    return {"type": "string", "format": "binary", "minLength": size, "maxLength": size, "description": description}


_ATTESTATION: Final = {
    "name": HEADER,
    "in": "header",
    "required": False,
    "description": "Says which device asks, for the plug that the operator chose (docs/tokens.md).",
    "schema": {"type": "string"},
}
_REQUEST: Final = {
    "required": True,
    "content": {REQUEST_TYPE: {"schema": _binary_schema(REQUEST_SIZE, "A TokenRequest of RFC 9578, 6.1.")}},
}
_DESCRIPTION: Final = "It signs upload tokens blindly. /version and /metrics are on the private listener alone."
_TOKEN_REFUSALS: Final = (NotFound, TokenRequestRefused, AttestationRefused, TokensExhausted, TooLarge, Unavailable)


def build_openapi_document() -> dict[str, Any]:
    """Return the OpenAPI document."""
    response = _binary_schema(SIGNATURE_SIZE, "A TokenResponse of RFC 9578, 6.2.")
    success = describe_content("The blinded token is signed.", RESPONSE_TYPE, response)
    failures = describe_refusals(*_TOKEN_REFUSALS)
    request_parts = {"parameters": [NAME_PARAMETER, _ATTESTATION], "requestBody": _REQUEST}
    sign = describe_page("Sign a blinded token.", "tokens", success, failures, **request_parts)
    keys = describe_content("All keys.", MEDIA_TYPE, {"$ref": REF.format(name="Directory")})
    show = describe_page("Show the public keys of all experiments.", "keys", keys, describe_refusals())
    paths = {"/experiments/{name}/tokens": {"post": sign}, "/token-keys": {"get": show}}
    return describe_service("Privateer issuer", _DESCRIPTION, "Say whether tokens can be issued.", paths, (Directory,))


class IssuerPages:
    """Handlers of all pages but the one for tokens."""

    def __init__(self, keys: KeyRing, writes: WriteHealth, background: Background, metrics: IssuerMetrics) -> None:
        self._keys, self._writes, self._background, self._metrics = keys, writes, background, metrics

    async def keys(self, _: Request) -> Response:
        """Return the public keys."""
        return Response(self._keys.directory, media_type=MEDIA_TYPE)

    async def healthz(self, _: Request) -> Response:
        """Respond that the process runs."""
        return json_response(ServiceStatus("ok"), _OK)

    async def readyz(self, _: Request) -> Response:
        """Respond whether tokens can be counted and signed."""
        if self._background.failed or not await self._writes.check():
            raise Unavailable("the issuer cannot count tokens", remedy="check its disk and its log")
        return json_response(ServiceStatus("ready"), _OK)

    async def version(self, _: Request) -> Response:
        """Return version and commit of the build."""
        return json_response(BUILD, _OK)

    async def metrics(self, _: Request) -> Response:
        """Return the metrics for Prometheus."""
        return Response(self._metrics.page(), media_type=CONTENT_TYPE_LATEST)

    async def openapi(self, request: Request) -> Response:
        """Return the OpenAPI document of this listener's pages."""
        full = build_openapi_document()
        return json_response(select_public(full, _is_public) if IS_PUBLIC_KEY in request.scope else full, _OK)


def create_app(settings: IssuerSettings, clock: Clock | None = None) -> TimingMiddleware:
    """Create the issuer's application, which locks its data folder until its lifespan ends."""
    clock = clock or SystemClock()
    attestation_plug = load_attestation(settings.attestation_verifier, settings.environment)
    settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
    settings.data.chmod(0o700)
    store = IssuerStore(settings.data)
    try:
        experiments, keys_file = settings.experiments, settings.public_keys_file
        keys = KeyRing(store, experiments, settings.key_days, settings.name, keys_file, clock)
    except (sqlite3.Error, OSError):
        store.close()
        raise
    writes = WriteHealth(partial(asyncio.to_thread, is_writable, settings.data), _log, clock)
    quotas, metrics, background = DeviceQuotas(store, settings.tokens_per_device, writes), IssuerMetrics(), Background()
    metrics.watch_keys(lambda: keys.newest_keys)
    metrics.watch("store_up", "1 as long as tokens can be counted", lambda: writes.is_writing and not background.failed)
    metrics.watch("time_seconds", "The time of day here, in seconds since 1970", clock.now)
    metrics.watch("disk_free_bytes", "Free bytes of the disk with the data", partial(free_bytes, settings.data))
    pages = IssuerPages(keys, writes, background, metrics)
    token_requests = TokenRequests(keys, quotas, attestation_plug, metrics, Budget(_BODY_BUDGET_BYTES), clock)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        background.start(_rotate_keys(keys))
        background.start(writes.run())
        try:
            yield
        finally:
            await background.stop()
            await quotas.close()
            store.close()

    app = Starlette(
        routes=[
            Route("/experiments/{name}/tokens", token_requests.sign, methods=["POST"]),
            Route("/token-keys", pages.keys),
            Route("/openapi.json", pages.openapi),
            Route("/healthz", pages.healthz),
            Route("/readyz", pages.readyz),
            Route("/version", pages.version),
            Route("/metrics", pages.metrics),
        ],
        lifespan=lifespan,
    )
    install_problem_handlers(app, "issuer")
    app.router.redirect_slashes = False
    return TimingMiddleware(PageCache(app, partial(_page_version, keys)), _page_template, metrics.answer)


def _page_version(keys: KeyRing, scope: Scope) -> Version | None:
    return Version(scope["path"], keys.directory) if scope["path"] == "/token-keys" else find_common_page_version(scope)


async def _rotate_keys(keys: KeyRing) -> None:
    """Rotate due keys periodically, until the task is cancelled."""
    while True:
        await asyncio.sleep(_ROTATE_SECONDS)
        try:
            keys.rotate()
        except (sqlite3.Error, OSError):
            _log.error("the disk does not take new keys; the issuer tries again")


def _page_template(scope: Scope) -> str:
    """Return the route template of a request, or "" for an unknown path."""
    path = str(scope["path"])
    parts = path.split("/")
    if len(parts) == 4 and parts[1] == "experiments" and parts[3] == "tokens":
        return "/experiments/{name}/tokens"
    return path if path in ("/token-keys", "/healthz", "/readyz", "/metrics", "/version", "/openapi.json") else ""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the issuer with the settings of the environment; print one line and exit with code 2 if it cannot start."""
    ServiceParser("privateer-issuer", "Gives out tokens that admit one report each.").parse_args(arguments)
    prepare_process("privateer_issuer")
    run("privateer-issuer", _open_listeners)


def _open_listeners() -> ServiceListeners:
    """Create the application by environment variables, with its public and its private listener."""
    settings = read_settings(os.environ)
    addresses = (settings.host, settings.port), (settings.admin_host, settings.admin_port)
    with listen(*addresses) as (public, private):
        app = create_app(settings)
        return ServiceListeners(
            Listener(OriginMiddleware(PublicPages(app, _is_public), settings.cors_origins), public),
            Listener(HostGuard(app, (settings.admin_host, *settings.admin_allowed_hosts)), private),
            str(settings.data),
        )


def _is_public(_: str, path: str) -> bool:
    return path not in ("/metrics", "/version")
