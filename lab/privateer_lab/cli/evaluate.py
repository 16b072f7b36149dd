"""``evaluate``: what a policy, or each option, would have earned, from a log of choices at random."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, Self

import typer

from privateer_core.errors import SpecError, printable
from privateer_lab.cli.command_line import Cluster, Json, LowerIsBetter, Missing
from privateer_lab.cli.output import print_json, print_rows, screen
from privateer_lab.figures import listed, readable
from privateer_lab.notebook.choice_log import Decider
from privateer_lab.notebook.estimates import Value
from privateer_lab.notebook.evaluation import Evaluation, read_evaluator
from privateer_lab.notebook.policies import policy as read_policy
from privateer_lab.tables.data_table import DataTable
from privateer_lab.tables.rewards import LOWER_BY, parse_bounds

_ESTIMATES: Final = ("ips", "snips", "dr", "gain")


class _Words(NamedTuple):
    """How a policy differs from the log where it is better, and where it is worse."""

    better: str
    worse: str
    either: str
    gain: str = "the gain over the log"
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, reward: str, *, lower_is_better: bool) -> Self:
        """Return the words for a reward of which more is better, or less."""
        if not lower_is_better:
            return cls("earn more", "earn less", "earn more or less")
        note = LOWER_BY.format(reward=reward, figure="a gain")
        low, high, either = (f"have a {how} {reward}" for how in ("lower", "higher", "lower or higher"))
        return cls(low, high, either, "how much lower than in the log, as gain", (note,))


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(evaluate)


def evaluate(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="A CSV or Parquet file: a row a choice.")],
    arm: Annotated[str, typer.Option(help="Column of the option that was chosen.")] = "arm",
    reward: Annotated[str, typer.Option(help="Column of what came of it: no or yes, or a number.")] = "reward",
    propensity: Annotated[
        str, typer.Option(metavar="COLUMN|NUMBER", help="Probability with which the row's option was chosen.")
    ] = "p",
    policy: Annotated[
        str | None,
        typer.Option(
            help="What to evaluate: an option, a file of `privateer export`, or an experiment's address. Each option "
            "by default."
        ),
    ] = None,
    context: Annotated[
        list[str], typer.Option(help="Column that explains rewards or propensities. May be repeated.")
    ] = [],  # noqa: B006 - typer's way to say none
    person: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of people, if some have several rows: errors are theirs."),
    ] = None,
    cluster: Cluster = None,
    bounds: Annotated[
        str | None, typer.Option(metavar="LOW:HIGH", help="Least and largest possible reward, as in 0:500.")
    ] = None,
    missing: Missing = [],  # noqa: B006
    lower_is_better: LowerIsBetter = False,
    level: Annotated[float, typer.Option(help="One minus the confidence of all intervals together.")] = 0.05,
    as_json: Json = False,
) -> None:
    """Show what a policy, or each option for everybody, would have earned, from a log of choices made at random."""
    if not 0 < level < 1:
        raise SpecError("must be above 0 and below 1", field="--level", remedy="0.05 is usual")
    columns: dict[str, Any] = {"action": arm, "reward": reward, "person": person, "cluster": cluster}
    columns |= {"context": context, "lower_is_better": lower_is_better}
    table, judged = DataTable(str(data), missing=missing), None if policy is None else _policy(policy)
    limits = None if bounds is None else _bounds(bounds)
    evaluator = read_evaluator(table, judged, propensity=_propensity(propensity, table), bounds=limits, **columns)
    policies: dict[str, Decider] = {name: name for name in evaluator.log.arms}
    if policy is not None and judged is not None:
        policies = {policy: judged}
    evaluator = replace(evaluator, level=1 - level / len(policies))
    evaluations = {name: evaluator.evaluate(judged) for name, judged in policies.items()}
    if as_json:
        print_json(_document(evaluations, reward, 1 - level))
        return
    words = _Words.of(reward, lower_is_better=lower_is_better)
    screen.print(printable(_headline(evaluations, words)), style="bold", soft_wrap=True, markup=False)
    print_rows(*_table(evaluations, reward, words), words_left=True)
    for line in (*words.notes, *_notes(evaluations, 1 - level)):
        screen.print(printable(line), soft_wrap=True, markup=False)


def _policy(text: str) -> Decider:
    """Return an option by its name, or a policy by its file or address."""
    return read_policy(text) if text.endswith(".json") or "://" in text else text


def _bounds(text: str) -> tuple[float, float]:
    name, bounds = parse_bounds(text)
    if name is not None:
        raise SpecError("are those of the reward alone", field="--bounds", remedy="write low:high, as in 0:500")
    return bounds


def _propensity(text: str, table: DataTable) -> str | float:
    """Return the name of a column, or a number if no column is called so."""
    try:
        return text if text in table.header else float(text)
    except ValueError:
        return text


def _headline(evaluations: Mapping[str, Evaluation], words: _Words) -> str:
    """Say which policies are known to earn more or less than the one that was logged."""
    gains = {name: evaluation.gain for name, evaluation in evaluations.items()}
    known = {
        words.better: [f"{name} by {_interval(gain)}" for name, gain in gains.items() if gain.low > 0],
        words.worse: [f"{name} by {_interval(_negative(gain))}" for name, gain in gains.items() if gain.high < 0],
    }
    sentences = [f"Known to {how} than what was logged: {listed(names)}." for how, names in known.items() if names]
    subject = "No option is" if len(evaluations) > 1 else f"{next(iter(evaluations))} is not"
    said = " ".join(sentences) or f"{subject} known to {words.either} than what was logged."
    if any(evaluation.is_contradicted for evaluation in evaluations.values()):
        return f"The log contradicts its own propensities, on which every figure rests. If they were right: {said}"
    return said


def _negative(value: Value) -> Value:
    return replace(value, value=-value.value, low=-value.high, high=-value.low)


def _interval(value: Value) -> str:
    return f"{readable(value.value)} ({readable(value.low)} to {readable(value.high)})"


def _table(evaluations: Mapping[str, Evaluation], reward: str, words: _Words) -> tuple[str, list[dict[str, Any]]]:
    """Return the title and rows of what a policy earns by each estimator, or of what each of several options does."""
    if len(evaluations) == 1:
        [(name, evaluation)] = evaluations.items()
        return f"{reward} a row under {name}", [_drop_nan(row) for row in evaluation.rows()]
    rows = []
    for name, evaluation in evaluations.items():
        row = {"option": name, "rows": round(evaluation.followed * evaluation.n_rows)}
        for figure, value in (("mean", evaluation.dr), ("gain", evaluation.gain)):
            row |= {figure: value.value, f"{figure} from": value.low, f"{figure} to": value.high}
        rows.append(_drop_nan(row))
    return f"{reward} a row, if everybody got an option, and {words.gain}", rows


def _notes(evaluations: Mapping[str, Evaluation], confidence: float) -> Iterator[str]:
    """Say how sure it is, on how many rows and people it rests, and what is wrong with the log."""
    first, *others = evaluations.values()
    yield f"Intervals hold {'all at once ' if others else ''}with a probability of {confidence:g}."
    if not others:
        yield from first.notes
        return
    yield f"The log has a mean of {_interval(first.logged)} a row."
    yield first.size
    if n_exact := sum(evaluation.dr.is_exact for evaluation in evaluations.values()):
        which = f"{n_exact:,} of {len(evaluations):,} options"
        yield f"Of {which} few rewards decide, so their limits are exact and may be wide."
    for warning in first.warnings:
        if all(warning in other.warnings for other in others):
            yield f"Warning: {warning}"


def _document(evaluations: Mapping[str, Evaluation], reward: str, confidence: float) -> dict[str, Any]:
    """Return all estimates; what is not known is null."""
    first = next(iter(evaluations.values()))
    figures = ("model", "effective", "largest", "followed", "supported", "warnings", "is_contradicted")
    return {
        "reward": reward,
        "confidence": confidence,
        "rows": first.n_rows,
        "people": first.n_people,
        "clusters": first.n_clusters,
        "logged": _drop_nan(asdict(first.logged)),
        "policies": [
            {"policy": name}
            | {estimate: _drop_nan(asdict(getattr(evaluation, estimate))) for estimate in _ESTIMATES}
            | {figure: getattr(evaluation, figure) for figure in figures}
            for name, evaluation in evaluations.items()
        ],
    }


def _drop_nan(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row in which what is not a number is None."""
    return {key: None if isinstance(value, float) and math.isnan(value) else value for key, value in row.items()}
