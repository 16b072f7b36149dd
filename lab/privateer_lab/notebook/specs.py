"""Specs in a notebook: from a dictionary, a TOML text, a file, or the columns of a data frame."""

from collections.abc import Mapping
from copy import deepcopy
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

from privateer_core.algorithms import parse_spec
from privateer_core.errors import SpecError
from privateer_core.spec.sections import toml_tables
from privateer_core.spec.spec import Spec
from privateer_lab.cli.input_files import load_spec
from privateer_lab.drafting.spec_draft import draft
from privateer_lab.drafting.toml_values import toml
from privateer_lab.drafting.written_draft import Draft
from privateer_lab.environments import check_population, with_people
from privateer_lab.toml_file import apply_setting

SpecLike: TypeAlias = Spec | Draft | Mapping[str, Any] | str | PathLike[str]
"""What `spec` takes."""
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
        The number of people, if given.
    people
        Other simulated people: the name of an environment, a table of a ``[population]``, ``module:Class``, or a class
        or an object with ``contexts``, ``means`` and ``rewards``. A draft of a log has people of its own.

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
            raise SpecError("is no key of a section", field=f"changes.{key}", remedy=remedy)
    settings = [f"{key}={'' if value is None else toml(value)}" for key, value in (changes or {}).items()]
    if isinstance(source, PathLike) or (isinstance(source, str) and "\n" not in source and "=" not in source):
        parsed = load_spec(Path(source), settings, users)
        return parsed if people is None else with_people(parsed, people)
    tables = _tables(source)
    for setting in settings:
        apply_setting(tables, setting)
    parsed = parse_spec(tables)
    if users is not None:
        tables["experiment"][parsed.people_key] = users
        parsed = parse_spec(tables)
    if people is None and "population" not in tables:
        people = own_people(source)
    if people is not None:
        return with_people(parsed, people)
    if not isinstance(source, Spec):  # another spec was checked, and may have people of one's own
        check_population(parsed)
    return parsed


def own_people(source: Any) -> Any:
    """Return the people of a draft; None if it has none, or if there is no draft."""
    found = source.people if isinstance(source, Draft) else None
    return found.people if found else None


def _tables(source: Any) -> dict[str, Any]:
    if isinstance(source, Draft):
        return toml_tables(source.text)
    if isinstance(source, Spec):
        told = source.model_dump(exclude_none=True, exclude={"population"})
        return told | ({} if source.population is None else {"population": dict(source.population)})
    if isinstance(source, str):
        return toml_tables(source)
    if not isinstance(source, Mapping):
        raise SpecError("is no spec", field="spec", remedy=_REMEDY)
    return deepcopy(dict(source))


spec_from = draft
"""What notebooks call it, after the command."""
