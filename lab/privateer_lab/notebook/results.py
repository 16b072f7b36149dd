"""Results and rounds of an experiment on a server."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from privateer_core.answer import Answer
from privateer_core.answer.conclusion import Conclusion
from privateer_lab.notebook.policies import experiment_url
from privateer_lab.notebook.tabular import ResultTable, Tabular, build_table
from privateer_lab.render.documents import rule_rows
from privateer_lab.render.pictures import Picture, draw_shapes
from privateer_lab.render.tables import answer_tables, estimate_rows
from privateer_lab.render.words import describe_conclusion
from privateer_lab.services.rest import fetch_answer_at, request_json


@dataclass(frozen=True, repr=False)
class ExperimentResult(Tabular):
    """The results of an experiment: a row for each estimate.

    Attributes
    ----------
    experiment
        The experiment's name.
    confidence
        The simultaneous confidence level of all intervals.
    recommended
        The arm that the experiment recommends, if any.
    stopped
        Whether the experiment has stopped asking participants.
    tables
        All other tables of the experiment, by title.
    answer
        The result as the server returns it, with the decision on every effect and its reason.
    conclusion
        The conclusion: the arm to choose, for which participants, its gain, and how sure that is.
    """

    experiment: str
    confidence: float | None
    recommended: str | None
    stopped: bool
    estimates: Sequence[Mapping[str, Any]]
    tables: Mapping[str, ResultTable]
    answer: Answer
    conclusion: Conclusion

    @cached_property
    def table(self) -> ResultTable:
        """A row for each effect, by group if there are groups; or for each estimate; or for each rule.

        A rule gives an arm to participants with a context, and the first rule that applies decides.
        """
        rows = (
            next((rendered.rows() for rendered in self.tables.values()), []) if self.answer.effects else self.estimates
        )
        rules = self.conclusion.rules
        if rules and not self.answer.effects:
            return build_table(f"{self.experiment}: rules", rule_rows(rules))
        return build_table(f"{self.experiment}: estimates", rows)

    @property
    def shapes(self) -> Sequence[Picture]:
        """A picture of each feature's shape functions, if the algorithm learns shape functions."""
        return draw_shapes(self.answer)

    @property
    def notes(self) -> Sequence[str]:
        """Sentences about the confidence level and the recommendation."""
        confidence = [] if self.confidence is None else [f"Intervals hold with a probability of {self.confidence:g}."]
        return *confidence, *describe_conclusion(self.conclusion, self.answer)


@dataclass(frozen=True, repr=False)
class History(Tabular):
    """The rounds of an experiment: a row each, with the mechanism's parameters and the learner's figures."""

    experiment: str
    rounds: Sequence[Mapping[str, Any]]

    @cached_property
    def table(self) -> ResultTable:
        """A row for each round."""
        return build_table(f"{self.experiment}: rounds", map(_flatten_round, self.rounds))


def result(experiment: str) -> ExperimentResult:
    """Return the current result of an experiment on a server.

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
    published = fetch_answer_at(experiment_url(experiment), field="url")
    return build_result(published.experiment, published.result, published.conclusion)


def history(experiment: str) -> History:
    """Return the rounds of an experiment on a server.

    Parameters
    ----------
    experiment
        As in `result`.

    Raises
    ------
    PrivateerError
        If there is no answer, or no such experiment.
    """
    document = request_json("GET", f"{experiment_url(experiment)}/history", field="url")
    return History(document["experiment"], tuple(document["rounds"]))


def build_result(experiment: str, result: Answer, conclusion: Conclusion) -> ExperimentResult:
    """Build the tables of a result and its conclusion."""
    tables = {rendered.title: build_table(rendered.title, rendered.rows) for rendered in answer_tables(result)}
    rows = estimate_rows(result.estimates)
    return ExperimentResult(
        experiment, result.confidence, result.recommended, result.is_over, rows, tables, result, conclusion
    )


def _flatten_round(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a round as a flat row; the mechanism's epsilon is that of a single message, and not the promise."""
    parameters = row["mechanism"].items()
    mechanism = {f"mechanism_{key}": value for key, value in parameters if not isinstance(value, list | dict)}
    other_columns = {key: value for key, value in row.items() if key not in ("mechanism", "figures")}
    return {**other_columns, **mechanism, **row["figures"]}
