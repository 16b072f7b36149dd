"""Specs in a notebook: from a dictionary, a TOML text, a file, or the columns of a data frame."""

from collections.abc import Mapping
from copy import deepcopy
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

from privateer_core.algorithms import parse_spec
from privateer_core.errors import SpecError
from privateer_core.spec.sections import parse_toml
from privateer_core.spec.spec import Spec
from privateer_lab.cli.input_files import load_spec
from privateer_lab.drafting.spec_draft import draft
from privateer_lab.drafting.toml_values import to_toml
from privateer_lab.drafting.written_draft import Draft
from privateer_lab.environments import check_population, with_population
from privateer_lab.toml_file import apply_setting

SpecLike: TypeAlias = Spec | Draft | Mapping[str, Any] | str | PathLike[str]
"""A source that `spec` takes."""
_REMEDY = "give a dictionary, TOML text, or the path of a TOML file"


def spec(
    source: SpecLike, changes: Mapping[str, Any] | None = None, *, users: int | None = None, people: Any = None
) -> Spec:
    """Read a spec, and check it.

    Parameters
    ----------
    source
        Tables as a dictionary, a TOML text, the path of a TOML file, a draft, or another spec.
    changes
        Values of keys by dotted name; None removes a key.
    users
        The number of participants, if given.
    people
        Another population: the name of an environment, a table of a ``[population]``, ``module:Class``, or a class
        or an object with ``contexts``, ``means`` and ``rewards``. A draft of a log has its own population.

    Raises
    ------
    SpecError
        Naming the first offending field, its constraint and the remedy.

    Examples
    --------
    >>> import privateer_lab as lab
    >>> lab.spec("examples/peaks-shuffle.toml", {"privacy.epsilon": 2.0}, users=5000).privacy.epsilon
    2.0
    >>> lab.spec({"algorithm": {"name": "unheard-of"}})
    Traceback (most recent call last):
        ...
    privateer_core.errors.PluginError: algorithm.name: must be one of ... (choose one, ...)
    """
    for key in changes or {}:
        if "." not in key:
            remedy = "name a key of a section, as in {'privacy.epsilon': 2}"
            raise SpecError("is not a key of a section", field=f"changes.{key}", remedy=remedy)
    settings = [f"{key}={'' if value is None else to_toml(value)}" for key, value in (changes or {}).items()]
    if isinstance(source, PathLike) or (isinstance(source, str) and "\n" not in source and "=" not in source):
        parsed = load_spec(Path(source), settings, users)
        return parsed if people is None else with_population(parsed, people)
    tables = _read_tables(source)
    for setting in settings:
        apply_setting(tables, setting)
    parsed = parse_spec(tables)
    if users is not None:
        tables["experiment"][parsed.people_key] = users
        parsed = parse_spec(tables)
    if people is None and "population" not in tables and isinstance(source, Draft) and source.people:
        people = source.people.environment
    if people is not None:
        return with_population(parsed, people)
    if not isinstance(source, Spec):  # a Spec has been checked already, and may have a population of objects
        check_population(parsed)
    return parsed


def _read_tables(source: Any) -> dict[str, Any]:
    """Read tables of a spec from a draft, a spec, TOML or a mapping, which is copied; refuse others."""
    if isinstance(source, Draft):
        return parse_toml(source.text)
    if isinstance(source, Spec):
        tables = source.model_dump(exclude_none=True, exclude={"population"})
        return tables | ({} if source.population is None else {"population": dict(source.population)})
    if isinstance(source, str):
        return parse_toml(source)
    if not isinstance(source, Mapping):
        raise SpecError("is no spec", field="spec", remedy=_REMEDY)
    return deepcopy(dict(source))


spec_from = draft
"""The notebook's name of `draft`, as of the command."""
