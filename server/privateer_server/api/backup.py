"""The route for backups."""

import logging
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends
from starlette.responses import Response

from privateer_core.errors import Conflict, Unavailable
from privateer_core.serving.logs import tell
from privateer_core.serving.openapi import ADMIN_REFUSALS, refusals
from privateer_server.admin_tokens import Scope
from privateer_server.api.admin import Admins
from privateer_server.store.protocol import Store

_MEDIA_TYPE: Final = "application/vnd.sqlite3"
_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "The database", "content": {_MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}},
    **refusals(*ADMIN_REFUSALS, Conflict, Unavailable),
}
_log = logging.getLogger("privateer.admin")


def backup_router(store: Store, admins: Admins) -> APIRouter:
    """Return the route, bound to what it copies."""
    router = APIRouter(tags=["operations"])

    @router.get("/backup", response_class=Response, responses=_ANSWERS)
    def backup(who: Annotated[str, Depends(admins.may(Scope.BACKUP))]) -> Response:
        """Copy the database, for ``privateer restore``; open rounds end with the copy."""
        copy = store.backup()
        tell(_log, "backup fetched", bytes=len(copy), by=who)
        return Response(copy, media_type=_MEDIA_TYPE, headers={"Cache-Control": "no-store"})

    return router
