"""The route for backups."""

from typing import Any, Final

from fastapi import APIRouter
from starlette.responses import Response

from privateer.errors import Conflict, Unauthorized
from privateer.serving.openapi import refusals
from privateer_server.api.admin import Token, authorize
from privateer_server.store.protocol import Store

_MEDIA_TYPE: Final = "application/vnd.sqlite3"
_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "The database", "content": {_MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}},
    **refusals(Unauthorized, Conflict),
}


def backup_router(store: Store, token_digest: bytes) -> APIRouter:
    """Return the route, bound to what it copies."""
    router = APIRouter(tags=["operations"])

    @router.get("/backup", response_class=Response, responses=_ANSWERS)
    def backup(token: Token = None) -> Response:
        """Copy the database, for ``privateer restore``; open rounds end with the copy."""
        authorize(token, token_digest)
        return Response(store.backup(), media_type=_MEDIA_TYPE, headers={"Cache-Control": "no-store"})

    return router
