"""Sections of a specification: tables of a TOML file, checked, with errors that name the field."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ModelWrapValidatorHandler, ValidationError, model_validator

from privateer_core.errors import SpecError

Finite = Annotated[float, Field(allow_inf_nan=False)]


class Section(BaseModel):
    """A table with known keys only; it does not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    @model_validator(mode="wrap")
    @classmethod
    def _counts_no_boolean(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Refuse true and false where a number is meant: they would count as 1 and 0."""
        section = handler(data)
        if isinstance(data, Mapping):
            for name, value in data.items():
                found = section.__dict__.get(name)
                if _counts(value, found):
                    raise ValueError(f"{name}: must be a number, not true or false")
                if _holds_counted(value, found):
                    raise ValueError(f"{name}: must have numbers instead of true and false")
        return section


def _counts(given: Any, taken: Any) -> bool:
    """Whether a boolean was given and taken for a number."""
    return isinstance(given, bool) and type(taken) in (int, float)


def _holds_counted(given: Any, taken: Any) -> bool:
    """Whether a list or table holds a boolean that was taken for a number; sections inside have checked theirs."""
    waiting = [(given, taken)]  # a list instead of recursion: strangers nest tables as deep as they like
    while waiting:
        given, taken = waiting.pop()
        pairs: list[tuple[Any, Any]] = []
        if isinstance(given, Mapping) and isinstance(taken, Mapping):
            pairs = [(value, taken.get(name)) for name, value in given.items()]
        elif isinstance(given, list | tuple) and isinstance(taken, list | tuple):
            pairs = list(zip(given, taken, strict=False))
        if any(_counts(*pair) for pair in pairs):
            return True
        waiting += pairs
    return False


S = TypeVar("S", bound=Section)
_REMEDIES: Final = {
    "extra_forbidden": "remove it or correct its spelling",
    "missing": "add it",
    "union_tag_not_found": "add it",
}
_WORDS: Final = {
    "missing": "required",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "dict_type": "must be a table",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "int_parsing": "must be an integer",
    "int_from_float": "must be an integer",
    "int_type": "must be an integer",
    "string_type": "must be a text",
    "bool_parsing": "must be a boolean, true or false",
    "bool_type": "must be a boolean, true or false",
}
"""What is wrong with a value of the wrong kind, in the words of a TOML file."""

NAME: Final = r"^[a-z0-9][a-z0-9-]{0,62}$"
_PATTERNS: Final = {NAME: "must have 1 to 63 lower-case letters, digits and dashes, and no dash at its start"}
"""What texts must be, in place of the regular expressions that say so to programs."""
TOML_BYTES_MAX: Final = 256 << 10
_DOTS_MAX: Final = 16
_PART: Final = r"""(?:[A-Za-z0-9_-]++|"[^"\n]*+"|'[^'\n]*+')"""
_LONG_KEY: Final = re.compile(rf"(?<![A-Za-z0-9_-]){_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{{_DOTS_MAX},}}+")
"""A dotted key costs the parser the square of its parts, in time and in memory."""


def toml_tables(text: str) -> dict[str, Any]:
    """Return the tables of a spec's text."""
    if len(text.encode()) > TOML_BYTES_MAX:
        raise SpecError(f"above {TOML_BYTES_MAX} bytes", field="spec", remedy="send large specs as JSON")
    if _LONG_KEY.search(text):
        raise SpecError(f"has a name of more than {_DOTS_MAX} parts", field="spec", remedy="see the examples")
    import tomllib

    try:
        return tomllib.loads(text)
    except RecursionError:
        raise SpecError("not TOML: nested too deeply", field="spec", remedy="see the examples") from None
    except ValueError as error:  # TOMLDecodeError, and numbers of too many digits
        raise SpecError(f"not TOML: {error}", field="spec", remedy="see the examples") from None


def parse_section(kind: type[S], data: dict[str, Any]) -> S:
    """Return a section, or a whole spec, from the tables of a TOML file."""
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise _as_spec_error(error.errors(include_url=False, include_input=False), data) from None


def _as_spec_error(found: Sequence[Any], data: dict[str, Any]) -> SpecError:
    first = found[0]
    kind, field = first["type"], _dotted(first["loc"], data)
    ways = dict.fromkeys(said(one) for one in found if _dotted(one["loc"], data) == field)
    message = ", or ".join(ways) if all(way.startswith("must ") for way in ways) else said(first)
    if kind == "value_error" and ": " in message:
        inner, message = message.split(": ", 1)
        field = inner if "." in inner or not field else f"{field}.{inner}"
    if kind == "extra_forbidden":
        message = "unknown key"
    elif kind == "union_tag_invalid":
        field, message = f"{field}.name", f"must be one of {first['ctx']['expected_tags']}"
    elif kind == "union_tag_not_found":
        field, message = f"{field}.name", "missing"
    return SpecError(message, field=field or "spec", remedy=_REMEDIES.get(kind, "see docs/configuration.md"))


def said(error: Any) -> str:
    """Return what is wrong, in the words of a TOML file."""
    kind, facts = error["type"], error.get("ctx", {})
    if kind in ("too_long", "too_short"):
        limit = f"at most {facts['max_length']}" if kind == "too_long" else f"at least {facts['min_length']}"
        return f"must have {limit} items, not {facts['actual_length']}"
    if words := _PATTERNS.get(facts.get("pattern")):
        return words
    message = str(error["msg"]).removeprefix("Value error, ")
    return _WORDS.get(kind) or re.sub("^(Input|String) should ", "must ", message)


def _is_tag(part: int | str) -> bool:
    return isinstance(part, str) and part.startswith(("<", "dict[")) and part[-1] in ">]"


def _dotted(place: tuple[int | str, ...], data: Any) -> str:
    """Return a field's name as the file has it: without names that tell tables of several kinds apart."""
    parts, here = [], data
    for part in place:
        if isinstance(part, str) and here is not None and not isinstance(here, dict):
            continue  # a kind that was tried on a value, of several
        inside = isinstance(here, dict) and part in here
        if not inside and (_is_tag(part) or (isinstance(here, dict) and here.get("name") == part)):
            continue
        parts.append(str(part))
        if isinstance(here, dict):
            here = here.get(part)
        elif isinstance(here, list) and isinstance(part, int):
            here = here[part]
    return ".".join(parts)
