"""Which shuffler brings the batches of an experiment: it claims that, and the operator releases the claim."""

from typing import Annotated, Final

from fastapi import APIRouter, Depends, Request

from privateer_core.clock import SystemClock
from privateer_core.errors import BatchRefused, Conflict, Deleted, NotFound, Unavailable, WrongEndpoint
from privateer_core.serving.openapi import ADMIN_REFUSALS, refusals
from privateer_core.wire.batch import SIGNATURE_HEADER, check_claim
from privateer_core.wire.keys import TrustedKeys
from privateer_server.admin_tokens import Scope
from privateer_server.api.admin import Admins
from privateer_server.api.description import CLAIM
from privateer_server.experiments import Experiments
from privateer_server.store import ShufflerKey

_CLAIMING: Final = refusals(BatchRefused, NotFound, Deleted, WrongEndpoint, Conflict, Unavailable)


def claims_router(experiments: Experiments, admins: Admins, shufflers: TrustedKeys) -> APIRouter:
    """Return the routes, bound to what they change."""
    router = APIRouter(prefix="/experiments/{name}/shuffler", tags=["experiments"])

    @router.post("", responses=_CLAIMING, openapi_extra={"parameters": [CLAIM]})
    async def claim(name: str, request: Request) -> dict[str, str | None]:
        """Have the shuffler that signs this bring all batches of the experiment; the same again changes nothing."""
        signature = request.headers.get(SIGNATURE_HEADER, "")
        claimed = check_claim(name, signature, shufflers.by_id(), SystemClock().now())
        closer = ShufflerKey(claimed.key_id, shufflers.organisation(claimed.key_id))
        await experiments.claim(name, closer, claimed.signed_at)
        return {"shuffler": closer.shuffler}

    @router.delete("", responses=refusals(*ADMIN_REFUSALS, NotFound, Deleted, Unavailable))
    async def release(name: str, who: Annotated[str, Depends(admins.may(Scope.CHANGE))]) -> dict[str, str | None]:
        """Let another shuffler claim the experiment, since the one that did is gone."""
        await experiments.release(name, who)
        return {"shuffler": None}

    return router
