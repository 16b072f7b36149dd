"""Which shuffler brings the batches of an experiment: it claims that, and the operator releases the claim."""

from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, ConfigDict, Field
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
from privateer_core.serving.http.openapi import ADMIN_REFUSALS, answers, refusals
from privateer_core.serving.http.report_endpoint import Body
from privateer_core.serving.limits.body_budget import Budget
from privateer_core.serving.limits.connections import peer
from privateer_core.wire.batch import SIGNATURE_HEADER, check_claim
from privateer_core.wire.keys import TrustedKeys
from privateer_server.admin_tokens import Scope
from privateer_server.api import models, views
from privateer_server.api.description import CLAIM
from privateer_server.api.operators import Admins
from privateer_server.experiments.acceptance import renamed
from privateer_server.experiments.catalog import Experiments
from privateer_server.experiments.changes import Changes
from privateer_server.experiments.exports import exported, start_with
from privateer_server.store.records import ShufflerKey
from privateer_server.store.store import Store

_CLAIMING: Final = refusals(BatchRefused, NotFound, Deleted, WrongEndpoint, Conflict, Unavailable)
PRIVATE_PAGES: Final = frozenset({"log", "export"})
"""Pages of an experiment that strangers do not read."""
_BYTES_MAX: Final = 64 << 20
"""The exports of experiments with thousands of actions."""
_SECONDS_MAX: Final = 31_536_000.0
Seconds = Annotated[float | None, Field(ge=0, le=_SECONDS_MAX, allow_inf_nan=False)]
"""How long the open round has at most; None: it waits for its people."""
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


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Ending(_Body):
    """How long the open round waits for those who chose before."""

    seconds: Seconds = None


class Stop(_Body):
    """Ends the open round at once by default; otherwise it is the same as `Ending`."""

    seconds: Seconds = 0.0


_WAITING: Final = Ending()


_AT_ONCE: Final = Stop()


class Extension(Ending):
    """The new horizon."""

    horizon: int = Field(ge=1)


class Arm(Ending):
    """The arm to retire or to add."""

    arm: str = Field(min_length=1, max_length=64)


class Clone(_Body):
    """The new experiment's name, and its horizon if it is not the same."""

    name: str
    horizon: int | None = Field(default=None, ge=1)


class WarmStart(_Body):
    """A spec, and the export that the experiment begins with."""

    spec: dict[str, Any]
    start: dict[str, Any]


def changes_router(
    changes: Changes, experiments: Experiments, store: Store, admins: Admins, budget: Budget
) -> APIRouter:
    """Return the routes, bound to what they change."""
    router = APIRouter(prefix="/experiments/{name}", tags=["changes"])
    Who = Annotated[str, Depends(admins.may(Scope.CHANGE))]  # noqa: N806 - types
    Deleter = Annotated[str, Depends(admins.may(Scope.DELETE))]  # noqa: N806
    Reader = Annotated[str, Depends(admins.may(Scope.READ))]  # noqa: N806

    def answer(name: str, is_new: bool) -> models.Changed:
        return views.changed(experiments.get(name), store.log(name), is_new)

    @router.post("/pause", responses=_CHANGE)
    async def pause(name: str, who: Who, body: Ending = _WAITING) -> models.Changed:
        """Ask nobody until it is resumed; the open round waits for those who chose before, or for so many seconds."""
        return answer(name, await changes.pause(name, who, body.seconds))

    @router.post("/resume", responses=_CHANGE)
    async def resume(name: str, who: Who) -> models.Changed:
        """Ask people again."""
        return answer(name, await changes.resume(name, who))

    @router.post("/stop", responses=_CHANGE)
    async def stop(name: str, who: Who, body: Stop = _AT_ONCE) -> models.Changed:
        """Ask nobody any more, and publish the best policy for good."""
        return answer(name, await changes.stop(name, who, body.seconds))

    @router.post("/extend", responses=_CHANGE)
    async def extend(name: str, who: Who, body: Extension) -> models.Changed:
        """Let the horizon grow."""
        return answer(name, await changes.extend(name, who, body.horizon, body.seconds))

    @router.post("/retire-arm", responses=_CHANGE)
    async def retire_arm(name: str, who: Who, body: Arm) -> models.Changed:
        """Give an arm to nobody from the next version on."""
        return answer(name, await changes.retire_arm(name, who, body.arm, body.seconds))

    @router.post("/add-arm", responses=_CHANGE)
    async def add_arm(name: str, who: Who, body: Arm) -> models.Changed:
        """Try one more arm from the next version on."""
        return answer(name, await changes.add_arm(name, who, body.arm, body.seconds))

    @router.post("/clone", status_code=201, responses=_CREATION)
    async def clone(name: str, who: Who, body: Clone, response: Response) -> models.Details:
        """Create an experiment that begins with what this one has learned; the same again changes nothing."""
        experiment, is_new = await changes.clone(name, who, body.name, body.horizon)
        response.status_code = 201 if is_new else 200
        return views.details(experiment)

    @router.post("/warm-start", status_code=201, responses=_CREATION)
    async def warm_start(name: str, who: Who, request: Request, response: Response) -> models.Details:
        """Create an experiment of this name from a spec and an export; the same again changes nothing."""
        length = Body.unsigned(request.headers.get("content-length"), _BYTES_MAX, peer(request.scope))
        with budget.reserve(length.length, length.sender, is_trusted=True) as room:
            body = await room.read(request.stream())
            wanted = await run_in_threadpool(_warm_start, body)
        spec = renamed(parse_spec(wanted.spec).without_people(), name)
        experiment, is_new = await experiments.create(spec, who, start_with(wanted.start))
        response.status_code = 201 if is_new else 200
        return views.details(experiment)

    @router.delete("", responses=refusals(*ADMIN_REFUSALS, NotFound, Unavailable))
    async def delete(name: str, who: Deleter) -> models.Deletion:
        """Erase an experiment for good; its name stays taken."""
        return models.Deletion(experiment=name, changed=await changes.delete(name, who))

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


def _warm_start(body: bytearray) -> WarmStart:
    return models.read(WarmStart, body)
