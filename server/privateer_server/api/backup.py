"""The route for backups."""

from typing import Annotated

from fastapi import APIRouter, Header
from starlette.responses import Response

from privateer_server.api.admin import authorize
from privateer_server.store import Store

_MEDIA_TYPE = "application/vnd.sqlite3"


def backup_router(store: Store, token_digest: bytes) -> APIRouter:
    """The route, bound to what it copies."""
    router = APIRouter(tags=["operations"])

    @router.get("/backup")
    def backup(authorization: Annotated[str, Header()] = "") -> Response:
        """A copy of the database, for ``privateer restore``; open rounds end with it."""
        authorize(authorization, token_digest)
        return Response(store.backup(), media_type=_MEDIA_TYPE, headers={"Cache-Control": "no-store"})

    return router
