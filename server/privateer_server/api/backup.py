"""The route for backups."""

from typing import Annotated

from fastapi import APIRouter, Header
from starlette.responses import Response

from privateer_server.api.admin import authorize
from privateer_server.store.sqlite import SqliteStore

_MEDIA_TYPE = "application/vnd.sqlite3"


def backup_router(store: SqliteStore, token_digest: bytes) -> APIRouter:
    """Return the route, bound to what it copies."""
    router = APIRouter(tags=["operations"])

    @router.get("/backup", response_class=Response, responses={200: {"content": {_MEDIA_TYPE: {}}}})
    def backup(authorization: Annotated[str, Header()] = "") -> Response:
        """Copy the database, for ``privateer restore``; open rounds end with the copy."""
        authorize(authorization, token_digest)
        return Response(store.backup(), media_type=_MEDIA_TYPE, headers={"Cache-Control": "no-store"})

    return router
