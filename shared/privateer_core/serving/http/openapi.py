"""Common parts of the services' OpenAPI documents: refusals, sealed reports, and pages for operators."""

import inspect
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from privateer_core import errors
from privateer_core.errors import PrivateerError
from privateer_core.serving.http.problems import HostRefused, Internal
from privateer_core.serving.logs import BUILD, Build
from privateer_core.wire import problem
from privateer_core.wire.batch import SIGNATURE_PATTERN, UPLOAD
from privateer_core.wire.publication import MEDIA_TYPE

REF: Final = "#/components/schemas/{name}"
_Refusals = tuple[type[PrivateerError], ...]
_COMMON_REFUSALS: Final[_Refusals] = (errors.BadRequest, errors.HeadersTooLarge, HostRefused, Internal)
"""Errors of all pages: malformed HTTP, oversized headers, defects and, at the private listener, a wrong host name."""
UPLOAD_REFUSALS: Final[_Refusals] = (
    *(errors.Malformed, errors.WrongSize, errors.DecryptionFailed, errors.OutOfRange, errors.WrongEndpoint),
    *(errors.SenderRefused, errors.NotFound, errors.Deleted, errors.TooLarge, errors.WrongKey, errors.WrongDigest),
    *(errors.RoundClosed, errors.RoundUnknown, errors.DuplicateReport, errors.Unavailable),
)
"""Errors of an endpoint for reports."""
TOKEN_REFUSALS: Final[_Refusals] = (
    errors.TokenMissing,
    errors.TokenInvalid,
    errors.TokenWrongAudience,
    errors.TokenExpired,
    errors.TokenSpent,
)
"""Further errors of an endpoint for reports that requires upload tokens."""
ADMIN_REFUSALS: Final[_Refusals] = (errors.Unauthorized, errors.AdminTokenExpired, errors.ScopeMissing)
"""Errors of a page that requires an admin token."""
_COUNTS_SCHEMA: Final = {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0}}


def _describe_problem(error: type[PrivateerError]) -> dict[str, Any]:
    """Return the full schema of a problem (RFC 9457), since client generators do not narrow a common schema."""
    return {
        "type": "object",
        "description": str(error.__doc__).splitlines()[0],
        "required": ["type", "title", "status", "detail"],
        "properties": {
            "type": {"type": "string", "const": problem.problem_type(error.slug)},
            "title": {"type": "string"},
            "status": {"type": "integer", "const": error.status},
            "detail": {"type": "string"},
            "field": {"type": "string", "description": "The dotted name of what is wrong."},
            "remedy": {"type": "string", "description": "What to do about it."},
            "accepted": {"type": "integer", "const": 0, "description": "Of an upload: no report counts."},
            "refused": _COUNTS_SCHEMA | {"description": "Of an upload: how many reports were refused, by reason."},
        },
    }


SCHEMAS: Final[dict[str, Any]] = {}
"""Schemas of the problems that `describe_refusals` has described in this process."""
ENVELOPE: Final = {
    "required": True,
    "description": "An envelope, as docs/wire-format.md describes it byte by byte.",
    "content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}},
}
"""The body of an upload or a batch."""


def describe_signature(header: str, description: str, *, required: bool) -> dict[str, Any]:
    """Describe a header that carries a signature."""
    schema = {"type": "string", "pattern": f"^{SIGNATURE_PATTERN}$"}
    return {"name": header, "in": "header", "required": required, "description": description, "schema": schema}


TOKEN_PARAMETER: Final = {
    "name": "Authorization",
    "in": "header",
    "required": False,
    "description": "An upload token (RFC 9577), where the service takes reports with tokens alone.",
    "schema": {"type": "string"},
}
SENDER_PARAMETER: Final = describe_signature(
    UPLOAD.header, "A trusted sender's signature: needed for more than one person's reports.", required=False
)


def describe_refusals(*refusals: type[PrivateerError]) -> dict[int | str, dict[str, Any]]:
    """Describe the problems of a page by status: the given errors and the common errors of all pages."""
    by_status: defaultdict[int, list[str]] = defaultdict(list)
    for error in [*refusals, *_COMMON_REFUSALS]:
        by_status[error.status].append(error.slug)
        SCHEMAS[f"problem-{error.slug}"] = _describe_problem(error)
    return {status: _describe_status(status, slugs) for status, slugs in sorted(by_status.items())}


_HEADER_BY_STATUS: Final = {
    errors.Unauthorized.status: "WWW-Authenticate",
    errors.ScopeMissing.status: "WWW-Authenticate",
    errors.Unavailable.status: "Retry-After",
}


def _describe_status(status: int, slugs: list[str]) -> dict[str, Any]:
    """Return the response of a status: its problems' schemas, and the header that it comes with."""
    kinds = [{"$ref": REF.format(name=f"problem-{slug}")} for slug in slugs]
    schema = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    response = {"description": ", ".join(slugs), "content": {problem.MEDIA_TYPE: {"schema": schema}}}
    has_header = status != errors.ScopeMissing.status or errors.ScopeMissing.slug in slugs
    header = _HEADER_BY_STATUS.get(status) if has_header else None
    return response | ({"headers": {header: {"schema": {"type": "string"}}}} if header else {})


def describe_answer(name: str, text: str, status: int = 200) -> dict[int | str, dict[str, Any]]:
    """Describe the JSON answer of a page by the name of its schema in the document."""
    return {status: {"description": text, "content": {"application/json": {"schema": {"$ref": REF.format(name=name)}}}}}


_SCHEMA_REFERENCE_REGEX: Final = re.compile(r'"#/components/schemas/([^"]+)"')
_LICENSE: Final = {"name": "Apache License 2.0", "identifier": "Apache-2.0"}


def complete_document(document: dict[str, Any]) -> dict[str, Any]:
    """Complete a document for linters and generators of clients.

    This adds the license and the server, marks the operations that need no key, and drops schemas without a reference.
    """
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    for operation in operations:
        operation.setdefault("security", [])
    document["info"]["license"] = _LICENSE
    document["components"]["schemas"] = _simplify_schema(_named_schemas(document))
    return document | {"servers": [{"url": "/", "description": "This service"}]}


def _simplify_schema(node: Any) -> Any:
    """Write lengths of arrays and titles in forms that client generators support, and unindent descriptions."""
    if isinstance(node, list):
        return [_simplify_schema(item) for item in node]
    if not isinstance(node, dict):
        return node
    simplified = {key: _simplify_schema(item) for key, item in node.items()}
    if node.get("items") is False:
        del simplified["items"]
        simplified["minItems"] = simplified["maxItems"] = len(node["prefixItems"])
    if node.get("properties", {}).get(str(node.get("title")).lower(), {}).get("type") == "array":
        simplified["title"] += "Object"  # generators would give it and its field one variable
    if isinstance(node.get("description"), str):
        simplified["description"] = inspect.cleandoc(node["description"])
    return simplified


def select_public(document: dict[str, Any], is_public: Callable[[str, str], bool]) -> dict[str, Any]:
    """Return the document of the public routes, with the schemas that they refer to."""
    routes = {
        path: {method: operation for method, operation in methods.items() if is_public(method.upper(), path)}
        for path, methods in document["paths"].items()
    }
    public = document | {"paths": {path: methods for path, methods in routes.items() if methods}}
    return public | {"components": {"schemas": _named_schemas(public)}}


def _named_schemas(document: dict[str, Any]) -> dict[str, Any]:
    """Return the schemas to which the document's paths refer, directly or through others."""
    schemas, names = document["components"]["schemas"], _find_schema_names(document["paths"])
    while new_names := set().union(*(_find_schema_names(schemas[name]) for name in names)) - names:
        names |= new_names
    return {name: schema for name, schema in schemas.items() if name in names}


def _find_schema_names(node: Any) -> set[str]:
    return set(_SCHEMA_REFERENCE_REGEX.findall(msgspec.json.encode(node).decode()))


class ServiceStatus(msgspec.Struct, frozen=True):
    """The status of a service."""

    status: str


_Responses = dict[int | str, dict[str, Any]]
NAME_PARAMETER: Final = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
"""The path parameter that names an experiment."""


def describe_content(description: str, media_type: str, schema: dict[str, Any]) -> _Responses:
    """Describe the answer of a page with another media type than JSON."""
    return {200: {"description": description, "content": {media_type: {"schema": schema}}}}


def describe_page(
    summary: str, operation: str, answers: _Responses, refusals: _Responses, **extra_fields: Any
) -> dict[str, Any]:
    """Describe a page by its summary, operation id, answers and refusals."""
    responses = {str(status): answer for status, answer in (answers | refusals).items()}
    return {"summary": summary, "operationId": operation, **extra_fields, "responses": responses}


def describe_service(
    title: str, description: str, readiness: str, paths: dict[str, Any], structs: Iterable[type]
) -> dict[str, Any]:
    """Return the document of a service, with the common pages for operators.

    readiness: the summary of ``/readyz``.
    structs: the answer types of its other pages.
    """
    _, schemas = msgspec.json.schema_components((*structs, ServiceStatus, Build), ref_template=REF)
    status, build = describe_answer("ServiceStatus", "The status."), describe_answer("Build", "Version and commit.")
    metrics = describe_content("Counts.", "text/plain", {"type": "string"})
    operations = {
        "/healthz": {"get": describe_page("Say that the process answers.", "health", status, describe_refusals())},
        "/readyz": {"get": describe_page(readiness, "ready", status, describe_refusals(errors.Unavailable))},
        "/version": {"get": describe_page("Say which build this is.", "version", build, describe_refusals())},
        "/metrics": {"get": describe_page("Show counts for Prometheus.", "show_metrics", metrics, describe_refusals())},
    }
    info = {"title": title, "description": description, "version": BUILD.version}
    components = {"schemas": schemas | SCHEMAS}
    return complete_document({"openapi": "3.1.0", "info": info, "paths": paths | operations, "components": components})
