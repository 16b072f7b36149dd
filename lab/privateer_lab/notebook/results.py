"""Results and rounds of an experiment on a server."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from privateer_core.answer import Answer
from privateer_core.answer.conclusion import Conclusion
from privateer_lab.answer_tables import estimates_of, tables_of
from privateer_lab.answer_words import sentences
from privateer_lab.conclusion_tables import rule_rows
from privateer_lab.notebook.policies import address
from privateer_lab.notebook.tabular import ResultTable, Tabular, table_of
from privateer_lab.picture import Picture
from privateer_lab.services.rest import answer_at, ask
from privateer_lab.shape_pictures import pictures_of_shapes


@dataclass(frozen=True, repr=False)
class Found(Tabular):
    """The results of an experiment: a row for each estimate.

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
    conclusion
        What follows from it: which option, for whom, how much better, and how sure that is.
    """

    experiment: str
    confidence: float | None
    recommended: str | None
    stopped: bool
    estimates: Sequence[Mapping[str, Any]]
    tables: Mapping[str, ResultTable]
    said: Answer
    conclusion: Conclusion

    @cached_property
    def table(self) -> ResultTable:
        """A row for each effect of a group, or among everybody if there are no groups; else for each estimate or rule.

        Rules are what people of each get, the first that applies; they are there where an algorithm chooses by context.
        """
        rows = next((one.rows() for one in self.tables.values()), []) if self.said.effects else self.estimates
        rules = self.conclusion.rules
        if rules and not self.said.effects:
            return table_of(f"{self.experiment}: rules", rule_rows(rules))
        return table_of(f"{self.experiment}: estimates", rows)

    @property
    def shapes(self) -> Sequence[Picture]:
        """A picture of each feature's shape functions, where the algorithm learns some."""
        return pictures_of_shapes(self.said)

    @property
    def notes(self) -> Sequence[str]:
        """How sure it is, and what it recommends."""
        sure = [] if self.confidence is None else [f"Intervals hold with a probability of {self.confidence:g}."]
        return *sure, *sentences(self.conclusion, self.said)


@dataclass(frozen=True, repr=False)
class History(Tabular):
    """The rounds of an experiment: a row each, with the mechanism's parameters and the learner's figures."""

    experiment: str
    rounds: Sequence[Mapping[str, Any]]

    @cached_property
    def table(self) -> ResultTable:
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
        If there is no answer, or no such experiment.
    """
    published = answer_at(address(experiment), field="url")
    return found_in(published.experiment, published.found, published.conclusion)


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


def found_in(experiment: str, said: Answer, conclusion: Conclusion) -> Found:
    """Return what an answer and its conclusion say as tables."""
    tables = {one.title: table_of(one.title, one.rows) for one in tables_of(said)}
    estimates = estimates_of(said.estimates)
    return Found(experiment, said.confidence, said.recommended, said.is_over, estimates, tables, said, conclusion)


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a round as one row: the epsilon of a mechanism is that of one message by itself, and not the promise."""
    mechanism = {
        f"mechanism_{key}": value for key, value in row["mechanism"].items() if not isinstance(value, list | dict)
    }
    rest = {key: value for key, value in row.items() if key not in ("mechanism", "figures")}
    return {**rest, **mechanism, **row["figures"]}
