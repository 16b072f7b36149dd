"""Refusals of the control routes as problem documents."""

import logging

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.responses import Response

from privateer_core.errors import ParameterInvalid, Unavailable
from privateer_core.sections import said
from privateer_core.serving import problems
from privateer_core.serving.logs import trace
from privateer_server.store import TRANSIENT

_log = logging.getLogger("privateer.server")


def answer_problems(app: FastAPI) -> None:
    """Answer every refusal of the control routes, and every defect, with a problem."""
    problems.answer_problems(app)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    for kind in TRANSIENT:
        app.add_exception_handler(kind, _on_no_data)


async def _on_invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"][1:])
    return problems.problem_response(ParameterInvalid(said(first), field=field, remedy="correct the parameter"))


async def _on_no_data(_: Request, error: Exception) -> Response:
    """Refuse for now, since a disk is full or a database does not answer."""
    _log.error("a request finds no data (%s)", trace(error))
    refusal = Unavailable("the server cannot read or write its data now", remedy="try again later")
    return problems.problem_response(refusal)
