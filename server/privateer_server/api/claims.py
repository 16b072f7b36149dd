"""Which shuffler brings the batches of an experiment: it claims that, and the operator releases the claim."""

from typing import Annotated

from fastapi import APIRouter, Header, Request

from privateer.clock import SystemClock
from privateer.wire.batch import SIGNATURE_HEADER, check_claim
from privateer.wire.keys import TrustedKeys
from privateer_server.api.admin import authorize
from privateer_server.experiments import Experiments


def claims_router(experiments: Experiments, token_digest: bytes, shufflers: TrustedKeys) -> APIRouter:
    """Return the routes, bound to what they change."""
    router = APIRouter(prefix="/experiments/{name}/shuffler", tags=["experiments"])

    @router.post("")
    async def claim(name: str, request: Request) -> dict[str, str | None]:
        """Have the shuffler that signs this bring all batches of the experiment; the same again changes nothing."""
        signature = request.headers.get(SIGNATURE_HEADER, "")
        claimed = check_claim(name, signature, shufflers.by_id(), SystemClock().now())
        await experiments.claim(name, claimed.key_id, claimed.signed_at)
        return {"shuffler": claimed.key_id}

    @router.delete("")
    async def release(name: str, authorization: Annotated[str, Header()] = "") -> dict[str, str | None]:
        """Let another shuffler claim the experiment, since the one that did is gone."""
        authorize(authorization, token_digest)
        await experiments.release(name)
        return {"shuffler": None}

    return router
