"""Control routes of experiments: create, list, policy, state, history, privacy."""

from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Header, Path, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from privateer.errors import NotFound, SpecError
from privateer.families import AnySpec, parse_any_spec
from privateer.sections import TOML_BYTES_MAX, toml_tables
from privateer.serving.bodies import Body
from privateer.serving.budget import Budget
from privateer.serving.peer import peer
from privateer.serving.public import IS_PUBLIC
from privateer.wire.envelope import MEDIA_TYPE
from privateer.wire.publication import digest
from privateer_server.api import promises, views
from privateer_server.api.admin import authorize
from privateer_server.api.polls import Polls
from privateer_server.experiments import Experiments
from privateer_server.store import Store

_JSON_BYTES_MAX: Final = 4 << 20
"""The vectors of thousands of actions."""
_WAIT_MAX: Final = 60.0
_VERSION_MAX: Final = 2**63 - 1
_CREATED, _OK, _NOT_MODIFIED = 201, 200, 304


def experiments_router(experiments: Experiments, store: Store, token_digest: bytes, budget: Budget) -> APIRouter:
    """The routes, bound to what they read."""
    router, polls = APIRouter(prefix="/experiments", tags=["experiments"]), Polls()

    @router.post("", status_code=_CREATED)
    async def create(request: Request, authorization: Annotated[str, Header()] = "") -> JSONResponse:
        """Create an experiment from a spec, as TOML (application/toml) or JSON; the same again changes nothing."""
        authorize(authorization, token_digest)
        is_toml = request.headers.get("content-type", "").partition(";")[0].strip() == "application/toml"
        most = TOML_BYTES_MAX if is_toml else _JSON_BYTES_MAX
        length = Body.unsigned(request.headers.get("content-length"), most, peer(request.scope))
        with budget.reserve(length.length, length.sender, is_trusted=True) as room:
            # Parsing and checking a large spec must not keep the event loop from others.
            spec = await run_in_threadpool(_read_spec, await room.read(request.stream()), is_toml)
        experiment, is_new = await experiments.create(spec)
        return JSONResponse(views.facts(experiment), _CREATED if is_new else _OK)

    @router.get("")
    async def list_experiments() -> dict[str, Any]:
        """All experiments and where they stand."""
        return {"experiments": [views.summary(experiment) for experiment in experiments]}

    @router.get("/{name}")
    async def show(name: str) -> dict[str, Any]:
        """One experiment: progress, refusals by reason, and its spec."""
        return views.facts(experiments.get(name))

    @router.get("/{name}/policy")
    async def policy(
        request: Request,
        name: str,
        wait: Annotated[float, Query(ge=0, le=_WAIT_MAX, allow_inf_nan=False)] = 0.0,
        accept: Annotated[str, Header()] = "",
        if_none_match: Annotated[str, Header()] = "",
    ) -> Response:
        """The current policy; with If-None-Match and ``wait``, the next one if it comes within so many seconds."""
        experiment = experiments.get(name)
        if wait and _matches(if_none_match, experiment.current.digest):
            await polls.wait(experiment, wait, is_stranger=IS_PUBLIC in request.scope)
        current = experiment.current
        return await run_in_threadpool(_policy, current.publication, current.spec, accept, if_none_match)

    @router.get("/{name}/policy/{version}")
    def policy_of_version(
        name: str,
        version: Annotated[int, Path(ge=1, le=_VERSION_MAX)],
        accept: Annotated[str, Header()] = "",
        if_none_match: Annotated[str, Header()] = "",
    ) -> Response:
        """The policy of one version."""
        spec = experiments.get(name).spec
        publication = store.publication(name, version)
        if publication is None:
            raise NotFound("this version is not published", field="version", remedy="see the history")
        return _policy(publication, spec, accept, if_none_match)

    @router.get("/{name}/state")
    def state(name: str) -> dict[str, Any]:
        """What the learner knows: estimates with standard errors."""
        return views.state(experiments.get(name))

    @router.get("/{name}/history")
    def history(name: str) -> dict[str, Any]:
        """All published rounds."""
        experiments.get(name)
        return {"experiment": name, "rounds": views.history(store.rounds(name))}

    @router.get("/{name}/privacy")
    def privacy(name: str) -> dict[str, Any]:
        """What is promised to a person, round by round and against whom, with a certificate."""
        return promises.privacy(experiments.get(name).spec, store.rounds(name))

    return router


def _read_spec(body: bytearray, is_toml: bool) -> AnySpec:
    """The spec in a body, without the simulated people that it may name: a service has no use for them."""
    try:
        tables = toml_tables(body.decode()) if is_toml else msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise SpecError("not a JSON object", field="spec", remedy="send JSON, or TOML as application/toml") from None
    return parse_any_spec(tables).without_people()


def _policy(publication: bytes, spec: AnySpec, accept: str, if_none_match: str) -> Response:
    name = digest(publication)
    headers = {"ETag": f'"{name.hex()}"', "Vary": "Accept", "Cache-Control": "no-cache"}
    if _matches(if_none_match, name):
        return Response(status_code=_NOT_MODIFIED, headers=headers)
    if MEDIA_TYPE in accept:
        return Response(publication, headers=headers, media_type=MEDIA_TYPE)
    return JSONResponse(views.policy(spec, publication), headers=headers)


def _matches(if_none_match: str, name: bytes) -> bool:
    tags = {tag.strip().removeprefix("W/").strip('"') for tag in if_none_match.split(",")}
    return "*" in tags or name.hex() in tags
