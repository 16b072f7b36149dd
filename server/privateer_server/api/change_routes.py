"""Routes of changes to an experiment: those of operators, and a shuffler's claim to bring its batches."""

from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Depends, Request, Response
from starlette.concurrency import run_in_threadpool

from privateer_core.algorithms import parse_spec
from privateer_core.clock import SystemClock
from privateer_core.errors import (
    BatchRefused,
    Conflict,
    Deleted,
    NotFound,
    ParameterInvalid,
    SpecError,
    TooLarge,
    Unavailable,
    WrongEndpoint,
)
from privateer_core.serving.body_budget import Budget
from privateer_core.serving.connections import peer
from privateer_core.serving.http.openapi import ADMIN_REFUSALS, answers, refusals
from privateer_core.serving.http.report_endpoint import Body
from privateer_core.wire.batch import SIGNATURE_HEADER, check_claim
from privateer_core.wire.keys import TrustedKeys
from privateer_server.admin_tokens import Scope
from privateer_server.api import models, views
from privateer_server.api.description import CLAIM
from privateer_server.api.operators import Admins
from privateer_server.experiments.catalog import Experiments
from privateer_server.experiments.changes import PLANNED, Clone, Delete, PlannedChange, WarmStart
from privateer_server.experiments.executor import ChangeExecutor
from privateer_server.experiments.exports import exported, start_with
from privateer_server.experiments.spec_changes import renamed
from privateer_server.store.records import ShufflerKey
from privateer_server.store.store import Store

_CLAIMING: Final = refusals(BatchRefused, NotFound, Deleted, WrongEndpoint, Conflict, Unavailable)
PRIVATE_PAGES: Final = frozenset({"log", "export"})
"""Pages of an experiment that strangers do not read."""
_BYTES_MAX: Final = 64 << 20
"""The exports of experiments with thousands of actions."""
_CHANGE: Final = refusals(*ADMIN_REFUSALS, NotFound, Deleted, Conflict, ParameterInvalid, SpecError, Unavailable)
_CREATION: Final[dict[int | str, dict[str, Any]]] = {
    200: {"model": models.Details, "description": "It was created before"},
    **refusals(*ADMIN_REFUSALS, NotFound, Deleted, Conflict, ParameterInvalid, SpecError, TooLarge, Unavailable),
}
_EXPORT: Final = answers("Export", "Policy, result, record and state.")


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


def changes_router(
    executor: ChangeExecutor, experiments: Experiments, store: Store, admins: Admins, budget: Budget
) -> APIRouter:
    """Return the routes, bound to what they change."""
    router = APIRouter(prefix="/experiments/{name}", tags=["changes"])
    Who = Annotated[str, Depends(admins.may(Scope.CHANGE))]  # noqa: N806 - types
    Deleter = Annotated[str, Depends(admins.may(Scope.DELETE))]  # noqa: N806
    Reader = Annotated[str, Depends(admins.may(Scope.READ))]  # noqa: N806

    def add(kind: type[PlannedChange]) -> None:
        """Add the route of a change; its body may be missing where no field is required."""

        async def carry_out(name: str, who: Who, body: PlannedChange | None = None) -> models.Changed:
            outcome = await executor.carry_out(name, who, body or kind())
            return views.changed(experiments.get(name), store.log(name), outcome)

        is_required = any(field.is_required() for field in kind.model_fields.values())
        carry_out.__annotations__["body"] = kind if is_required else kind | None
        carry_out.__defaults__ = None if is_required else (None,)
        router.post(f"/{kind.verb}", name=kind.verb.replace("-", "_"), description=kind.__doc__, responses=_CHANGE)(
            carry_out
        )

    for kind in PLANNED:
        add(kind)

    @router.post("/clone", status_code=201, description=Clone.__doc__, responses=_CREATION)
    async def clone(name: str, who: Who, body: Clone, response: Response) -> models.Details:
        experiment, is_new = await executor.clone(name, who, body)
        response.status_code = 201 if is_new else 200
        return views.details(experiment)

    @router.post("/warm-start", status_code=201, description=WarmStart.__doc__, responses=_CREATION)
    async def warm_start(name: str, who: Who, request: Request, response: Response) -> models.Details:
        length = Body.unsigned(request.headers.get("content-length"), _BYTES_MAX, peer(request.scope))
        with budget.reserve(length.length, length.sender, is_trusted=True) as room:
            body = await room.read(request.stream())
            wanted = await run_in_threadpool(models.read, WarmStart, body)
        spec = renamed(parse_spec(wanted.spec).without_people(), name)
        experiment, is_new = await experiments.create(spec, who, start_with(wanted.start))
        response.status_code = 201 if is_new else 200
        return views.details(experiment)

    @router.delete("", description=Delete.__doc__, responses=refusals(*ADMIN_REFUSALS, NotFound, Unavailable))
    async def delete(name: str, who: Deleter) -> models.Deletion:
        return models.Deletion(experiment=name, changed=await executor.delete(name, who))

    @router.get("/log", responses=refusals(*ADMIN_REFUSALS, NotFound, Unavailable))
    def log(name: str, _: Reader) -> models.Log:
        """List what was changed, when and by whom; a deleted experiment keeps its log."""
        if not experiments.is_deleted(name):
            experiments.get(name)
        return views.log(name, store.log(name))

    @router.get("/export", responses=_EXPORT | refusals(*ADMIN_REFUSALS, NotFound, Deleted, Unavailable))
    def export(name: str, _: Reader) -> Response:
        """Export policy, result, record and state."""
        found = exported(experiments.get(name), store.rounds(name), store.closers(name))
        return Response(msgspec.json.encode(found), media_type="application/json")

    return router
