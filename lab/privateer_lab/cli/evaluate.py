"""``evaluate``: off-policy evaluation of a policy, or of each arm, from a log of random choices."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, Self

import numpy as np
import typer
from numpy.typing import NDArray
from typer import Argument, Option

from privateer_core.errors import SpecError
from privateer_lab.cli.command_line import Cluster, Json, LowerIsBetter, Missing
from privateer_lab.cli.output import print_json, print_lines, print_rows
from privateer_lab.notebook.choice_log import Decider
from privateer_lab.notebook.estimates import Value
from privateer_lab.notebook.evaluation import Evaluation, read_evaluator
from privateer_lab.notebook.policies import policy as read_policy
from privateer_lab.render.words import format_figure, format_list
from privateer_lab.simulation.scores import replace_nan
from privateer_lab.tables import shorten
from privateer_lab.tables.data_table import DataTable
from privateer_lab.tables.rewards import LOWER_FIGURE_REMARK, parse_bounds

_ESTIMATORS: Final = ("ips", "snips", "dr", "gain")


class _Words(NamedTuple):
    """Phrases for a policy that is better or worse than the log."""

    better: str
    worse: str
    better_or_worse: str
    gain: str = "the gain over the log"
    notes: tuple[str, ...] = ()

    @classmethod
    def from_reward(cls, reward: str, *, lower_is_better: bool) -> Self:
        """Return the phrases for a reward to maximize or to minimize."""
        if not lower_is_better:
            return cls("earn more", "earn less", "earn more or less")
        note = LOWER_FIGURE_REMARK.format(reward=reward, figure="a gain")
        better, worse, either = (f"have a {direction} {reward}" for direction in ("lower", "higher", "lower or higher"))
        return cls(better, worse, either, "how much lower than in the log, as gain", (note,))


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(evaluate)


def evaluate(
    data: Annotated[Path, Argument(metavar="DATA", help="A CSV or Parquet file with one row for each choice.")],
    arm: Annotated[str, Option(help="Column of the option that was chosen.")] = "arm",
    reward: Annotated[str, Option(help="Column of what came of it: no or yes, or a number.")] = "reward",
    propensity: Annotated[
        str, Option(metavar="COLUMN|NUMBER", help="Probability with which the row's option was chosen.")
    ] = "p",
    policy: Annotated[
        str | None,
        Option(
            help="What to evaluate: an option, a file of `privateer export`, or an experiment's address. Each option "
            "by default."
        ),
    ] = None,
    context: Annotated[list[str], Option(help="Column that explains rewards or propensities. May be repeated.")] = [],  # noqa: B006 - typer's way to say none
    person: Annotated[
        str | None, Option(metavar="COLUMN", help="Column of people, if some have several rows: errors are theirs.")
    ] = None,
    cluster: Cluster = None,
    bounds: Annotated[
        str | None, Option(metavar="LOW:HIGH", help="Least and largest possible reward, as in 0:500.")
    ] = None,
    missing: Missing = [],  # noqa: B006
    lower_is_better: LowerIsBetter = False,
    level: Annotated[float, Option(help="One minus the confidence of all intervals together.")] = 0.05,
    as_json: Json = False,
) -> None:
    """Show what a policy, or each option for everybody, would have earned, from a log of choices made at random."""
    if not 0 < level < 1:
        raise SpecError("must be above 0 and below 1", field="--level", remedy="0.05 is usual")
    columns: dict[str, Any] = {"action": arm, "reward": reward, "person": person, "cluster": cluster}
    columns |= {"context": context, "lower_is_better": lower_is_better}
    is_address = policy is not None and (policy.endswith(".json") or "://" in policy)
    table, decider = DataTable(str(data), missing=missing), read_policy(policy) if policy and is_address else policy
    limits = None if bounds is None else _parse_bounds(bounds)
    evaluator = read_evaluator(table, decider, propensity=_read_propensity(propensity, table), bounds=limits, **columns)
    policies: dict[str, Decider] = {name: name for name in evaluator.log.arms}
    if policy is not None and decider is not None:
        policies = {policy: decider}
    evaluator = replace(evaluator, level=1 - level / len(policies))
    evaluations = {name: evaluator.evaluate(decider) for name, decider in policies.items()}
    if as_json:
        print_json(_build_document(evaluations, reward, 1 - level))
        return
    words = _Words.from_reward(reward, lower_is_better=lower_is_better)
    print_lines([_format_headline(evaluations, words)], style="bold")
    print_rows(*_build_table(evaluations, reward, words))
    print_lines([*words.notes, _describe_unit(reward, evaluator.log.rewards), *_list_notes(evaluations, 1 - level)])


def _describe_unit(reward: str, rewards: NDArray[np.float64]) -> str:
    """Describe the unit of all figures."""
    is_rate = bool(np.isin(rewards, (0.0, 1.0)).all())
    unit = "rates: 0.05 is 5 in 100 rows" if is_rate else "means of a row, in the unit of the column"
    return f"Figures of {shorten(reward)} are {unit}."


def _parse_bounds(text: str) -> tuple[float, float]:
    """Parse low:high into two numbers; refuse bounds with a column's name."""
    name, bounds = parse_bounds(text)
    if name is not None:
        raise SpecError("are those of the reward alone", field="--bounds", remedy="write low:high, as in 0:500")
    return bounds


def _read_propensity(text: str, table: DataTable) -> str | float:
    """Return the name of a column, or a number if no column has this name; refuse another text."""
    try:
        return text if text in table.header else float(text)
    except ValueError:
        remedy = "name the column of propensities, or give one number: 0.25 if each of 4 options was equally likely"
        raise SpecError(f"no column is named {shorten(text)}", field="--propensity", remedy=remedy) from None


def _format_headline(evaluations: Mapping[str, Evaluation], words: _Words) -> str:
    """Return a sentence about the policies that are significantly better or worse than the logged policy."""
    gains = {name: evaluation.gain for name, evaluation in evaluations.items()}
    gains_by_verb = {
        words.better: [f"{name} by {_format_interval(gain)}" for name, gain in gains.items() if gain.low > 0],
        words.worse: [f"{name} by {_format_interval(_negate(gain))}" for name, gain in gains.items() if gain.high < 0],
    }
    rows = [(verb, names) for verb, names in gains_by_verb.items() if names]
    sentences = [f"Known to {verb} than what was logged: {format_list(names)}." for verb, names in rows]
    subject = "No option is" if len(evaluations) > 1 else f"{next(iter(evaluations))} is not"
    sentence = " ".join(sentences) or f"{subject} known to {words.better_or_worse} than what was logged."
    if any(evaluation.is_contradicted for evaluation in evaluations.values()):
        return f"The log contradicts its own propensities, on which every figure rests. If they were right: {sentence}"
    return sentence


def _negate(value: Value) -> Value:
    return replace(value, value=-value.value, low=-value.high, high=-value.low)


def _format_interval(value: Value) -> str:
    return f"{format_figure(value.value)} ({format_figure(value.low)} to {format_figure(value.high)})"


def _build_table(evaluations: Mapping[str, Evaluation], reward: str, words: _Words) -> tuple[str, list[dict[str, Any]]]:
    """Return title and rows of a table: one policy by all estimators, or each of several arms."""
    if len(evaluations) == 1:
        [(name, evaluation)] = evaluations.items()
        return f"{reward} a row under {name}", [replace_nan(row) for row in evaluation.rows()]
    rows = []
    for name, evaluation in evaluations.items():
        row = {"option": name, "rows": round(evaluation.followed * evaluation.n_rows)}
        for figure, value in (("mean", evaluation.dr), ("gain", evaluation.gain)):
            row |= {figure: value.value, f"{figure} from": value.low, f"{figure} to": value.high}
        rows.append(replace_nan(row))
    return f"{reward} a row, if everybody got an option, and {words.gain}", rows


def _list_notes(evaluations: Mapping[str, Evaluation], confidence: float) -> Iterator[str]:
    """Yield sentences about confidence, sample size, and problems of the log."""
    first, *others = evaluations.values()
    yield f"Intervals hold {'all at once ' if others else ''}with a probability of {confidence:g}."
    if not others:
        yield from first.notes
        return
    yield f"The log has a mean of {_format_interval(first.logged)} a row."
    yield first.size
    if n_exact := sum(evaluation.dr.is_exact for evaluation in evaluations.values()):
        share = f"{n_exact:,} of {len(evaluations):,} options"
        yield f"Of {share} few rewards decide, so their limits are exact and may be wide."
    for warning in first.warnings:
        if all(warning in other.warnings for other in others):
            yield f"Warning: {warning}"


def _build_document(evaluations: Mapping[str, Evaluation], reward: str, confidence: float) -> dict[str, Any]:
    """Return all estimates as a JSON document, with null for unknown values."""
    first = next(iter(evaluations.values()))
    figures = ("model", "effective", "largest", "followed", "supported", "warnings", "is_contradicted")
    return {
        "reward": reward,
        "confidence": confidence,
        "rows": first.n_rows,
        "people": first.n_people,
        "clusters": first.n_clusters,
        "logged": replace_nan(asdict(first.logged)),
        "policies": [
            {"policy": name}
            | {estimate: replace_nan(asdict(getattr(evaluation, estimate))) for estimate in _ESTIMATORS}
            | {figure: getattr(evaluation, figure) for figure in figures}
            for name, evaluation in evaluations.items()
        ],
    }
