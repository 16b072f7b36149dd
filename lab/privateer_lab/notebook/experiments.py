"""What an experiment on a server has found, and its rounds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from privateer_core.result import Result, completed
from privateer_lab.notebook.policies import address
from privateer_lab.notebook.tables import Table, Tabular, table_of
from privateer_lab.rest import ask
from privateer_lab.result_tables import INTERVAL, is_over_time, rows_of
from privateer_lab.result_words import sentences


@dataclass(frozen=True, repr=False)
class Found(Tabular):
    """What an experiment has found: a row for each estimate.

    Attributes
    ----------
    experiment
        The experiment's name.
    confidence
        The probability with which all intervals hold.
    recommended
        The option that the experiment recommends, if any.
    stopped
        Whether it asks nobody any more.
    tables
        Whatever else the experiment reports, by title.
    said
        What was found, with the decision on every effect and its reason.
    """

    experiment: str
    confidence: float
    recommended: str | None
    stopped: bool
    estimates: Sequence[Mapping[str, Any]]
    tables: Mapping[str, Table]
    said: Result

    @cached_property
    def table(self) -> Table:
        """A row for each estimate, as the experiment's first table of estimates has them; else the plain ones."""
        now = (one for one in self.tables.values() if set(one.columns) >= INTERVAL and not _over_time(one))
        found = next(now, None)
        return (
            Table(f"{self.experiment}: estimates", found.columns)
            if found
            else table_of(f"{self.experiment}: estimates", self.estimates)
        )

    @property
    def notes(self) -> Sequence[str]:
        """How sure it is, and what it recommends."""
        return f"Intervals hold with a probability of {self.confidence:g}.", *sentences(self.said)


@dataclass(frozen=True, repr=False)
class History(Tabular):
    """The rounds of an experiment: a row each, with the mechanism's parameters and the learner's figures."""

    experiment: str
    rounds: Sequence[Mapping[str, Any]]

    @cached_property
    def table(self) -> Table:
        """A row for each round."""
        return table_of(f"{self.experiment}: rounds", map(_flat, self.rounds))


def result(experiment: str) -> Found:
    """Return what an experiment has found so far.

    Parameters
    ----------
    experiment
        Its name on the server of ``PRIVATEER_URL`` (by default this machine's), or its address, such as
        ``http://127.0.0.1:8000/experiments/shop``.

    Raises
    ------
    PrivateerError
        If there is no answer, no such experiment, or it has no result.
    """
    answer = ask("GET", f"{address(experiment)}/result", field="url")
    return found_in(answer["experiment"], answer["result"])


def history(experiment: str) -> History:
    """Return the rounds of an experiment.

    Parameters
    ----------
    experiment
        As in `result`.

    Raises
    ------
    PrivateerError
        If there is no answer, or no such experiment.
    """
    answer = ask("GET", f"{address(experiment)}/history", field="url")
    return History(answer["experiment"], tuple(answer["rounds"]))


def found_in(experiment: str, found: Result | Mapping[str, Any]) -> Found:
    """Return a result, as a learner has it or as a server sends it."""
    said = completed(found if isinstance(found, Result) else msgspec.convert(found, Result))
    told = msgspec.to_builtins(said)
    tables = {one["title"]: table_of(one["title"], _nothing_empty(one)) for one in told.get("tables", ())}
    estimates = tuple(told["estimates"])
    return Found(experiment, said.confidence, said.recommended, said.stopped, estimates, tables, said)


def _nothing_empty(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a table's rows; what has no value is None."""
    return [{name: None if cell == "" else cell for name, cell in row.items()} for row in rows_of(table)]


def _over_time(table: Table) -> bool:
    return is_over_time({"columns": list(table.columns)})


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a round as one row: the epsilon of a mechanism is that of one message by itself, and not the promise."""
    mechanism = {
        f"mechanism_{key}": value for key, value in row["mechanism"].items() if not isinstance(value, list | dict)
    }
    rest = {key: value for key, value in row.items() if key not in ("mechanism", "figures")}
    return {**rest, **mechanism, **row["figures"]}
