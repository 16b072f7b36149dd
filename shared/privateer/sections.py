"""Sections of a specification: tables of a TOML file, checked, with errors that name the field."""

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from privateer.errors import SpecError

Finite = Annotated[float, Field(allow_inf_nan=False)]


class Section(BaseModel):
    """A table with known keys only; it does not change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


S = TypeVar("S", bound=Section)


def parse_section(kind: type[S], data: dict[str, Any]) -> S:
    """A section, or a whole spec, from the tables of a TOML file.

    Raises
    ------
    SpecError
        Naming the first offending field, its constraint and the remedy.
    """
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise _as_spec_error(first) from None


def _as_spec_error(first: Any) -> SpecError:
    field = ".".join(str(part) for part in first["loc"])
    message = str(first["msg"]).removeprefix("Value error, ")
    if first["type"] == "value_error" and ": " in message:
        inner, message = message.split(": ", 1)
        field = inner if "." in inner or not field else f"{field}.{inner}"
    remedies = {"extra_forbidden": "remove it or correct its spelling", "missing": "add it"}
    if first["type"] == "extra_forbidden":
        message = "unknown key"
    return SpecError(message, field=field or "spec", remedy=remedies.get(first["type"], "see docs/configuration.md"))
