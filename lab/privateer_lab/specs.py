"""Specs as the command line gets them: a TOML file, and ``--set section.key=value``."""

from pathlib import Path

from privateer.experiment import Spec, parse_spec
from privateer.tables import read_tables


def load_spec(path: Path, settings: list[str], users: int | None = None) -> Spec:
    """The spec in a file, with settings applied.

    Parameters
    ----------
    path
        TOML file.
    settings
        ``section.key=value`` each; the value as TOML, or a bare string.
    users
        The horizon, if given.

    Raises
    ------
    SpecError
        If the file is missing or not TOML, a setting is not ``section.key=value``, or the spec is invalid.
    """
    data = read_tables(path, settings, "SPEC")
    if users is not None:
        data.setdefault("experiment", {})["horizon"] = users
    return parse_spec(data)
