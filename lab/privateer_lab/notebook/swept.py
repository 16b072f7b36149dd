"""Sweeps in a notebook: a row for each run of each combination of settings."""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from privateer_core.errors import SpecError
from privateer_lab.notebook.specs import SpecLike
from privateer_lab.notebook.specs import spec as read
from privateer_lab.notebook.tables import Table
from privateer_lab.planning.spec_draft import toml
from privateer_lab.planning.sweep import SweepJournal, cells, product_of, read_journal
from privateer_lab.planning.sweep import sweep as rows_of
from privateer_lab.simulation.parallel import Backend
from privateer_lab.simulation.simulate import figures_of


def sweep(
    spec: SpecLike,
    vary: Mapping[str, Sequence[Any]],
    *,
    users: int | None = None,
    seeds: int = 4,
    out: "str | PathLike[str] | None" = None,
    jobs: int | None = 1,
    backend: Backend = "processes",
) -> Table:
    """Run a spec over all combinations of settings, as ``privateer sweep`` does.

    Parameters
    ----------
    spec
        What `spec` takes; it has a ``population``.
    vary
        Values of keys by dotted name.
    users, seeds, jobs, backend
        As in `simulate`.
    out
        A CSV file to which rows are added as they come. The same call goes on where it was interrupted.

    Raises
    ------
    SpecError
        If a combination is no spec, or the file holds another table.

    Examples
    --------
    >>> import privateer_lab as lab
    >>> made = lab.sweep("examples/peaks-local.toml", {"privacy.epsilon": [1, 4]}, users=2000, seeds=1)
    >>> [(row["privacy.epsilon"], row["people"]) for row in made.rows()]
    [(1, 2000), (4, 2000)]
    """
    parsed = read(spec, users=users)
    if not all(isinstance(values, Sequence) and not isinstance(values, str) and values for values in vary.values()):
        detail = "must have a list of values for each key"
        raise SpecError(detail, field="vary", remedy="write {'privacy.epsilon': [1, 4]}")
    made = product_of(vary)
    wanted = cells(((tuple(map(toml, one.values())), read(parsed, one)) for one in made), seeds)
    with TemporaryDirectory() as folder:
        path = Path(out) if out is not None else Path(folder) / "sweep.csv"
        with SweepJournal(path, vary, figures_of(wanted[0].spec)) as journal:
            for _ in rows_of(wanted, journal, jobs, backend):
                pass
        found = read_journal(path)
    columns = {name: found[name].to_pylist() for name in found.column_names}
    return Table(f"{parsed.name}: sweep", columns)
