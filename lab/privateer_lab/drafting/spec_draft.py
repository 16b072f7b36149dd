"""A spec made from the columns of a data frame or a file: a draft, whose bounds and levels become public.

`draft` is for notebooks: ``print(draft(frame).text)``. Parts that come from the data have to be confirmed, since
a spec is public.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from privateer_core.algorithms import read_spec
from privateer_core.errors import SpecError
from privateer_lab.analysis.clusters import few_cluster_warnings
from privateer_lab.drafting.column_choice import drop_redundant_columns, sort_by_relevance
from privateer_lab.drafting.feature_drafts import FeatureDrafts, draft_features, explain_identifier, format_segments
from privateer_lab.drafting.fixed_sections import (
    choose_promise,
    explain_promise,
    format_arms,
    format_closing_sections,
    format_experiment_section,
    format_labelled_population,
    with_filled_rounds,
    with_needed_cap,
)
from privateer_lab.drafting.given_away import find_leaks
from privateer_lab.drafting.reward_drafts import format_reward_section
from privateer_lab.drafting.written_draft import Draft, LoggedChoices
from privateer_lab.planning.other_algorithms import contextual_algorithms, effect_algorithm
from privateer_lab.tables import shorten
from privateer_lab.tables.data_table import (
    MAX_SAMPLE_ROWS,
    DataTable,
    TableRows,
    check_columns_exist,
    check_distinct_columns,
)
from privateer_lab.tables.log_rows import (
    ArmNames,
    LogRows,
    drop_incomplete_rows,
    read_arms,
    read_classes,
    read_log_rows,
    read_rewards,
)
from privateer_lab.tables.rewards import describe_codes, describe_table

_FIXED_ALLOCATION_LINE: Final = (
    'allocation = "fixed"  # finds most; without this line worse options get fewer people, and less is found'
)
_LEAK_REASON: Final = "it tells the outcome nearly without error, and no device knows it before it chooses"


def draft(
    frame: Any,
    *,
    reward: str | None = None,
    arm: str | None = None,
    ignore: Sequence[str] = (),
    known: Sequence[str] = (),
    arms: Sequence[str] = (),
    label: str | None = None,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    segments: Sequence[str] = (),
    name: str = "my-experiment",
    seen_from: Path | None = None,
    person: str | None = None,
    cluster: str | None = None,
    control: str | None = None,
    lower_is_better: bool = False,
    missing: Sequence[str] = (),
    model: str | None = None,
    epsilon: float | None = None,
) -> Draft:
    """Draft a spec from the types and values of a table's columns, as ``privateer spec-from`` does from a file.

    A spec is public. The draft's ``confirm`` lists what comes from the data, so that somebody may change or confirm it.
    With ``arm`` and ``reward`` the draft has ``people`` made from the rows, whom `plan` and `simulate` then play:
    ``made.people.notes`` say how well they fit.

    Parameters
    ----------
    frame
        A pandas or polars data frame, a pyarrow table, a mapping of names to values; or the path of a CSV or Parquet
        file.
    reward
        The column of what came of a choice. Its bounds become the reward's, and it is no feature.
    arm
        The column of what was chosen. Its values become the arms, and it is no feature.
    ignore
        More columns that are no features, such as the propensities of a log.
    known
        Features that are known before the choice, though they explain most of a log's rewards or options depend on
        them: others that do are left out, as comments.
    arms
        Names of the options; by default those of the label, or two to be renamed.
    label
        A column that says which class somebody belongs to: no feature, but simulated people's truth.
    bounds
        Bounds of numeric columns that are public already, by name.
    segments
        Columns by which effects are wanted: the spec is that of a test, and these are its features.
    name
        The experiment's name.
    seen_from
        The folder that the spec will be in, if it names the file; by default the working directory.
    person
        The column of people, if some have several rows: each counts once, with the mean of their rewards.
    cluster
        The column of what rows, or people, depend on each other by, such as shops: no feature, and all errors are those
        of clusters.
    control
        The option with which others are compared; by default the first by name.
    lower_is_better
        Whether less of the reward is better, as of waiting times: the spec's reward is no instead of yes, or the
        negative.
    missing
        Texts that stand for no value, such as ``"999"``, beside the usual ones.
    model, epsilon
        The promise: a trust model and an epsilon; by default epsilon 1 under a model for so many people.

    Raises
    ------
    SpecError
        If there are no such columns, none that makes a feature, or a name that no spec may have.

    Examples
    --------
    >>> import privateer_lab as lab
    >>> frame = {"hours": [38, 40, 25, 12], "arm": ["old", "new", "old", "new"], "reward": [0, 1, 1, 0]}
    >>> made = lab.spec_from(frame, reward="reward", arm="arm", bounds={"hours": (0, 80)})
    >>> made.spec.options, list(made.spec.features)
    (('new', 'old'), ['hours'])
    """
    path, bounds = (str(frame) if isinstance(frame, str | Path) else None), dict(bounds or {})
    table = DataTable(frame, missing=missing)
    named = [name for name in (arm, reward, label, person, cluster) if name]
    check_columns_exist([*bounds, *named, *ignore, *known, *segments], table.header)
    columns = {"--arm": arm, "--reward": reward, "--label": label, "--person": person, "--cluster": cluster}
    check_distinct_columns(columns, segments)
    whole = table.read(max_sampled_rows=MAX_SAMPLE_ROWS)
    notes = describe_table(whole, [name for name in (arm, reward, label, *segments) if name], person or cluster)
    rows, log = _select_rows(whole, named, (arm, reward, person, cluster), notes)
    names = ArmNames.from_names(arms)
    if arm and not arms:
        names = (log.arms if log else read_arms(rows.column(arm))).with_control(control)
    classes = read_classes(rows.column(label)) if label else ArmNames.from_names(())
    all_rows = "every row" if rows.n_rows == whole.n_rows else "every row that counts"
    row_label = "the first row of each person" if person else all_rows
    arguments = (rows, row_label), {*named, *ignore}, bounds, segments, (log, arm, cluster)
    features = _draft_features(*arguments)
    confirm = features.confirmations
    if (column := arm or label) and not arms:
        n_arms = len((names if arm else classes).values)
        confirm.insert(0, f"{shorten(column)}: the names of the {n_arms} options are from the data")
    notes += [*features.notes, *names.notes(shorten(column or "--arms")), *_suggest_log_options(arm, reward, label)]
    if not names.values and not classes.values:
        notes.append("No options are given: rename first and second in experiment.arms, or give --arms.")
    options = names.allowed or classes.allowed or ["first", "second"]
    rewards = log.rewards if log else read_rewards(rows.column(reward)) if reward else None
    section, public, rewards = format_reward_section(rewards, reward, bounds.get(reward or ""), notes, lower_is_better)
    is_test, promise = bool(segments) or not features.lines, choose_promise(rows.total, model, epsilon)
    arms_line = format_arms(options, from_data=bool(column and not arms))
    sections = format_experiment_section(name, arms_line, rows.total, promise["model"], measures=not is_test)
    sections += ["[context.features]", *features.lines, "", *section] if features.lines else section
    notes += [
        *(describe_codes(rows.column(reward)) if reward else []),
        *explain_promise(promise, rows.total, is_requested=model is not None),
    ]
    confirm += public
    sections += format_segments(rows, segments, confirm)
    sections += format_closing_sections(promise, effect_algorithm() if is_test else contextual_algorithms()[0])
    sections += [_FIXED_ALLOCATION_LINE] if is_test else []
    if path and label:
        sections += format_labelled_population(os.path.relpath(path, seen_from), label, list(classes.values), options)
        sections += ['missing = "drop"  # rows without a class'] if rows.n_rows < whole.n_rows else []
    played = None
    if log and reward and rewards is not None and not arms:
        order = np.array([list(names.values).index(value) for value in log.arms.values])
        played = LoggedChoices(log.rows, order[log.chosen], rewards, reward, lower_is_better, cluster, known)
    labelled = Path(path) if path and label else None
    text = with_needed_cap(with_filled_rounds("\n".join(sections) + "\n"))
    drafted = Draft(text, tuple(confirm), tuple(notes), played, labelled, features)
    if (played or labelled) and not is_test:
        drafted = replace(drafted, drawn=_draft_features(*arguments, quantiles=True))
    read_spec(drafted.text)
    return drafted


def _select_rows(
    rows: TableRows, required: list[str], log: tuple[str | None, ...], notes: list[str]
) -> tuple[TableRows, LogRows | None]:
    """Return the rows with a value in all named columns, and their log if an arm and a reward are named."""
    arm, reward, person, cluster = log
    if rows.n_rows < rows.total:
        sample = f"Of {rows.total:,} rows a random sample of {rows.n_rows:,} was kept; all figures are of these."
        notes.insert(0, sample)
    if arm and reward:
        log_rows = read_log_rows(rows, arm, reward, person, cluster=cluster)
        warnings = few_cluster_warnings(len(log_rows.rows.column(cluster).counts), shorten(cluster)) if cluster else []
        notes += [*log_rows.remarks, *(f"Warning: {warning}." for warning in (*log_rows.warnings, *warnings))]
        return log_rows.rows, log_rows
    return drop_incomplete_rows(rows, required, notes) if required else rows, None


def _suggest_log_options(arm: str | None, reward: str | None, label: str | None) -> list[str]:
    """Suggest the missing column of a log, since an outcome among the features is known too late."""
    if label or (arm and reward):
        return []
    options = {"--arm COLUMN names what people got": arm, "--reward COLUMN names what came of it": reward}
    missing = " and ".join(option for option, column in options.items() if not column)
    return [f"If the rows are a log of earlier choices, {missing}: no device knows these columns before it chooses."]


def _draft_features(
    named_rows: tuple[TableRows, str],
    excluded: set[str],
    bounds: Mapping[str, tuple[float, float]],
    segments: Sequence[str],
    log: tuple[LogRows | None, str | None, str | None],
    *,
    quantiles: bool = False,
) -> FeatureDrafts:
    """Draft features from columns, of a wide log those that interact most; without any, the draft is an A/B test."""
    rows, row_label = named_rows
    if segments:
        profiles = [rows.column(name) for name in segments]
        return draft_features(profiles, bounds, quantiles=quantiles, is_requested=True, rows=row_label)
    rows_log, arm, cluster = log
    profiles = [column for column in rows.columns.values() if column.name not in excluded]
    by_name = (None if name is None else rows.column(name) for name in (arm, cluster))
    profiles, notes = drop_redundant_columns(profiles, *by_name)
    if rows_log:
        leaks = find_leaks([column for column in profiles if not explain_identifier(column)], rows_log.rewards)
        notes += [f"{shorten(column.name)} is left out: {_LEAK_REASON}." for column in profiles if column.name in leaks]
        profiles = [column for column in profiles if column.name not in leaks]
    drafts = draft_features(profiles, bounds, quantiles=quantiles, rows=row_label)
    if drafts.is_full and rows_log and arm:
        profiles = sort_by_relevance(profiles, rows.column(arm), rows_log.rewards)
        drafts = draft_features(profiles, bounds, quantiles=quantiles, rows=row_label)
        drafts.notes.append("Features that tell most about which option is better for whom were taken first.")
    drafts.notes = notes + drafts.notes
    if not drafts.by_name and not rows_log:
        detail = f" ({drafts.notes[0].rstrip('.')})" if drafts.notes else ""
        remedy = "give numbers, yes or no, or few levels"
        raise SpecError(f"no column makes a feature{detail}", field="table", remedy=remedy)
    if not drafts.by_name:
        drafts.notes.append("No column makes a feature: this is the spec of a test among everybody.")
    return drafts
