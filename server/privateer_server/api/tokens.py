"""The token keys that the server knows: devices compare them with the shuffler's, so that none gets its own."""

from typing import Any, Final

from fastapi import APIRouter
from starlette.responses import Response

from privateer_core.errors import NotFound
from privateer_core.serving.openapi import REF, refusals
from privateer_core.serving.tokens import TokenGate
from privateer_core.wire.token_keys import MEDIA_TYPE

_KEYS: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "The issuer's name, and the keys of this experiment.",
        "content": {MEDIA_TYPE: {"schema": {"$ref": REF.format(name="Directory")}}},
    },
    **refusals(NotFound),
}


def tokens_router(gate: TokenGate | None) -> APIRouter:
    """Return the route, bound to what knows the keys."""
    router = APIRouter(tags=["experiments"])

    @router.get("/experiments/{name}/token-keys", response_class=Response, responses=_KEYS)
    async def token_keys(name: str) -> Response:
        """Show the token keys of an experiment, which are the same for everybody."""
        if gate is None:
            raise NotFound("no upload tokens are taken here", remedy="send reports without")
        return Response(gate.directory(name).encode(), media_type=MEDIA_TYPE)

    return router
