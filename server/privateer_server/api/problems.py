"""Refusals of the control routes as problem documents."""

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.responses import Response

from privateer.errors import ParameterInvalid
from privateer.sections import said
from privateer.serving import problems


def answer_problems(app: FastAPI) -> None:
    """Answer every refusal of the control routes, and every defect, with a problem."""
    problems.answer_problems(app)
    app.add_exception_handler(RequestValidationError, _on_invalid)


async def _on_invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"][1:])
    return problems.problem_response(ParameterInvalid(said(first), field=field, remedy="correct the parameter"))
