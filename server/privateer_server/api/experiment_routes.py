"""Control routes of experiments: create, list, policy, answer, state, history, privacy, risk."""

from functools import lru_cache
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Depends, Header, Path, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from privateer_core.algorithms import parse_spec
from privateer_core.errors import (
    Conflict,
    Deleted,
    NotFound,
    ParameterInvalid,
    SpecError,
    TooLarge,
    Unavailable,
)
from privateer_core.privacy.risk import risks
from privateer_core.serving.body_budget import Budget
from privateer_core.serving.connections import peer
from privateer_core.serving.http.listeners import IS_PUBLIC
from privateer_core.serving.http.openapi import ADMIN_REFUSALS, REF, answers, refusals
from privateer_core.serving.http.report_endpoint import Body
from privateer_core.spec.sections import TOML_BYTES_MAX, toml_tables
from privateer_core.spec.spec import Spec
from privateer_core.wire.envelope import MEDIA_TYPE
from privateer_core.wire.identity import SIGNED_FORM, SIGNED_HEADER, Identity
from privateer_core.wire.publication import ASKS_HEADER, ASKS_NOBODY, ASKS_PUBLISHED, digest
from privateer_server.admin_tokens import Scope
from privateer_server.api import models, views
from privateer_server.api.long_polls import Polls
from privateer_server.api.operators import Admins
from privateer_server.experiments import exports
from privateer_server.experiments.catalog import Experiments
from privateer_server.store.store import Store

_JSON_BYTES_MAX: Final = 4 << 20
"""The vectors of thousands of actions."""
_WAIT_MAX: Final = 60.0
_VERSION_MAX: Final = 2**63 - 1
_VIEWED_MAX: Final = 16
"""Policies of which the view is kept, for those who wait for them."""
_CREATED, _OK, _NOT_MODIFIED = 201, 200, 304
_READING: Final = refusals(NotFound, Deleted, Unavailable)
_TAGS: Final = {
    "ETag": {"schema": {"type": "string", "pattern": '^"[0-9a-f]{64}"$'}, "description": "The digest."},
    SIGNED_HEADER: {
        "schema": {"type": "string", "pattern": f"^{SIGNED_FORM}$"},
        "description": "The server's key, and its signature of the publication.",
    },
}
_ASKS: Final = {ASKS_HEADER: {"schema": {"enum": [ASKS_PUBLISHED, ASKS_NOBODY]}, "description": "Whom the round asks."}}
_POLICY_OF_VERSION: Final[dict[int | str, dict[str, Any]]] = {
    _OK: {
        "description": "The policy: for people as JSON, for devices as the publication itself (Accept)",
        "content": {
            "application/json": {"schema": {"$ref": REF.format(name="PublishedPolicy")}},
            MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}},
        },
        "headers": _TAGS,
    },
    _NOT_MODIFIED: {"description": "The policy has one of the entity tags of If-None-Match", "headers": _TAGS},
    **refusals(NotFound, Deleted, ParameterInvalid, Unavailable),
}
_POLICY: Final = {
    status: answer | ({"headers": _TAGS | _ASKS} if status in (_OK, _NOT_MODIFIED) else {})
    for status, answer in _POLICY_OF_VERSION.items()
}
_CREATION: Final[dict[int | str, dict[str, Any]]] = {
    _OK: {"model": models.Details, "description": "It was created before"},
    **refusals(*ADMIN_REFUSALS, SpecError, Conflict, TooLarge, Unavailable),
}
_SPEC: Final = {
    "required": True,
    "description": "A spec (docs/configuration.md)",
    "content": {
        "application/json": {"schema": {"type": "object", "required": ["experiment", "privacy", "algorithm"]}},
        "application/toml": {"schema": {"type": "string"}},
    },
}


def experiments_router(
    experiments: Experiments, store: Store, identity: Identity, admins: Admins, budget: Budget
) -> APIRouter:
    """Return the routes, bound to what they read."""
    router, polls = APIRouter(prefix="/experiments", tags=["experiments"]), Polls()
    Who = Annotated[str, Depends(admins.may(Scope.CHANGE))]  # noqa: N806 - a type

    @router.post("", status_code=_CREATED, responses=_CREATION, openapi_extra={"requestBody": _SPEC})
    async def create(request: Request, response: Response, who: Who) -> models.Details:
        """Create an experiment from a spec, as TOML (application/toml) or JSON; the same again changes nothing."""
        is_toml = request.headers.get("content-type", "").partition(";")[0].strip() == "application/toml"
        most = TOML_BYTES_MAX if is_toml else _JSON_BYTES_MAX
        length = Body.unsigned(request.headers.get("content-length"), most, peer(request.scope))
        with budget.reserve(length.length, length.sender, is_trusted=True) as room:
            # Parsing and checking a large spec must not keep the event loop from others.
            spec = await run_in_threadpool(_read_spec, await room.read(request.stream()), is_toml)
        experiment, is_new = await experiments.create(spec, who)
        response.status_code = _CREATED if is_new else _OK
        return views.details(experiment)

    @router.get("", responses=refusals(Unavailable))
    async def list_experiments() -> dict[str, list[models.Summary]]:
        """List all experiments and where they stand."""
        return {"experiments": [views.summary(experiment) for experiment in experiments]}

    @router.get("/{name}", responses=_READING)
    async def show(name: str) -> models.Details:
        """Show one experiment: its progress, its refusals by reason, and its spec."""
        return views.details(await experiments.find(name))

    @router.get("/{name}/policy", response_model=None, responses=_POLICY)
    async def policy(
        request: Request,
        name: str,
        wait: Annotated[float, Query(ge=0, le=_WAIT_MAX, allow_inf_nan=False)] = 0.0,
        accept: Annotated[str, Header(include_in_schema=False)] = "",
        if_none_match: Annotated[str, Header()] = "",
    ) -> Response:
        """Get the policy; with If-None-Match and ``wait``, the next one if it comes within so many seconds."""
        experiment = await experiments.find(name)
        if wait and _matches(if_none_match, experiment.current.digest):
            await polls.wait(experiment, wait, peer(request.scope) if IS_PUBLIC in request.scope else None)
            experiment = experiments.get(name)  # it may have been deleted
        publication = experiment.current.publication
        response = await run_in_threadpool(_policy, publication, identity, accept, if_none_match)
        # It is always there, so that no cache keeps an earlier one with an answer that did not change.
        response.headers[ASKS_HEADER] = ASKS_NOBODY if experiment.is_silent else ASKS_PUBLISHED
        return response

    @router.get("/{name}/policy/{version}", response_model=None, responses=_POLICY_OF_VERSION)
    def policy_of_version(
        name: str,
        version: Annotated[int, Path(ge=1, le=_VERSION_MAX)],
        accept: Annotated[str, Header(include_in_schema=False)] = "",
        if_none_match: Annotated[str, Header()] = "",
    ) -> Response:
        """Get the policy of one version."""
        experiments.get(name)
        publication = store.publication(name, version)
        if publication is None:
            raise NotFound("this version is not published", field="version", remedy="see the history")
        return _policy(publication, identity, accept, if_none_match)

    @router.get("/{name}/state", responses=_READING | answers("PublishedState", "What the learner knows."))
    def state(name: str) -> Response:
        """Show how far the round is, and what the learner knew when it began."""
        return _json(views.state(experiments.get(name)))

    @router.get("/{name}/answer", responses=_READING | answers("PublishedAnswer", "What was found, and what follows."))
    def answer(name: str) -> Response:
        """Show the answer: which option, for whom, how much better, how sure, at what cost; and all that was found."""
        return _json(views.answer(experiments.get(name), store.log(name)))

    @router.get("/{name}/history", responses=_READING)
    def history(name: str) -> models.RoundHistory:
        """List all published rounds."""
        experiments.get(name)
        return views.history(name, store.rounds(name))

    @router.get("/{name}/privacy", responses=_READING | answers("Record", "The privacy record."))
    def privacy(name: str) -> Response:
        """Show what is promised to a person, round by round and against whom, with a certificate."""
        return _json(exports.privacy(experiments.get(name).spec, store.rounds(name), store.closers(name)))

    @router.get("/{name}/risk", responses=_READING | answers("Risks", "The risk of every claim."))
    def risk(name: str) -> Response:
        """Show what the best attack on one person achieves at most, for every claim of the privacy record."""
        record = exports.privacy(experiments.get(name).spec, store.rounds(name), store.closers(name))
        return _json(risks(record.certificate))

    return router


def _json(struct: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(struct), media_type="application/json")


def _read_spec(body: bytearray, is_toml: bool) -> Spec:
    """Read the spec in a body, without the simulated people that it may name: a service has no use for them."""
    try:
        tables = toml_tables(body.decode()) if is_toml else msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise SpecError("is not a JSON object", field="spec", remedy="send JSON, or TOML as application/toml") from None
    return parse_spec(tables).without_people()


def _policy(publication: bytes, identity: Identity, accept: str, if_none_match: str) -> Response:
    name = digest(publication)
    headers = {"ETag": f'"{name.hex()}"', "Vary": "Accept", "Cache-Control": "no-cache"}
    headers[SIGNED_HEADER] = identity.signed(name)
    if _matches(if_none_match, name):
        return Response(status_code=_NOT_MODIFIED, headers=headers)
    if MEDIA_TYPE in accept:
        return Response(publication, headers=headers, media_type=MEDIA_TYPE)
    return Response(_viewed(publication), headers=headers, media_type="application/json")


@lru_cache(maxsize=_VIEWED_MAX)
def _viewed(publication: bytes) -> bytes:
    return msgspec.json.encode(views.policy(publication))


def _matches(if_none_match: str, name: bytes) -> bool:
    tags = {tag.strip().removeprefix("W/").strip('"') for tag in if_none_match.split(",")}
    return "*" in tags or name.hex() in tags
