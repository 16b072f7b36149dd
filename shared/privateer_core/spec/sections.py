"""Sections of a specification: tables of a TOML file, checked, with errors that name the field."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ModelWrapValidatorHandler, ValidationError, model_validator

from privateer_core.errors import SpecError

Finite = Annotated[float, Field(allow_inf_nan=False)]


class Section(BaseModel):
    """An immutable table with known keys only."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    @model_validator(mode="wrap")
    @classmethod
    def _refuse_booleans(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Refuse true and false for numbers: they would count as 1 and 0."""
        section = handler(data)
        if isinstance(data, Mapping):
            for name, value in data.items():
                parsed = section.__dict__.get(name)
                if _is_boolean_as_number(value, parsed):
                    raise ValueError(f"{name}: must be a number, not true or false")
                if _contains_boolean_as_number(value, parsed):
                    raise ValueError(f"{name}: must have numbers instead of true and false")
        return section

    def with_unset(self, values: Mapping[str, Any]) -> Self:
        """Return the section with these values of keys that are not set, which count as set."""
        unset = {key: value for key, value in values.items() if key not in self.model_fields_set}
        return self.model_construct(self.model_fields_set | set(unset), **(dict(self) | unset)) if unset else self


def _is_boolean_as_number(raw: Any, parsed: Any) -> bool:
    """Whether a boolean was given and parsed as a number."""
    return isinstance(raw, bool) and type(parsed) in (int, float)


def _contains_boolean_as_number(raw: Any, parsed: Any) -> bool:
    """Whether a list or table contains a boolean that was parsed as a number; nested sections check their own."""
    pending = [(raw, parsed)]  # a list instead of recursion: untrusted tables may be nested deeply
    while pending:
        raw, parsed = pending.pop()
        pairs: list[tuple[Any, Any]] = []
        if isinstance(parsed, dict) and isinstance(raw, Mapping):
            pairs = [(value, parsed.get(name)) for name, value in raw.items()]
        elif isinstance(raw, list | tuple) and isinstance(parsed, list | tuple):
            pairs = list(zip(raw, parsed, strict=False))
        if any(_is_boolean_as_number(*pair) for pair in pairs):
            return True
        pending += pairs
    return False


S = TypeVar("S", bound=Section)
_RENAMED: Final = {
    "algorithm.failure": "algorithm.failure_probability",
    "algorithm.alpha": "algorithm.min_allocation (trial)",
    "algorithm.client_deviation": "algorithm.participant_standard_deviation",
    "algorithm.clients": "algorithm.participants_factor",
    "algorithm.deviation": "algorithm.standard_deviation",
    "algorithm.effect": "algorithm.minimum_detectable_effect",
    "algorithm.exploration": "algorithm.exploration_scale",
    "algorithm.floor": "algorithm.min_allocation",
    "algorithm.level": "algorithm.significance_level (trial) or algorithm.failure_probability (bandit)",
    "algorithm.memory": "algorithm.half_life",
    "algorithm.messages": "algorithm.messages_per_report",
    "algorithm.report": "algorithm.report_statistic",
    "algorithm.shares": "algorithm.allocation_ratio",
    "algorithm.stop": "algorithm.stopping_rules",
    "recruitment.least_share": "recruitment.min_response_rate",
    "recruitment.reserve": "recruitment.over_selection_factor",
    "recruitment.seconds": "recruitment.timeout_seconds",
    "asking": "recruitment",
    "experiment.arrivals": "experiment.arrivals_per_day",
    "experiment.conversion_window": "experiment.conversion_window_seconds",
    "experiment.gain_share": "experiment.evaluation_fraction",
    "experiment.people": "experiment.participants",
    "experiment.report_period": "experiment.report_period_seconds",
    "experiment.retired": "experiment.retired_arms",
    "experiment.round_growth": "experiment.min_round_fraction",
    "privacy.arms": "privacy.arm_visibility",
    "reward.adjust": "reward.covariates",
    "reward.deviation": "reward.standard_deviation",
    "context.hashed": "hash_buckets",
    "segments.by": "segments.features",
    "segments.shares": "segments.proportions",
    "sources.people": "participants",
}
"""Keys of before, and what they are called now."""
_RENAMED_VALUES: Final = {
    ("algorithm.allocation", "matching"): "thompson",
    ("privacy.arm_visibility", "seen"): "visible",
}
"""Values of before, by key, and what they are called now."""
_REMOVED_KEY_REMEDIES: Final = {
    "algorithm.beta": "remove it: it is 1 / (actions * horizon)",
    "algorithm.estimator": "remove it: points are on an ellipsoid where algorithm.lipschitz is not given",
    "algorithm.exploration_decay": "set algorithm.min_allocation to the smallest share of an arm, or remove it",
    "algorithm.fixed_clients": "remove it, or set algorithm.participants_factor and algorithm.alpha",
    "algorithm.host": "remove it, and set algorithm.objective: moving for kl-ucb, adversarial for tsallis-inf",
    "algorithm.intervals": "remove it: intervals hold at all looks of the plan",
    "algorithm.rate": "remove it, and give reward.base_rate in the unit of rewards",
    "algorithm.undecided": "remove it: everybody gets the control where nothing is decided",
    "recruitment.when_short": "remove it: a phase closes with recruitment.min_response_rate, or waits "
    "recruitment.extensions times more",
}
"""Remedies for removed keys."""
_REMEDIES: Final = {
    "extra_forbidden": "remove it or correct its spelling",
    "missing": "add it",
    "union_tag_not_found": "add it",
}
_MESSAGES: Final = {
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
"""Messages for values of a wrong type, in the terms of TOML."""

NAME: Final = r"^[a-z0-9][a-z0-9-]{0,62}$"
_PATTERN_MESSAGES: Final = {NAME: "must have 1 to 63 lower-case letters, digits and dashes, and no dash at its start"}
"""Messages for texts that do not match a regular expression."""
TOML_BYTES_MAX: Final = 256 << 10
_KEY_PARTS_MAX: Final = 16
_KEY_PART: Final = r"""(?:[A-Za-z0-9_-]++|"[^"\n]*+"|'[^'\n]*+')"""
_LONG_KEY: Final = re.compile(rf"(?<![A-Za-z0-9_-]){_KEY_PART}(?:[ \t]*+\.[ \t]*+{_KEY_PART}){{{_KEY_PARTS_MAX},}}+")
"""A pattern of long dotted keys, whose parsing takes time and memory quadratic in the number of parts."""


def parse_toml(text: str) -> dict[str, Any]:
    """Parse the TOML text of a spec into tables, and refuse one that is large, nested or invalid."""
    if len(text.encode()) > TOML_BYTES_MAX:
        raise SpecError(f"above {TOML_BYTES_MAX} bytes", field="spec", remedy="send large specs as JSON")
    if _LONG_KEY.search(text):
        raise SpecError(f"has a name of more than {_KEY_PARTS_MAX} parts", field="spec", remedy="see the examples")
    import tomllib

    try:
        return tomllib.loads(text)
    except RecursionError:
        raise SpecError("not TOML: nested too deeply", field="spec", remedy="see the examples") from None
    except ValueError as error:  # TOMLDecodeError, and numbers with too many digits
        raise SpecError(f"not TOML: {error}", field="spec", remedy="see the examples") from None


def parse_section(kind: type[S], data: dict[str, Any]) -> S:
    """Parse a section, or a whole spec, from tables; an error names the first invalid field."""
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise _to_spec_error(error.errors(include_url=False, include_input=False), data) from None


def _to_spec_error(errors: Sequence[Any], data: dict[str, Any]) -> SpecError:
    """Convert the validation errors of one field to an error with its path, constraint and remedy."""
    first = errors[0]
    kind, field = first["type"], _field_path(first["loc"], data)
    messages = dict.fromkeys(describe_error(error) for error in errors if _field_path(error["loc"], data) == field)
    message = ", or ".join(messages) if all(text.startswith("must ") for text in messages) else describe_error(first)
    if kind == "value_error" and ": " in message:
        inner, message = message.split(": ", 1)
        field = inner if "." in inner or not field else f"{field}.{inner}"
    if kind == "extra_forbidden":
        was_key = field in _REMOVED_KEY_REMEDIES or _section_and_key(field) in _RENAMED
        message = "is no longer a key" if was_key else "unknown key"
    elif kind == "union_tag_invalid":
        field, message = f"{field}.name", f"must be one of {first['ctx']['expected_tags']}"
    elif kind == "union_tag_not_found":
        field, message = f"{field}.name", "missing"
    return SpecError(message, field=field or "spec", remedy=_find_remedy(kind, field, data))


def _section_and_key(field: str) -> str:
    """Return a field's section and key, without the name of a feature or a source between them."""
    return ".".join(field.split(".")[:: max(1, field.count("."))])


def _find_remedy(kind: str, field: str, data: dict[str, Any]) -> str:
    """Return the remedy for a kind of error: the new name of a key or value, or what replaces a removed key."""
    if kind == "literal_error":
        section, _, key = field.partition(".")
        for (renamed_field, old), new in _RENAMED_VALUES.items():
            if field == renamed_field and data[section][key] == old:
                return f"call it {new}"
    if kind == "extra_forbidden" and _section_and_key(field) in _RENAMED:
        return f"call it {_RENAMED[_section_and_key(field)]}"
    removed = _REMOVED_KEY_REMEDIES.get(field) if kind == "extra_forbidden" else None
    return removed or _REMEDIES.get(kind, "see docs/configuration.md")


def describe_error(error: Any) -> str:
    """Return the message of a validation error, in the terms of TOML."""
    kind, context = error["type"], error.get("ctx", {})
    if kind in ("too_long", "too_short"):
        limit = f"at most {context['max_length']}" if kind == "too_long" else f"at least {context['min_length']}"
        return f"must have {limit} items, not {context['actual_length']}"
    if pattern_message := _PATTERN_MESSAGES.get(context.get("pattern")):
        return pattern_message
    message = str(error["msg"]).removeprefix("Value error, ")
    return _MESSAGES.get(kind) or re.sub("^(Input|String) should ", "must ", message)


def _field_path(location: tuple[int | str, ...], data: Any) -> str:
    """Return a field's path in the file, without the tags that distinguish types of tables."""
    parts, table = [], data
    for part in location:
        if isinstance(part, str) and table is not None and not isinstance(table, dict):
            continue  # a tag of a type that was tried on the value
        is_tag = isinstance(part, str) and part.startswith(("<", "dict[")) and part[-1] in ">]"
        is_key = isinstance(table, dict) and part in table
        if not is_key and (is_tag or (isinstance(table, dict) and table.get("name") == part)):
            continue
        parts.append(str(part))
        if isinstance(table, dict):
            table = table.get(part)
        elif isinstance(table, list) and isinstance(part, int):
            table = table[part]
    return ".".join(parts)
