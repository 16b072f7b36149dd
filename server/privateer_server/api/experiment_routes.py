"""Control routes of experiments: create, list, policy, answer, state, history, privacy, risk; and their long polls."""

import asyncio
from functools import lru_cache
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Depends, Header, Path, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from privateer_core.algorithms import parse_spec
from privateer_core.errors import Conflict, Deleted, NotFound, ParameterInvalid, SpecError, TooLarge, Unavailable
from privateer_core.privacy.risk import assess_risks
from privateer_core.serving.http.bodies import Body, Budget, peer_address
from privateer_core.serving.http.listeners import IS_PUBLIC_KEY
from privateer_core.serving.http.openapi import ADMIN_REFUSALS, REF, describe_answer, describe_refusals
from privateer_core.serving.http.report_endpoint import json_response
from privateer_core.spec.sections import TOML_BYTES_MAX, parse_toml
from privateer_core.spec.spec import Spec
from privateer_core.wire.identity import SIGNED_HEADER, SIGNED_PATTERN, Identity
from privateer_core.wire.publication import ASKS_HEADER, ASKS_NOBODY, ASKS_PUBLISHED, MEDIA_TYPE, digest
from privateer_server.admin_tokens import Scope
from privateer_server.api import models, views
from privateer_server.api.operators import Admins
from privateer_server.experiments.catalog import Experiments
from privateer_server.experiments.experiment import Experiment
from privateer_server.store.store import Store

MAX_POLLS: Final = 128  # the number of concurrent long polls of the public: a few of the public listener's connections


class Polls:
    """The long polls under way: each holds a connection, so those of the public are limited, with fair shares.

    At the limit the oldest long poll of the sender with the most is answered, unless the new sender would then have as
    many, who is answered at once instead. So no sender can exclude others; an answered request is sent again.
    Shufflers use the private listener, without a limit.
    """

    def __init__(self, max_polls: int = MAX_POLLS) -> None:
        self._max_polls = max_polls
        self._by_sender: dict[str, dict[asyncio.Future[None], None]] = {}  # the oldest first

    async def wait(self, experiment: Experiment, seconds: float, sender: str | None) -> None:
        """Return once another round is published, the time is up, or at once beyond the limit; no sender: no limit."""
        if sender is None:
            await experiment.next_publication(seconds)
        elif self._make_room(sender):
            poll = asyncio.ensure_future(experiment.next_publication(seconds))
            self._by_sender.setdefault(sender, {})[poll] = None
            try:
                await asyncio.wait({poll})
            finally:
                poll.cancel()
                self._remove(sender, poll)

    def _make_room(self, sender: str) -> bool:
        """End the oldest poll of the sender with the most at the limit; return whether the new sender may wait."""
        if sum(map(len, self._by_sender.values())) < self._max_polls:
            return True
        greediest, polls = max(self._by_sender.items(), key=lambda item: len(item[1]))
        if len(polls) <= len(self._by_sender.get(sender, ())) + 1:
            return False
        oldest = next(iter(polls))
        self._remove(greediest, oldest)
        oldest.cancel()
        return True

    def _remove(self, sender: str, poll: asyncio.Future[None]) -> None:
        polls = self._by_sender.get(sender, {})
        polls.pop(poll, None)
        if not polls:
            self._by_sender.pop(sender, None)


_MAX_JSON_BYTES: Final = 4 << 20  # enough for the vectors of thousands of actions
_MAX_WAIT_SECONDS: Final = 60.0
_MAX_VERSION: Final = 2**63 - 1
_MAX_CACHED_VIEWS: Final = 16  # the number of policies whose JSON view is cached for long polls
_CREATED, _OK, _NOT_MODIFIED = 201, 200, 304
_READ_DOCS: Final = describe_refusals(NotFound, Deleted, Unavailable)
_TAG_HEADERS: Final = {
    "ETag": {"schema": {"type": "string", "pattern": '^"[0-9a-f]{64}"$'}, "description": "The digest."},
    SIGNED_HEADER: {
        "schema": {"type": "string", "pattern": f"^{SIGNED_PATTERN}$"},
        "description": "The server's key, and its signature of the publication.",
    },
}
_ASKS_HEADERS: Final = {
    ASKS_HEADER: {"schema": {"enum": [ASKS_PUBLISHED, ASKS_NOBODY]}, "description": "Whom the round asks."}
}
_POLICY_VERSION_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    _OK: {
        "description": "The policy: for people as JSON, for devices as the publication itself (Accept)",
        "content": {
            "application/json": {"schema": {"$ref": REF.format(name="PublishedPolicy")}},
            MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}},
        },
        "headers": _TAG_HEADERS,
    },
    _NOT_MODIFIED: {"description": "The policy has one of the entity tags of If-None-Match", "headers": _TAG_HEADERS},
    **describe_refusals(NotFound, Deleted, ParameterInvalid, Unavailable),
}
_POLICY_RESPONSES: Final = {
    status: answer | ({"headers": _TAG_HEADERS | _ASKS_HEADERS} if status in (_OK, _NOT_MODIFIED) else {})
    for status, answer in _POLICY_VERSION_RESPONSES.items()
}
_CREATION_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    _OK: {"model": models.Details, "description": "It was created before"},
    **describe_refusals(*ADMIN_REFUSALS, SpecError, Conflict, TooLarge, Unavailable),
}
_SECTIONS: Final = ("experiment", "privacy", "algorithm")
_SPEC_BODY: Final = {
    "required": True,
    "description": "A spec (docs/configuration.md)",
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": _SECTIONS,
                "properties": {section: {"type": "object"} for section in _SECTIONS},
                "additionalProperties": True,
            }
        },
        "application/toml": {"schema": {"type": "string"}},
    },
}


def experiments_router(
    experiments: Experiments, store: Store, identity: Identity, admins: Admins, budget: Budget
) -> APIRouter:
    """Return the routes of experiments."""
    router, polls = APIRouter(prefix="/experiments", tags=["experiments"]), Polls()
    Operator = Annotated[str, Depends(admins.require(Scope.CHANGE))]  # noqa: N806 - a type

    @router.post("", status_code=_CREATED, responses=_CREATION_RESPONSES, openapi_extra={"requestBody": _SPEC_BODY})
    async def create_experiment(request: Request, response: Response, operator: Operator) -> models.Details:
        """Create an experiment from a spec, as TOML (application/toml) or JSON; the same again changes nothing."""
        is_toml = request.headers.get("content-type", "").partition(";")[0].strip() == "application/toml"
        max_bytes = TOML_BYTES_MAX if is_toml else _MAX_JSON_BYTES
        length = Body.from_length(request.headers.get("content-length"), max_bytes, peer_address(request.scope))
        with budget.reserve(length.length, length.sender, is_trusted=True) as reservation:
            # Parsing and checking a large spec must not block the event loop.
            spec = await run_in_threadpool(_read_spec, await reservation.read(request.stream()), is_toml)
        experiment, is_new = await experiments.create(spec, operator)
        response.status_code = _CREATED if is_new else _OK
        return views.build_details(experiment)

    @router.get("", responses=describe_refusals(Unavailable))
    async def list_experiments() -> dict[str, list[models.Summary]]:
        """List all experiments and where they stand."""
        return {"experiments": [views.build_summary(experiment) for experiment in experiments]}

    @router.get("/{name}", responses=_READ_DOCS)
    async def show_experiment(name: str) -> models.Details:
        """Show one experiment: its progress, its refusals by reason, and its spec."""
        return views.build_details(await experiments.find(name))

    @router.get("/{name}/policy", response_model=None, responses=_POLICY_RESPONSES)
    async def policy(
        request: Request,
        name: str,
        wait: Annotated[float, Query(ge=0, le=_MAX_WAIT_SECONDS, allow_inf_nan=False)] = 0.0,
        accept: Annotated[str, Header(include_in_schema=False)] = "",
        if_none_match: Annotated[str, Header()] = "",
    ) -> Response:
        """Get the policy; with If-None-Match and ``wait``, the next one if it comes within so many seconds."""
        experiment = await experiments.find(name)
        if wait and _has_matching_tag(if_none_match, experiment.current.digest):
            await polls.wait(experiment, wait, peer_address(request.scope) if IS_PUBLIC_KEY in request.scope else None)
            experiment = experiments.get(name)  # it may have been deleted
        publication = experiment.current.publication
        response = await run_in_threadpool(_build_policy_response, publication, identity, accept, if_none_match)
        # The header is always sent, so that no cache keeps an earlier value with an unchanged answer.
        response.headers[ASKS_HEADER] = ASKS_NOBODY if experiment.is_inviting_nobody else ASKS_PUBLISHED
        return response

    @router.get("/{name}/policy/{version}", response_model=None, responses=_POLICY_VERSION_RESPONSES)
    def policy_of_version(
        name: str,
        version: Annotated[int, Path(ge=1, le=_MAX_VERSION)],
        accept: Annotated[str, Header(include_in_schema=False)] = "",
        if_none_match: Annotated[str, Header()] = "",
    ) -> Response:
        """Get the policy of one version."""
        experiments.get(name)
        publication = store.publication(name, version)
        if publication is None:
            raise NotFound("this version is not published", field="version", remedy="see the history")
        return _build_policy_response(publication, identity, accept, if_none_match)

    @router.get("/{name}/state", responses=_READ_DOCS | describe_answer("PublishedState", "What the learner knows."))
    def state(name: str) -> Response:
        """Show how far the round is, and what the learner knew when it began."""
        return json_response(views.build_state(experiments.get(name)), _OK)

    @router.get(
        "/{name}/answer", responses=_READ_DOCS | describe_answer("PublishedAnswer", "What was found, and what follows.")
    )
    def answer(name: str) -> Response:
        """Show the answer: which option, for whom, how much better, how sure, at what cost; and all that was found."""
        return json_response(views.build_answer(experiments.get(name), store.log(name)), _OK)

    @router.get("/{name}/history", responses=_READ_DOCS)
    def history(name: str) -> models.RoundHistory:
        """List all published rounds."""
        experiments.get(name)
        return views.build_history(name, store.rounds(name))

    @router.get("/{name}/privacy", responses=_READ_DOCS | describe_answer("Record", "The privacy record."))
    def privacy(name: str) -> Response:
        """Show what is promised to a person, round by round and against whom, with a certificate."""
        record = views.build_record(experiments.get(name).spec, store.rounds(name), store.batch_shufflers(name))
        return json_response(record, _OK)

    @router.get("/{name}/risk", responses=_READ_DOCS | describe_answer("Risks", "The risk of every claim."))
    def risk(name: str) -> Response:
        """Show what the best attack on one person achieves at most, for every claim of the privacy record."""
        record = views.build_record(experiments.get(name).spec, store.rounds(name), store.batch_shufflers(name))
        return json_response(assess_risks(record.certificate), _OK)

    return router


def _read_spec(body: bytearray, is_toml: bool) -> Spec:
    """Parse the spec in a body, without the section of simulated participants, which a service does not use."""
    try:
        tables = parse_toml(body.decode()) if is_toml else msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise SpecError("is not a JSON object", field="spec", remedy="send JSON, or TOML as application/toml") from None
    return parse_spec(tables).without_people()


def _build_policy_response(publication: bytes, identity: Identity, accept: str, if_none_match: str) -> Response:
    """Return a publication or its JSON view, as accepted, or that it matches an entity tag; with its signature."""
    policy_digest = digest(publication)
    headers = {"ETag": f'"{policy_digest.hex()}"', "Vary": "Accept", "Cache-Control": "no-cache"}
    headers[SIGNED_HEADER] = identity.signature_header(policy_digest)
    if _has_matching_tag(if_none_match, policy_digest):
        return Response(status_code=_NOT_MODIFIED, headers=headers)
    if MEDIA_TYPE in accept:
        return Response(publication, headers=headers, media_type=MEDIA_TYPE)
    return Response(_encode_view(publication), headers=headers, media_type="application/json")


@lru_cache(maxsize=_MAX_CACHED_VIEWS)
def _encode_view(publication: bytes) -> bytes:
    return msgspec.json.encode(views.build_policy(publication))


def _has_matching_tag(if_none_match: str, policy_digest: bytes) -> bool:
    tags = {tag.strip().removeprefix("W/").strip('"') for tag in if_none_match.split(",")}
    return "*" in tags or policy_digest.hex() in tags
