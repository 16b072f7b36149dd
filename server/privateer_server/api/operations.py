"""Routes for operators: health, readiness, metrics, keys."""

import logging
from typing import Final

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import PlainTextResponse, Response

from privateer_core.errors import Unavailable
from privateer_core.serving.logs import trace
from privateer_core.serving.openapi import refusals
from privateer_server.api.models import PublicKey
from privateer_server.api.views import public_key
from privateer_server.experiments import Experiments
from privateer_server.gauges import Gauges
from privateer_server.intake import Intake
from privateer_server.metrics import Metrics
from privateer_server.store.protocol import Store

_log = logging.getLogger("privateer.server")
_RESTART: Final = "see the server's log"


def operations_router(
    intake: Intake, experiments: Experiments, store: Store, metrics: Metrics, gauges: Gauges
) -> APIRouter:
    """Return the routes, bound to what they look at."""
    router, writes = APIRouter(tags=["operations"]), _Writes(store)

    @router.get("/healthz")
    async def health() -> dict[str, str]:
        """Say that the process answers."""
        return {"status": "ok"}

    @router.get("/readyz", responses=refusals(Unavailable))
    def ready() -> dict[str, str]:
        """Say whether reports can be counted and stored."""
        if not intake.running:
            raise Unavailable("reports are not being counted", remedy=_RESTART)
        writes.check()
        return {"status": "ready"}

    @router.get("/metrics", response_class=PlainTextResponse)
    async def show_metrics() -> Response:
        """Show the counters in Prometheus' text format."""
        gauges.refresh()
        return Response(metrics.text(), media_type=CONTENT_TYPE_LATEST)

    @router.get("/keys", responses=refusals(Unavailable))
    async def keys() -> dict[str, list[PublicKey]]:
        """List the public keys to which reports of open rounds are sealed (X25519, hex)."""
        rounds = [experiment.current.round for experiment in experiments]
        return {"keys": [public_key(facts) for facts in rounds if facts.batch]}

    return router


class _Writes:
    """Whether the store writes; the log says when that changes, however often somebody asks."""

    def __init__(self, store: Store) -> None:
        self._store, self._is_failing = store, False

    def check(self) -> None:
        """Write a row.

        Raises
        ------
        Unavailable
            If the store does not take it.
        """
        try:
            self._store.check()
        except Exception as error:
            if not self._is_failing:
                _log.error("the store does not write: make room on its disk, or see to it (%s)", trace(error))
            self._is_failing = True
            raise Unavailable("the store does not write", remedy=_RESTART) from None
        if self._is_failing:
            _log.warning("the store writes again")
        self._is_failing = False
