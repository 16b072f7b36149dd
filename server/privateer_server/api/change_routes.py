"""Routes of changes to an experiment by operators, and of a shuffler's claim to deliver its batches."""

from typing import Annotated, Any, Final

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
from privateer_core.serving.http.bodies import Body, Budget, peer_address
from privateer_core.serving.http.openapi import ADMIN_REFUSALS, describe_answer, describe_refusals
from privateer_core.serving.http.report_endpoint import json_response
from privateer_core.wire.batch import SIGNATURE_HEADER, verify_claim
from privateer_core.wire.keys import TrustedKeys
from privateer_server.admin_tokens import Scope
from privateer_server.api import models, views
from privateer_server.api.operators import Admins
from privateer_server.api.pages import CLAIM_PARAMETER
from privateer_server.experiments.catalog import Experiments
from privateer_server.experiments.changes import PLANNED, Clone, Delete, PlannedChange, WarmStart
from privateer_server.experiments.executor import ChangeExecutor, start_from_export
from privateer_server.experiments.spec_changes import with_name
from privateer_server.store.records import ShufflerKey
from privateer_server.store.store import Store

_CLAIM_REFUSALS: Final = describe_refusals(BatchRefused, NotFound, Deleted, WrongEndpoint, Conflict, Unavailable)
PRIVATE_PAGES: Final = frozenset({"log", "export"})  # pages of an experiment that only operators can read
_MAX_EXPORT_BYTES: Final = 64 << 20  # enough for the exports of experiments with thousands of actions
_CHANGE_DOCS: Final = describe_refusals(
    *ADMIN_REFUSALS, NotFound, Deleted, Conflict, ParameterInvalid, SpecError, Unavailable
)
_CREATION_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    200: {"model": models.Details, "description": "It was created before"},
    **describe_refusals(
        *ADMIN_REFUSALS, NotFound, Deleted, Conflict, ParameterInvalid, SpecError, TooLarge, Unavailable
    ),
}
_WARM_START_BODY: Final = {"required": True, "content": {"application/json": {"schema": WarmStart.model_json_schema()}}}
_EXPORT_DOCS: Final = describe_answer("Export", "Policy, result, record and state.")


def claims_router(experiments: Experiments, admins: Admins, shufflers: TrustedKeys) -> APIRouter:
    """Return the routes of shufflers' claims."""
    router = APIRouter(prefix="/experiments/{name}/shuffler", tags=["experiments"])

    @router.post("", responses=_CLAIM_REFUSALS, openapi_extra={"parameters": [CLAIM_PARAMETER]})
    async def claim_experiment(name: str, request: Request) -> dict[str, str | None]:
        """Have the shuffler that signs this bring all batches of the experiment; the same again changes nothing."""
        signature = request.headers.get(SIGNATURE_HEADER, "")
        claim = verify_claim(name, signature, shufflers.by_id(), SystemClock().now())
        shuffler_key = ShufflerKey(claim.key_id, shufflers.organisation(claim.key_id))
        await experiments.claim(name, shuffler_key, claim.signed_at)
        return {"shuffler": shuffler_key.shuffler}

    @router.delete("", responses=describe_refusals(*ADMIN_REFUSALS, NotFound, Deleted, Unavailable))
    async def release_experiment(
        name: str, operator: Annotated[str, Depends(admins.require(Scope.CHANGE))]
    ) -> dict[str, str | None]:
        """Let another shuffler claim the experiment, since the one that did is gone."""
        await experiments.release(name, operator)
        return {"shuffler": None}

    return router


def changes_router(
    executor: ChangeExecutor, experiments: Experiments, store: Store, admins: Admins, budget: Budget
) -> APIRouter:
    """Return the routes of operators' changes."""
    router = APIRouter(prefix="/experiments/{name}", tags=["changes"])
    Operator = Annotated[str, Depends(admins.require(Scope.CHANGE))]  # noqa: N806 - types
    Deleter = Annotated[str, Depends(admins.require(Scope.DELETE))]  # noqa: N806
    Reader = Annotated[str, Depends(admins.require(Scope.READ))]  # noqa: N806

    def add_route(kind: type[PlannedChange]) -> None:
        """Add the route of a change; its body may be missing if no field is required."""

        async def carry_out(name: str, operator: Operator, body: PlannedChange) -> models.Changed:
            outcome = await executor.carry_out(name, operator, body)
            return views.build_change_result(experiments.get(name), store.log(name), outcome)

        is_required = any(field.is_required() for field in kind.model_fields.values())
        carry_out.__annotations__["body"] = kind
        carry_out.__defaults__ = None if is_required else (kind(),)
        path, route_name = f"/{kind.verb}", kind.verb.replace("-", "_")
        router.post(path, name=route_name, description=kind.__doc__, responses=_CHANGE_DOCS)(carry_out)

    for kind in PLANNED:
        add_route(kind)

    @router.post("/clone", status_code=201, description=Clone.__doc__, responses=_CREATION_RESPONSES)
    async def clone(name: str, operator: Operator, body: Clone, response: Response) -> models.Details:
        experiment, is_new = await executor.clone(name, operator, body)
        response.status_code = 201 if is_new else 200
        return views.build_details(experiment)

    @router.post(
        "/warm-start",
        status_code=201,
        description=WarmStart.__doc__,
        responses=_CREATION_RESPONSES,
        openapi_extra={"requestBody": _WARM_START_BODY},
    )
    async def warm_start(name: str, operator: Operator, request: Request, response: Response) -> models.Details:
        length = Body.from_length(request.headers.get("content-length"), _MAX_EXPORT_BYTES, peer_address(request.scope))
        with budget.reserve(length.length, length.sender, is_trusted=True) as reservation:
            body = await reservation.read(request.stream())
            warm_start_request = await run_in_threadpool(models.parse_json_body, WarmStart, body)
        spec = with_name(parse_spec(warm_start_request.spec).without_people(), name)
        experiment, is_new = await experiments.create(spec, operator, start_from_export(warm_start_request.start))
        response.status_code = 201 if is_new else 200
        return views.build_details(experiment)

    @router.delete("", description=Delete.__doc__, responses=describe_refusals(*ADMIN_REFUSALS, NotFound, Unavailable))
    async def delete_experiment(name: str, operator: Deleter) -> models.Deletion:
        return models.Deletion(experiment=name, changed=await executor.delete(name, operator))

    @router.get("/log", responses=describe_refusals(*ADMIN_REFUSALS, NotFound, Unavailable))
    def log(name: str, _: Reader) -> models.Log:
        """List the changes of an experiment with their times and authors; a deleted experiment keeps its log."""
        if not experiments.is_deleted(name):
            experiments.get(name)
        return views.build_log(name, store.log(name))

    @router.get("/export", responses=_EXPORT_DOCS | describe_refusals(*ADMIN_REFUSALS, NotFound, Deleted, Unavailable))
    def export(name: str, _: Reader) -> Response:
        """Export policy, result, record and state."""
        export = views.build_export(experiments.get(name), store.rounds(name), store.batch_shufflers(name))
        return json_response(export, 200)

    return router
